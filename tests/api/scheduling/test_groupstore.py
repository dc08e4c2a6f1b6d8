"""The groups of one flavour."""

from hypothesis import given
from hypothesis import strategies as st

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_engine.testing.builders import composite, pod_group


def key(name: str, kind: str = "CompositePodGroup") -> GroupKey:
    """Return a group's key."""
    return GroupKey(kind, "default", name)


LEAF = key("leaf", "PodGroup")


def test_a_group_that_comes_touches_the_tree_that_waited_for_it() -> None:
    """Both what hung on it as missing, and what it hangs on itself."""
    store = GroupStore("crd")
    assert store.put(pod_group("leaf", parent="mid")) == {LEAF, key("mid")}
    assert store.put(composite("mid", parent="top")) == {key("mid"), key("top")}
    assert store.put(composite("top")) == {key("top")}
    assert store.anchor(LEAF) == key("top")


def test_a_group_that_goes_touches_what_is_left_on_both_sides() -> None:
    """The tree that it was part of, and that which waits for it now."""
    store = GroupStore("crd")
    for group in (composite("top"), composite("mid", parent="top"), pod_group("leaf", parent="mid")):
        store.put(group)
    assert store.remove(key("mid")) == {key("top"), key("mid")}
    assert store.anchor(LEAF) == key("mid")
    assert store.remove(key("mid")) == set()


def test_a_group_that_moves_touches_both_trees() -> None:
    """An API server does not let that happen, but a store that missed a deletion sees it."""
    store = GroupStore("crd")
    for group in (composite("one"), composite("two"), pod_group("leaf", parent="one")):
        store.put(group)
    assert store.put(pod_group("leaf", parent="two")) == {key("one"), key("two")}


def test_a_cycle_is_touched_by_its_smallest_key() -> None:
    """It is the anchor of all that hangs on it; when it is broken, so is what is left."""
    store = GroupStore("crd")
    store.put(composite("a", parent="b"))
    assert store.put(composite("b", parent="a")) == {key("b"), key("a")}
    assert store.remove(key("b")) == {key("a"), key("b")}


def test_groups_are_found_by_their_workload() -> None:
    """As long as they are there and name it."""
    store = GroupStore("crd")
    store.put(pod_group("leaf", parent="mid", workload="w1"))
    store.put(composite("mid", workload="w2"))
    store.put(pod_group("flat"))
    assert set(store.made_from("default", "w1")) == {LEAF}
    store.put(pod_group("leaf", parent="mid", workload="w2"))
    assert set(store.made_from("default", "w2")) == {LEAF, key("mid")}
    assert store.made_from("default", "w1") == ()
    assert store.made_from("other", "w2") == ()


def test_a_namesake_of_another_flavour_is_not_held() -> None:
    """An object is known by its UID."""
    one, other = GroupStore("crd"), GroupStore("native")
    group = pod_group("leaf")
    one.put(group)
    assert one.holds(group)
    assert not other.holds(group)
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
def test_every_tree_that_changes_is_touched(news: list[Group | str]) -> None:
    """Whatever comes and goes: who has another tree than before is named, before or after, by its anchor."""
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
