"""The order of things of which some need others first."""

from itertools import permutations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cpg_engine.gangs.turns import Wants, in_turn, rounds
from cpg_engine.testing.strategies import cases

NUMBERS = st.integers(0, 4)
WANTS = st.dictionaries(NUMBERS, st.lists(st.frozensets(NUMBERS, max_size=3), max_size=2), max_size=5)
ITEMS = st.lists(NUMBERS, max_size=8)


def ordered(items: str, wants: dict[str, list[str]]) -> str:
    """Return items, which are letters, in turn."""
    numbers = {ord(one): [frozenset(map(ord, choice)) for choice in choices] for one, choices in wants.items()}
    return "".join(items[place] for place in in_turn([ord(item) for item in items], numbers))


@pytest.mark.parametrize(
    ("items", "wants", "expected"),
    [
        ("cab", {}, "cab"),
        ("nw", {"n": ["w"]}, "wn"),
        ("wn", {"n": ["w"]}, "wn"),
        ("nawbz", {"n": ["w"]}, "awnbz"),  # no further back than it has to be
        ("nwnaw", {"n": ["w"]}, "wawnn"),  # behind the last of those who would do
        ("cba", {"c": ["b"], "b": ["a"]}, "abc"),
        ("cxby", {"c": ["xy"]}, "xbyc"),  # either would do, so it waits for both
        ("cxby", {"c": ["x", "y"]}, "xbyc"),
        ("dcab", {"c": ["a"], "d": ["b", "c"]}, "acbd"),
        ("nw", {"n": ["?"]}, "nw"),  # whoever is not among them is not waited for
        ("ban", {"a": ["b"], "b": ["a"]}, "ban"),  # a circle
        ("cban", {"a": ["b"], "b": ["a"], "c": ["a"]}, "bacn"),
        ("acb", {"a": ["b"], "b": ["a?"]}, "cba"),  # a circle that somebody from outside breaks
        ("abc", {"a": ["b"], "b": ["ac"]}, "cba"),
    ],
)
def test_who_is_needed_comes_first(items: str, wants: dict[str, list[str]], expected: str) -> None:
    """Whoever needs others comes after them, and all others stay as they stand."""
    assert ordered(items, wants) == expected


def test_who_never_can_come_is_in_no_round() -> None:
    """Rounds count from one; who needs nobody is there before the first, and no circle is ever broken from within."""
    wants: Wants = {1: [{0}], 2: [{1, 5}, {0}], 3: [set()], 4: [{5}], 5: [{4}]}
    assert rounds(wants) == {1: 1, 2: 2}


@given(ITEMS, WANTS)
@cases(300)
def test_all_that_can_come_find_whom_they_need(items: list[int], wants: Wants) -> None:
    """Each that can come at all has before it whom it needs; whoever is needed and no item is there from the start."""
    items = [*items, *(one for one in wants if one not in items)]
    places = in_turn(items, wants)
    assert sorted(places) == list(range(len(items)))
    order = [items[place] for place in places]
    for item in rounds(wants):
        before = order[: order.index(item)]
        assert all(choice - set(items) or choice & set(before) for choice in wants[item])


@given(ITEMS, WANTS)
@cases(200)
def test_equals_stay_as_they_stand(items: list[int], wants: Wants) -> None:
    """Items that are the same keep their order, and where the order is right already, it stays."""
    places = in_turn(items, wants)
    for item in set(items):
        assert sorted(found for found in places if items[found] == item) == [f for f in places if items[f] == item]
    order = [items[place] for place in places]
    assert in_turn(order, wants) == list(range(len(order)))


@given(WANTS)
@cases(100)
def test_some_order_is_found_where_there_is_one(wants: Wants) -> None:
    """Against all orders: one in which everybody finds whom they need before them."""
    everybody = sorted({*wants, *(other for choices in wants.values() for choice in choices for other in choice)})

    def holds(order: list[int]) -> bool:
        return all(choice & set(order[: order.index(one)]) for one, choices in wants.items() for choice in choices)

    found = [everybody[place] for place in in_turn(everybody, wants)]
    assert holds(found) == any(holds(list(order)) for order in permutations(everybody))
