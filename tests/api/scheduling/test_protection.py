"""When the finalizer of a group is added and removed, alone and in trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.scheduling.forest import Forest, Group
from cpg_api.scheduling.names import FINALIZER
from cpg_api.scheduling.protection import desired_finalizers, is_held_by_children, names_group, needs_our_finalizer
from cpg_engine.testing.builders import composite, metadata, pod, pod_group

OTHER = "example.com/hold"
LATER = "2026-01-01T00:00:01Z"


def group(*finalizers: str, deleting: bool = False, kind: str = "PodGroup") -> Group:
    """Return a group with these finalizers."""
    meta = replace(metadata("g"), finalizers=finalizers, deletion_timestamp=LATER if deleting else None)
    return pod_group("g", meta=meta) if kind == "PodGroup" else composite("g", meta=meta)


@pytest.mark.parametrize("kind", ["PodGroup", "CompositePodGroup"])
@pytest.mark.parametrize("is_held", [False, True])
def test_every_group_of_ours_gets_the_finalizer_once(kind: str, is_held: bool) -> None:  # noqa: FBT001
    """It is added after those of others."""
    assert desired_finalizers(group(kind=kind), native=False, held=is_held) == (FINALIZER,)
    assert desired_finalizers(group(OTHER, kind=kind), native=False, held=is_held) == (OTHER, FINALIZER)
    assert desired_finalizers(group(FINALIZER, OTHER, kind=kind), native=False, held=is_held) is None


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", ["PodGroup", "CompositePodGroup"])
def test_a_deleted_group_loses_our_finalizer_when_nothing_holds_it(kind: str, native: bool) -> None:  # noqa: FBT001
    """Until then it keeps it. Finalizers of others always stay."""
    leaving = group(OTHER, FINALIZER, deleting=True, kind=kind)
    assert desired_finalizers(leaving, native=native, held=True) is None
    assert desired_finalizers(leaving, native=native, held=False) == (OTHER,)


@pytest.mark.parametrize("is_held", [False, True])
def test_no_finalizer_is_added_to_a_group_that_is_being_deleted(is_held: bool) -> None:  # noqa: FBT001
    """The API server would refuse it."""
    assert desired_finalizers(group(deleting=True), native=False, held=is_held) is None
    assert desired_finalizers(group(OTHER, deleting=True), native=False, held=is_held) is None


def test_of_native_groups_only_composite_ones_get_our_finalizer() -> None:
    """Kubernetes protects its PodGroups itself."""
    assert [needs_our_finalizer(one, native=True) for one in (composite("c"), pod_group("p"))] == [True, False]
    assert [needs_our_finalizer(one, native=False) for one in (composite("c"), pod_group("p"))] == [True, True]
    assert desired_finalizers(group(), native=True, held=False) is None


def held_groups(*groups: Group) -> dict[str, bool]:
    """Return for each group whether a child holds it."""
    return {node.key.name: is_held_by_children(tree, node) for tree in Forest.of(groups).trees() for node in tree.nodes}


def test_children_hold_their_parent_while_they_exist() -> None:
    """Also children that are being deleted, and in trees without a root."""
    leaving = replace(metadata("leaf"), deletion_timestamp=LATER)
    below: list[Group] = [composite("mid", parent="root"), pod_group("leaf", parent="mid", meta=leaving)]
    assert held_groups(composite("root"), *below) == {"root": True, "mid": True, "leaf": False}
    assert held_groups(*below) == {"mid": True, "leaf": False}


def test_a_cycle_can_be_deleted() -> None:
    """Its members do not hold each other; a child outside of the cycle holds its parent."""
    cycle = [composite("a", parent="b"), composite("b", parent="c"), composite("c", parent="a")]
    assert held_groups(*cycle) == {"a": False, "b": False, "c": False}
    assert held_groups(*cycle, pod_group("leaf", parent="b")) == {"a": False, "b": True, "c": False, "leaf": False}
    assert held_groups(composite("self", parent="self")) == {"self": False}


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_every_forest_can_be_deleted(parents: list[int]) -> None:
    """Removing unheld groups again and again leaves none, for trees, cycles and orphans."""
    groups = {f"g{number}": composite(f"g{number}", parent=f"g{above}") for number, above in enumerate(parents)}
    while groups:
        free = [name for name, is_held in held_groups(*groups.values()).items() if not is_held]
        assert free
        for name in free:
            del groups[name]


def test_only_pods_that_name_their_group_hold_it() -> None:
    """A group that follows from an owner is not named."""
    assert names_group(pod("p", group="g"))
    assert not names_group(replace(pod("p"), derived_group="g"))
