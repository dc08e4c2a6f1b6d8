"""The documents as files: links lead to files, commands parse, every document is in an index."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "bench", "charts", "lab", "tests")
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.md"))})
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document, as they are made from its headings."""
    text = _FENCE.sub("", path.read_text("utf-8"))
    words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {re.sub(r"\s", "-", word.strip()) for word in words}


def broken(path: Path) -> Iterator[str]:
    """Yield the broken links of a document."""
    for target in _LINK.findall(_FENCE.sub("", path.read_text("utf-8"))):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            yield target


@every_document
def test_links_lead_to_files_and_headings(path: Path) -> None:
    """Every file and heading that a document links to exists."""
    assert list(broken(path)) == []


@every_document
def test_commands_parse(path: Path) -> None:
    """Every block of commands is valid shell syntax."""
    for kind, text in _FENCE.findall(path.read_text("utf-8")):
        if kind == "sh":
            done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)  # noqa: S607 - bash is where bash is
            assert done.returncode == 0, done.stderr + text


def test_every_document_is_in_an_index() -> None:
    """The index lists every document, and the index of the decisions every decision."""
    indexes = [ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"]
    listed = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in indexes
        for target in _LINK.findall(index.read_text("utf-8"))
    }
    assert {path.resolve() for path in ROOT.glob("docs/**/*.md")} - listed == {indexes[0]}


def test_the_places_for_changes_exist() -> None:
    """Every path that CONTRIBUTING.md names for a change and its test exists."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = {found for found in re.findall(r"`([\w./-]+/[\w./-]*)`", text) if "*" not in found}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_picture_is_small_and_accessible() -> None:
    """The SVG has a description, and loads and runs nothing."""
    text = (ROOT / "docs" / "concepts" / "tree.svg").read_text("utf-8")
    assert len(text) < 10_000
    assert "<desc" in text
    assert "href" not in text
    assert "<script" not in text


def test_the_kind_cluster_has_the_racks_of_the_examples() -> None:
    """There are two blocks of two racks of two nodes."""
    config = yaml.safe_load((ROOT / "kind-config.yaml").read_text("utf-8"))
    places = Counter(
        (node["labels"]["topology.cpg.dev/block"], node["labels"]["topology.cpg.dev/rack"])
        for node in config["nodes"]
        if node["role"] == "worker"
    )
    assert places == {(f"block-{block}", f"rack-{block}-{rack}"): 2 for block in (1, 2) for rack in (1, 2)}
