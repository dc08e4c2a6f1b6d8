"""YAML and JSON files as documents, each with its place for messages."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from cpg_cli.failures import usage_error

SUFFIXES = (".yaml", ".yml", ".json")
STANDARD_INPUT = "-"
Plain = dict[str, Any]


class Document(Struct, frozen=True):
    """One object of a file, as plain data."""

    place: str
    """File and number, such as ``objects.yaml, document 2``."""
    plain: Plain

    @property
    def group(self) -> str:
        """Return the API group."""
        group, slash, _ = self.plain["apiVersion"].rpartition("/")
        return group if slash else ""

    @property
    def kind(self) -> str:
        """Return the kind."""
        return str(self.plain["kind"])

    @property
    def name(self) -> str:
        """Return kind and name, for messages."""
        return f"{self.kind} {self.plain['metadata']['name']}"


def read_documents(sources: Sequence[str]) -> list[Document]:
    """Read files, the files of folders as kubectl does, and standard input as ``-``."""
    return [document for source in sources for file in _files(source) for document in _documents(file)]


def parse_documents(name: str, text: str) -> Iterator[Document]:
    """Yield the objects of a text; lists are taken apart, and empty documents left out."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parsed, number = yaml.load_all(text, loader), 0
    while True:
        number += 1
        place = f"{name}, document {number}"
        try:
            plain = next(parsed, parsed)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or str(error)
            raise usage_error(f"{place}{where}: no YAML: {problem}") from error
        if plain is parsed:
            return
        if plain is not None:
            yield from _objects(place, plain)


def _files(source: str) -> Iterator[str]:
    path = Path(source)
    if source == STANDARD_INPUT or not path.is_dir():
        yield source
        return
    found = sorted(str(one) for one in path.iterdir() if one.suffix in SUFFIXES)
    if not found:
        raise usage_error(f"{source} has no file that ends in {', '.join(SUFFIXES)}")
    yield from found


def _documents(file: str) -> Iterator[Document]:
    try:
        text = sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    yield from parse_documents("standard input" if file == STANDARD_INPUT else file, text)


def _objects(place: str, plain: Any) -> Iterator[Document]:  # noqa: ANN401 - YAML
    if not isinstance(plain, dict):
        raise usage_error(f"{place}: is no object with apiVersion and kind")
    for field in ("apiVersion", "kind"):
        if not isinstance(plain.get(field), str):
            raise usage_error(f"{place}: {field} is missing")
    if plain["kind"].endswith("List") and isinstance(plain.get("items"), list):
        for number, item in enumerate(plain["items"], 1):
            yield from _objects(f"{place}, item {number}", item)
        return
    given = plain.get("metadata")
    meta: Plain = given if isinstance(given, dict) else {}
    name = meta.get("name") or meta.get("generateName")
    if not isinstance(name, str):
        raise usage_error(f"{place}: metadata.name is missing")
    yield Document(place, {**plain, "metadata": {**meta, "name": name}})
