"""The index of label selectors."""

import tracemalloc

import hypothesis.strategies as st
from hypothesis import given

from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.selectors import Expression, LabelMatcher
from cpg_engine.testing.strategies import cases
from cpg_scheduler.cache.selector_index import SelectorIndex

KEYS, VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
REQUIREMENTS = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(LabelSelectorRequirement, KEYS, st.sampled_from(["Exists", "DoesNotExist", "Unknown"])),
)
SELECTORS = st.one_of(
    st.none(),
    st.builds(
        LabelSelector,
        match_labels=st.dictionaries(KEYS, VALUES, max_size=2),
        match_expressions=st.lists(REQUIREMENTS, max_size=4).map(tuple),
    ),
)
LABELS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@cases(500)
@given(st.lists(SELECTORS, max_size=8), st.sets(st.integers(0, 7)), st.lists(LABELS, min_size=1, max_size=4))
def test_the_index_finds_what_the_selectors_select(
    selectors: list[LabelSelector | None], removed: set[int], labels: list[dict[str, str]]
) -> None:
    """Each alone, whatever others there are and were."""
    matchers = [LabelMatcher.compile(selector) for selector in selectors]
    index = SelectorIndex()
    for number, matcher in enumerate(matchers):
        index.add(number, matcher)
    for number in removed & set(range(len(matchers))):
        index.remove(number, matchers[number])
    kept = [(number, matcher) for number, matcher in enumerate(matchers) if number not in removed]
    for some in labels:
        assert index.selecting(some) == sum(1 << number for number, matcher in kept if matcher.matches(some))


def test_nothing_is_left_of_removed_selectors() -> None:
    """Selectors of pods that come and go would fill the memory otherwise."""
    expressions = (
        LabelSelectorRequirement("a", "In", ("x", "y")),
        LabelSelectorRequirement("b", "NotIn", ("x",)),
        LabelSelectorRequirement("c", "Exists"),
        LabelSelectorRequirement("d", "DoesNotExist"),
    )
    matcher = LabelMatcher.compile(LabelSelector(match_labels={"a": "x"}, match_expressions=expressions))
    index = SelectorIndex()
    empty = {name: type(found)(found) for name, found in vars(index).items()}
    index.add(3, matcher)
    assert index.selecting({"a": "x", "c": ""}) == 8
    assert vars(index) != empty
    index.remove(3, matcher)
    assert vars(index) == empty


def test_values_that_many_selectors_name_are_found() -> None:
    """However many they are, and after most have been removed."""
    matchers = [LabelMatcher(equal=(("a", "x"), ("b", str(number)))) for number in range(200)]
    index = SelectorIndex()
    for number, matcher in enumerate(matchers):
        index.add(number, matcher)
    assert [index.selecting({"a": "x", "b": str(number)}) for number in range(200)] == [1 << n for n in range(200)]
    for number in range(1, 200):
        index.remove(number, matchers[number])
    assert (index.selecting({"a": "x", "b": "0"}), index.selecting({"a": "x", "b": "7"})) == (1, 0)
    index.remove(0, matchers[0])
    assert not any(found for name, found in vars(index).items())


def test_distinct_values_take_little_memory() -> None:
    """Two thousand selectors that list two hundred values each take no more than the lists do."""
    matchers = [
        LabelMatcher(expressions=(Expression("a", "In", frozenset(f"{number}-{n}" for n in range(200))),))
        for number in range(2000)
    ]
    tracemalloc.start()
    try:
        index = SelectorIndex()
        for number, matcher in enumerate(matchers):
            index.add(number, matcher)
        assert tracemalloc.get_traced_memory()[0] < 300 * 200 * len(matchers)
    finally:
        tracemalloc.stop()
