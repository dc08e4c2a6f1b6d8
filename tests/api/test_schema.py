"""Marks on fields: read by the CRD generator, ignored by decoders."""

import re
from typing import Annotated, Any

import msgspec
import pytest

from cpg_api.parsing import parse_object
from cpg_api.schema import DNS_LABEL, DNS_SUBDOMAIN, LABEL_KEY, PATH_SEGMENT, Mark, describe, dns_label, dns_subdomain
from cpg_api.structs import ApiStruct


class Marked(ApiStruct, frozen=True):
    """A struct with one constrained field."""

    name: Annotated[str, dns_label("The name.", immutable=True)] = ""
    number: Annotated[int, describe("The number.", minimum=1, maximum=2)] = 1


def mark(meta: msgspec.Meta) -> Mark:
    """Return the mark of a field."""
    extra: dict[str, Any] = meta.extra or {}
    found = extra["mark"]
    assert isinstance(found, Mark)
    return found


def test_decoding_ignores_marks() -> None:
    """What the API server has accepted is decoded whatever our schema says, so one odd object never fails a LIST."""
    assert parse_object(b'{"name":"NOT A LABEL","number":7}', Marked) == Marked(name="NOT A LABEL", number=7)


def test_a_field_is_described_once() -> None:
    """The description is msgspec's own, and the mark is beside it."""
    assert describe("The number.", minimum=1).description == "The number."
    assert mark(describe("The number.", minimum=1, required=True)) == Mark(minimum=1, required=True)


def test_names_have_pattern_and_length() -> None:
    """A label has at most 63 characters, a subdomain 253; neither is empty."""
    label, subdomain = mark(dns_label("A label.", immutable=True)), mark(dns_subdomain("A subdomain."))
    assert label == Mark(pattern=DNS_LABEL, min_length=1, max_length=63, immutable=True)
    assert subdomain == Mark(pattern=DNS_SUBDOMAIN, min_length=1, max_length=253)


def test_an_unknown_mark_is_an_error() -> None:
    """It is raised where the field is defined."""
    with pytest.raises(TypeError, match="imutable"):
        describe("The number.", imutable=True)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (DNS_LABEL, ["a", "a-b", "0", "a--b"], ["", "A", "-a", "a-", "a.b", "a_b", "a\n"]),
        (DNS_SUBDOMAIN, ["a", "a.b-c.d", "0.1"], ["", ".", "a.", ".a", "a..b", "a.-b", "A.b"]),
        (LABEL_KEY, ["a", "a/b", "a.b/C_d.e", "A" * 63], ["", "/", "a/", "/b", "a/b/c", "A/b", "-a", "A" * 64]),
        (PATH_SEGMENT, ["a", "a.b", "..a", ".a", "A b"], ["", ".", "..", "a/b", "a%b", "/"]),
    ],
)
def test_patterns_match_as_in_kubernetes(pattern: str, good: list[str], bad: list[str]) -> None:
    """The API server reads them as RE2, in which the end is the end of the text."""
    wholly = re.compile(pattern.replace("$", r"\Z"))
    assert [text for text in good if not wholly.search(text)] == []
    assert [text for text in bad if wholly.search(text)] == []
