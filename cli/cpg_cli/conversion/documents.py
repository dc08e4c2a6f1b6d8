"""Documents of YAML: what is not converted stays as it was written, comments included.

PyYAML and the YAML of kubectl disagree about some plain words: ``1:30`` is a number for the one, ``y`` and ``1e3`` are
none. So neither is read as a number here, and all are written in quotes.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import yaml

from cpg_cli.failures import usage_error

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
BOOL, INT, FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float"))
TIMESTAMP = "tag:yaml.org,2002:timestamp"

Plain = dict[str, Any]


class ManifestDocument(NamedTuple):
    """A document, and its text if it stands in the source like this."""

    plain: Plain
    text: str | None = None


class ManifestLoader(yaml.SafeLoader):
    """Reads times and numbers with colons as text, as kubectl does."""


class ManifestDumper(yaml.SafeDumper):
    """Writes in quotes what kubectl would not read as text, and repeats what occurs twice."""

    def ignore_aliases(self, _data: object) -> bool:
        """Return that there are no aliases."""
        return True


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in {INT, FLOAT, TIMESTAMP}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
ManifestLoader.add_implicit_resolver(
    INT, re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"), [*"-+0123456789"]
)
ManifestLoader.add_implicit_resolver(
    FLOAT, re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$"), [*"-+.0123456789"]
)
ManifestDumper.add_implicit_resolver(BOOL, re.compile(r"[yYnN]$"), [*"yYnN"])
ManifestDumper.add_implicit_resolver(INT, re.compile(r"0o[0-7_]+$"), ["0"])
ManifestDumper.add_implicit_resolver(
    FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), [*"-+.0123456789"]
)


def read_documents(place: str, stdin: TextIO) -> Iterator[ManifestDocument]:
    """Yield the documents of a file, of the manifests in a folder, or of standard input; of lists the items."""
    if place == STDIN:
        yield from parse_documents(stdin.read(), "standard input")
        return
    path = Path(place)
    files = sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise usage_error(f"{place} contains no manifests", f"manifests end with {', '.join(SUFFIXES)}")
    for file in files:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise usage_error(f"{file}: {error}", "choose a file, a folder, or - for standard input") from error
        yield from parse_documents(text, str(file))


def parse_documents(text: str, place: str) -> Iterator[ManifestDocument]:
    """Yield the documents of a text."""
    try:
        pieces = list(_pieces(text))
        plains = [yaml.load(piece, ManifestLoader) for piece in pieces]  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise usage_error(f"{place}: {error}", "check the YAML") from error
    for piece, plain in zip(pieces, plains, strict=True):
        if plain is None:
            continue
        if not isinstance(plain, dict):
            raise usage_error(f"{place}: a document is no object", "check the YAML")
        if str(plain.get("kind")).endswith("List") and isinstance(plain.get("items"), list):
            yield from (ManifestDocument(item) for item in plain["items"])
        else:
            yield ManifestDocument(plain, piece)


def format_document(document: ManifestDocument) -> str:
    """Return a document as YAML."""
    if document.text is not None:
        return document.text.rstrip("\n") + "\n"
    return yaml.dump(document.plain, Dumper=ManifestDumper, sort_keys=False, allow_unicode=True, width=100)


def _pieces(text: str) -> Iterator[str]:
    """Yield the text of each document, without the line that separates it."""
    events = (event for event in yaml.parse(text) if isinstance(event, yaml.DocumentStartEvent))
    starts = [event.start_mark.index for event in events if event.start_mark is not None]
    bounds = [0, *starts[1:], len(text)]
    for start, end in pairwise(bounds):
        yield re.sub(r"\A---[ \t]*\n", "", text[start:end])
