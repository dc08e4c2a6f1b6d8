"""Cutting JSON that is nested too deeply."""

import json
import tracemalloc
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpg_api import nesting
from cpg_api.core.pod import Pod
from cpg_api.nesting import MAX_NESTING, cut_items, cut_nesting
from cpg_api.parsing import parse_list
from cpg_engine.testing.call_counts import count_calls

GOOD = b'{"metadata":{"name":"good","namespace":"ns"}}'


def listed(*items: bytes) -> bytes:
    """Return a LIST of items."""
    return b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[%s]}' % b",".join(items)


def nested(levels: int) -> bytes:
    """Return objects within objects."""
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_is_cut_below_the_limit_exactly(opening: bytes) -> None:
    """Brackets side by side, in strings, or after a quote in a string do not count."""
    ending = {b"[": b"]", b'{"a":': b"}"}[opening]
    wide = b'[%s,"[[{\\\\\\"[[",%s]' % (b"[]," * 300 + b"{}", opening * 20 + b"7" + ending * 20)
    assert cut_nesting(wide) == wide
    for levels in (MAX_NESTING, MAX_NESTING + 1):
        deep = opening * levels + b'"]}"' + ending * levels
        assert (cut_nesting(deep) == deep) == (levels == MAX_NESTING)


@pytest.mark.parametrize(
    ("body", "same"),
    [
        (b'{"items":[%s,%s]}' % (GOOD, GOOD), True),
        (b'{"items":[%s,{"spec":%s}]}' % (GOOD, nested(MAX_NESTING)), False),
        (b'{"items":[%s,{"spec":%s}]}' % (GOOD, nested(100_000)), False),
        (b'{"items":[%s]}' % b",".join([b'{"a":[%s]}' % b",".join([b"{}"] * 300)] * 3), True),
        (nested(50), True),
        (nested(5000), False),
        (b"[1,", True),
        (b'{"items":["\xff"]}', True),
    ],
)
def test_only_items_of_a_list_are_checked(body: bytes, same: bool) -> None:  # noqa: FBT001  # a parameter of a test
    """Other JSON is checked as a whole."""
    assert (cut_items(body) == body) == same


def cut_slowly(data: bytes, most: int) -> bytes:
    """Cut what is nested too deeply, byte by byte."""
    kept = bytearray()
    depth, quoted, escaped = 0, False, False
    for code in data:
        opens, closes = not quoted and code in b"[{", not quoted and code in b"]}"
        depth -= closes
        if depth <= most:
            kept.append(code)
        depth += opens
        if code == ord('"') and not escaped:
            quoted = not quoted
        escaped = quoted and code == ord("\\") and not escaped
    return bytes(kept)


TEXTS = st.text('[]{}"\\a', max_size=8).map(lambda text: json.dumps(text).encode())
HOSTILE = st.recursive(
    TEXTS | st.sampled_from([b"0", b"[]", b"{}", b"null", json.dumps('[{"' * 900).encode()]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda some: b"[%s]" % b", ".join(some))
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(
            lambda some: b"{%s}" % b",".join(b"%s: %s" % pair for pair in some)
        )
        | st.tuples(st.integers(90, 700), inner).map(lambda deep: b"[" * deep[0] + deep[1] + b"]" * deep[0])
        | st.tuples(st.integers(90, 700), TEXTS, inner).map(
            lambda deep: b"{%s:" % deep[1] * deep[0] + deep[2] + b"}" * deep[0]
        )
    ),
    max_leaves=8,
)
"""Strings full of brackets, some of them nested too deeply."""


@given(HOSTILE, st.sampled_from([1, 2, 7, 100, 1 << 16]))
@example(rb'["\\", "\"[", "\\\"]", ' + b"[" * 300 + b"]" * 301, 1)
@example(b"[" * 3000 + b"]" * 3000, 1 << 16)
@example(b"[" * MAX_NESTING + b"[],{}," * 700 + b'"]"' + b"]" * MAX_NESTING, 1 << 16)
def test_the_fast_cut_equals_the_slow_one(data: bytes, piece: int) -> None:
    """For all positions of brackets, including those at the borders of stretches and pieces and in strings."""
    with patch.object(nesting, "_PIECE", piece):
        found = cut_nesting(data)
    assert found == cut_slowly(data, MAX_NESTING)
    json.loads(found)
    assert cut_items(data) == (data if cut_slowly(data, MAX_NESTING + 2) == data else found)


def test_cutting_skips_most_bytes() -> None:
    """Most bytes of a deep object, and of the objects beside it, are not scanned one by one."""
    deep = b",".join([b"[" * 9000 + b"]" * 9000] * 4)
    data = listed(GOOD, b'{"metadata":{"name":"deep","managedFields":[{"fieldsV1":{"f":[%s]}}]}}' % deep, GOOD)
    assert len(parse_list(data, Pod).items) == 3
    assert count_calls(lambda: cut_items(data)) < len(data) / 2


def test_cutting_takes_little_memory() -> None:
    """A few times the bytes of the answer, also where they are a million strings: a user can store such an object."""
    data = nested(300)[:-300] + b',"a":[' + b'"",' * 500_000 + b"1]" + b"}" * 300
    tracemalloc.start()
    try:
        cut_nesting(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(data)
