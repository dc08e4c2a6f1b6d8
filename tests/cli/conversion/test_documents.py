"""Documents are read as kubectl reads them, and written so that it reads the same."""

import io
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cpg_cli.conversion.documents import (
    ManifestDocument,
    ManifestDumper,
    ManifestLoader,
    format_document,
    parse_documents,
    read_documents,
)
from cpg_cli.failures import CommandError

TEXT = """\
# first
kind: A
time: 1:30   # no number
---
# second
kind: B
---
---
kind: List
items: [{kind: C}, {kind: D}]
"""


def test_each_document_keeps_its_text_and_lists_are_taken_apart() -> None:
    """Comments stay with the document before which they stand; empty documents are left out."""
    found = list(parse_documents(TEXT, "here"))
    assert [one.plain["kind"] for one in found] == ["A", "B", "C", "D"]
    assert format_document(found[0]) == "# first\nkind: A\ntime: 1:30   # no number\n"
    assert format_document(found[1]) == "# second\nkind: B\n"
    assert [one.text for one in found[2:]] == [None, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e3", "1e3"),
        ("0x10", 16),
        ("0644", 420),
        ("1.5", 1.5),
        ("-7", -7),
        ("yes", True),
        ("~", None),
        ('"yes"', "yes"),
    ],
)
def test_plain_words_are_read_as_kubectl_does(text: str, value: object) -> None:
    """Times, and numbers with colons, are text."""
    assert yaml.load(f"a: {text}", ManifestLoader) == {"a": value}  # noqa: S506 - a safe loader


@pytest.mark.parametrize(
    "text", ["y", "N", "yes", "on", "1e3", "0o7", "1:30", "2026-01-01", "", "null", "0x1", "1_000", ".5"]
)
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    """So that kubectl reads it as text, which has other rules than PyYAML."""
    assert yaml.dump({"a": text}, Dumper=ManifestDumper).strip() in {f"a: '{text}'", f'a: "{text}"'}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="ascii"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abyn01:e.-", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), VALUES))
def test_what_is_written_is_read_again(plain: dict[str, object]) -> None:
    """Without aliases, and in the same order."""
    text = format_document(ManifestDocument({"kind": "A", **plain}))
    assert yaml.load(text, ManifestLoader) == {"kind": "A", **plain}  # noqa: S506 - a safe loader
    assert yaml.safe_load(text) == {"kind": "A", **plain}


def test_files_folders_and_standard_input_are_read(tmp_path: Path) -> None:
    """Of a folder all manifests, in the order of their names."""
    (tmp_path / "b.json").write_text('{"kind": "B"}')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yml").write_text("kind: C")
    (tmp_path / "a.yaml").write_text("kind: A")
    (tmp_path / "readme.txt").write_text("no: manifest")
    stdin = io.StringIO("kind: D")
    assert [one.plain["kind"] for one in read_documents(str(tmp_path), stdin)] == ["A", "B", "C"]
    assert [one.plain["kind"] for one in read_documents(str(tmp_path / "a.yaml"), stdin)] == ["A"]
    assert [one.plain["kind"] for one in read_documents("-", stdin)] == ["D"]


@pytest.mark.parametrize(("text", "problem"), [("a: [", "here: while parsing"), ("- a", "a document is no object")])
def test_what_is_no_manifest_is_a_usage_error(text: str, problem: str) -> None:
    """The error names the place."""
    with pytest.raises(CommandError, match=problem):
        list(parse_documents(text, "here"))


def test_a_place_without_manifests_is_a_usage_error(tmp_path: Path) -> None:
    """So is a file that does not exist."""
    with pytest.raises(CommandError, match="contains no manifests"):
        list(read_documents(str(tmp_path), io.StringIO()))
    with pytest.raises(CommandError, match="No such file"):
        list(read_documents(str(tmp_path / "none.yaml"), io.StringIO()))
