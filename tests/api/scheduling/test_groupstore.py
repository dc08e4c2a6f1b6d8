"""The store of the groups of one flavour."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_engine.testing.builders import composite, pod_group
from cpg_engine.testing.call_counts import count_calls


def key(name: str, kind: str = "CompositePodGroup") -> GroupKey:
    """Return the key of a group."""
    return GroupKey(kind, "default", name)


LEAF = key("leaf", "PodGroup")


def test_adding_a_group_changes_the_tree_that_waited_for_it() -> None:
    """It reports the anchor before and the anchor after."""
    store = GroupStore("crd")
    assert store.put(pod_group("leaf", parent="mid")) == {LEAF, key("mid")}
    assert store.put(composite("mid", parent="top")) == {key("mid"), key("top")}
    assert store.put(composite("top")) == {key("top")}
    assert store.anchor(LEAF) == key("top")


def test_removing_a_group_changes_the_trees_above_and_below() -> None:
    """The tree that had it, and the tree that waits for it now."""
    store = GroupStore("crd")
    for group in (composite("top"), composite("mid", parent="top"), pod_group("leaf", parent="mid")):
        store.put(group)
    assert store.remove(key("mid")) == {key("top"), key("mid")}
    assert store.anchor(LEAF) == key("mid")
    assert store.remove(key("mid")) == set()


def test_moving_a_group_changes_both_trees() -> None:
    """The API server does not allow that, but a store that missed a deletion sees it."""
    store = GroupStore("crd")
    for group in (composite("one"), composite("two"), pod_group("leaf", parent="one")):
        store.put(group)
    assert store.put(pod_group("leaf", parent="two")) == {key("one"), key("two")}


def test_the_anchor_of_a_cycle_is_its_smallest_key() -> None:
    """Breaking the cycle reports it, too."""
    store = GroupStore("crd")
    store.put(composite("a", parent="b"))
    assert store.put(composite("b", parent="a")) == {key("b"), key("a")}
    assert store.remove(key("b")) == {key("a"), key("b")}


def test_groups_are_found_by_their_workload() -> None:
    """As long as they exist and reference it."""
    store = GroupStore("crd")
    store.put(pod_group("leaf", parent="mid", workload="w1"))
    store.put(composite("mid", workload="w2"))
    store.put(pod_group("flat"))
    assert set(store.groups_of_workload("default", "w1")) == {LEAF}
    store.put(pod_group("leaf", parent="mid", workload="w2"))
    assert set(store.groups_of_workload("default", "w2")) == {LEAF, key("mid")}
    assert store.groups_of_workload("default", "w1") == ()
    assert store.groups_of_workload("other", "w2") == ()


def test_a_group_of_another_flavour_is_not_in_the_store() -> None:
    """Objects are compared by UID."""
    one, other = GroupStore("crd"), GroupStore("native")
    group = pod_group("leaf")
    one.put(group)
    assert one.has_object(group)
    assert not other.has_object(group)
    assert list(one) == [group]
    assert LEAF in one


NAMES = ["a", "b", "c", "d"]
GROUPS = st.builds(
    lambda name, parent, gang: composite(name, parent=parent, gang=gang),
    st.sampled_from(NAMES),
    st.sampled_from([*NAMES, None]),
    st.integers(1, 3),
)


@given(st.lists(st.one_of(GROUPS, st.sampled_from(NAMES)), max_size=20))
def test_every_changed_tree_is_reported(news: list[Group | str]) -> None:
    """For any change: if the tree of a group differs, its anchor before or after is reported."""
    store = GroupStore("crd")
    known: dict[GroupKey, Group] = {}
    for piece in news:
        before = {name: store.forest.tree_of(key(name)) for name in NAMES}
        if isinstance(piece, str):
            known.pop(key(piece), None)
            touched = store.remove(key(piece))
        else:
            known[key_of(piece)] = piece
            touched = store.put(piece)
        for name in NAMES:
            after = store.forest.tree_of(key(name))
            assert after == Forest.of(known.values()).tree_of(key(name))
            if after != before[name]:
                assert {before[name].anchor_key, after.anchor_key} <= touched


MANY = [f"{number:02}" for number in range(24)]
PARENTS = st.one_of(st.none(), st.sampled_from(MANY))
PIECES = st.one_of(
    st.builds(lambda name, parent: composite(name, parent=parent), st.sampled_from(MANY), PARENTS),
    st.sampled_from(MANY),
)


@st.composite
def draw_chains(draw: st.DrawFn) -> list[Group]:
    """Draw a chain in any order of arrival. Its top is missing, or is below one of the others."""
    names = draw(st.permutations(MANY))
    chain: list[Group] = [composite(name, parent=parent) for parent, name in pairwise(names)]
    top = draw(st.sampled_from([None, *MANY, "missing"]))
    return draw(st.permutations([composite(names[0], parent=top), *chain][draw(st.integers(0, 1)) :]))


@given(draw_chains(), st.lists(PIECES, max_size=20), st.randoms())
def test_cached_anchors_equal_those_of_a_new_forest(
    chain: list[Group], news: list[Group | str], random: Random
) -> None:
    """Long chains and cycles are added, broken, moved and closed. Some anchors are read in between, all at the end."""
    store = GroupStore("crd")
    known: dict[GroupKey, Group] = {}
    for piece in [*chain, *news]:
        if isinstance(piece, str):
            known.pop(key(piece), None)
            store.remove(key(piece))
        else:
            known[key_of(piece)] = piece
            store.put(piece)
        forest = Forest.of(known.values())
        for name in random.sample(MANY, 3):
            assert store.anchor(key(name)) == forest.anchor_of(key(name))
    forest = Forest.of(known.values())
    assert {name: store.anchor(key(name)) for name in MANY} == {name: forest.anchor_of(key(name)) for name in MANY}


def shuffled(groups: Iterable[Group]) -> list[Group]:
    """Return the keys in a random order that is always the same."""
    found = list(groups)
    Random(7).shuffle(found)  # noqa: S311  # nothing is to be kept secret
    return found


@pytest.mark.parametrize("top", [None, "last"])
@pytest.mark.parametrize("order", [list, lambda chain: chain[::-1], shuffled])
def test_the_work_grows_linearly_with_the_length_of_a_chain(
    order: Callable[[list[Group]], list[Group]], top: str | None
) -> None:
    """Users can make each group the parent of the next: adding, reading and removing all of them stays cheap."""

    def live(length: int) -> None:
        store = GroupStore("crd")
        names = [*map(str, range(length - 1)), "last"]
        chain: list[Group] = [composite("0", parent=top)]
        chain += [composite(name, parent=parent) for parent, name in pairwise(names)]
        for group in order(chain):
            store.put(group)
        assert len({store.anchor(key_of(group)) for group in chain}) == 1
        for group in order(chain):
            store.remove(key_of(group))

    assert count_calls(lambda: live(800)) < 2.6 * count_calls(lambda: live(400))
