"""The documents as files: what they refer to is there, commands are commands, and nothing is left out of the index."""

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
    """Yield the links of a document that lead nowhere."""
    for target in _LINK.findall(_FENCE.sub("", path.read_text("utf-8"))):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            yield target


@every_document
def test_every_link_leads_somewhere(path: Path) -> None:
    """Files and headings that a document refers to are there."""
    assert list(broken(path)) == []


@every_document
def test_every_command_can_be_read_by_a_shell(path: Path) -> None:
    """A block of commands has no mistake that a shell sees without running it."""
    for kind, text in _FENCE.findall(path.read_text("utf-8")):
        if kind == "sh":
            done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)  # noqa: S607 - bash is where bash is
            assert done.returncode == 0, done.stderr + text


def test_the_index_has_every_document() -> None:
    """Who comes to the index finds all there is."""
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    listed = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in _LINK.findall(index)}
    assert {path.resolve() for path in ROOT.glob("docs/**/*.md")} - listed == {ROOT / "docs" / "README.md"}


def test_the_picture_is_small_and_its_own() -> None:
    """It is text that anybody may change, loads nothing, and describes itself to who cannot see it."""
    text = (ROOT / "docs" / "concepts" / "tree.svg").read_text("utf-8")
    assert len(text) < 10_000
    assert "<desc" in text
    assert "href" not in text
    assert "<script" not in text


def test_the_kind_cluster_has_the_racks_that_it_promises() -> None:
    """Two blocks of two racks of two nodes, as the examples need them."""
    config = yaml.safe_load((ROOT / "kind-config.yaml").read_text("utf-8"))
    places = Counter(
        (node["labels"]["topology.cpg.dev/block"], node["labels"]["topology.cpg.dev/rack"])
        for node in config["nodes"]
        if node["role"] == "worker"
    )
    assert places == {(f"block-{block}", f"rack-{block}-{rack}"): 2 for block in (1, 2) for rack in (1, 2)}
