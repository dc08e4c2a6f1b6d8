"""The step that adds and removes finalizers."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus, SchedulingGroup
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.names import FINALIZER
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.stores import Added
from cpg_engine.testing.builders import composite, metadata, pod, pod_group
from cpg_operator.context import build_context
from cpg_operator.steps.finalizers import update_finalizers
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.writes import TreeKey, Verb, Write

LATER = "2026-01-01T00:00:01Z"


def terminating(group: Group) -> Group:
    """Return a protected group that is being deleted."""
    return replace(group, metadata=replace(group.metadata, finalizers=(FINALIZER,), deletion_timestamp=LATER))


def writes(*objects: Group | Pod, flavour: str = CRD) -> dict[str, list[str]]:
    """Return the finalizers that are written to each group in the tree of the first object."""
    view = ClusterView({flavour: KINDS[flavour]}, RecordingQueue())
    for one in objects:
        if isinstance(one, Pod):
            view.on_pod(Added(one.metadata.key, one))
        else:
            view.put(flavour, one)
    first = objects[0]
    assert not isinstance(first, Pod)
    key = view.current_key(TreeKey(flavour, key_of(first)))
    result = update_finalizers(
        build_context(
            view, key, now=0.0, timestamp="", seconds_since=float, partial_after=1.0, scheduler_names=frozenset()
        )
    )
    assert all(write.verb is Verb.MERGE and write.unchanged for write in result.writes)
    return {write.target.name: finalizers(write) for write in result.writes}


def finalizers(write: Write) -> list[str]:
    """Return the finalizers in a write."""
    found: list[str] = write.body["metadata"]["finalizers"]
    return found


def member(phase: str) -> Pod:
    """Return a pod of group ``leaf``."""
    return replace(pod("p", group="leaf"), status=PodStatus(phase=phase))


def test_a_whole_tree_gets_its_finalizers_at_once() -> None:
    """Also a tree that was created while the operator was down."""
    tree = (composite("root"), composite("mid", parent="root"), pod_group("leaf", parent="mid"))
    assert writes(*tree) == {"root": [FINALIZER], "mid": [FINALIZER], "leaf": [FINALIZER]}
    assert writes(composite("root"), pod_group("leaf", parent="root"), flavour=NATIVE) == {"root": [FINALIZER]}


@pytest.mark.parametrize(
    ("phase", "released"), [("", False), ("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_holds_its_group_until_it_has_ended(phase: str, released: bool) -> None:  # noqa: FBT001
    """Whether it was placed or not; a group without pods is released."""
    leaf = terminating(pod_group("leaf"))
    assert writes(leaf, member(phase)) == ({"leaf": []} if released else {})
    assert writes(leaf) == {"leaf": []}
    assert writes(leaf, pod("other", group="other", node_name="n"), pod("alone")) == {"leaf": []}


def test_a_pod_that_derives_its_group_does_not_hold_it() -> None:
    """It may be a pod of the next owner of that name, whose own groups wait until these are gone."""
    derived = replace(pod("p"), derived_group="leaf")
    assert writes(terminating(pod_group("leaf")), derived) == {"leaf": []}
    labelled = replace(pod("q", group="leaf"), derived_group="leaf")
    assert writes(terminating(pod_group("leaf")), derived, labelled) == {}


def test_a_member_by_annotation_or_native_field_holds_its_group() -> None:
    """Every way to name a group counts."""
    by_field = pod("p", scheduling_group=SchedulingGroup(pod_group_name="leaf"))
    by_annotation = pod("p", meta=replace(metadata("p"), annotations={"scheduling.cpg.dev/pod-group": "leaf"}))
    for one in (by_field, by_annotation):
        assert writes(terminating(pod_group("leaf")), one) == {}


def test_a_tree_is_released_from_its_leaves_to_its_root() -> None:
    """Only a group with nothing below it loses its finalizer; the next reconcile releases the next level."""
    root, mid, leaf = (
        terminating(one)
        for one in (composite("root"), composite("mid", parent="root"), pod_group("leaf", parent="mid"))
    )
    assert writes(root, mid, leaf, member("Running")) == {}
    assert writes(root, mid, leaf) == {"leaf": []}
    assert writes(root, mid) == {"mid": []}
    assert writes(root) == {"root": []}
    assert writes(mid, leaf) == {"leaf": []}


def test_a_deleted_cycle_is_released() -> None:
    """Otherwise each group would hold the other for ever."""
    assert writes(*(terminating(composite(one, parent=above)) for one, above in (("a", "b"), ("b", "a")))) == {
        "a": [],
        "b": [],
    }


def test_a_native_podgroup_gets_no_finalizer_of_ours() -> None:
    """Kubernetes protects it. A finalizer of ours that a user has added is removed as from all other groups."""
    assert writes(pod_group("leaf"), flavour=NATIVE) == {}
    assert writes(terminating(pod_group("leaf")), flavour=NATIVE) == {"leaf": []}
