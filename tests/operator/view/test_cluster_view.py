"""What is known, and which trees each piece of news concerns."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import PodStatus
from cpg_api.manifests import to_manifest
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Forest, GroupKey
from cpg_api.scheduling.names import FINALIZER, INSTANTIATE, INSTANTIATED
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_api.scheduling.statuses import PodCounts, TopologyDomain
from cpg_api.scheduling.workload import Workload, WorkloadStatus
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import CPG_POD_GROUPS, PODS, Resource
from cpg_client.stores import Added, Deleted, Modified, Rejection, Synced
from cpg_engine.testing.builders import (
    composite,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_operator.testing.fixtures import STAMP, ViewFixture, members, small_tree
from cpg_operator.view.cluster_view import labels_of, slim
from cpg_operator.writes import TreeKey, Verb, Write


@pytest.fixture
def ground() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def at(version: str, uid: str = "u", name: str = "a") -> ObjectMeta:
    """Return the metadata of a state of an object."""
    return replace(metadata(name), uid=uid, resource_version=version)


def names(ground: ViewFixture, group: str, flavour: str = CRD) -> list[str]:
    """Return the names of a group's members."""
    key = GroupKey(PodGroup.kind, "default", group)
    return [one.metadata.name for one in ground.view.members(flavour, key)]


def test_what_is_kept_of_a_pod_is_what_is_read() -> None:
    """Membership, node, phase and what a tree has in common; containers and other labels are left out."""
    found = pod("p", group="g", node_name="n1", priority=7, meta=metadata("p", app="x"))
    kept = slim(found)
    assert (kept.spec.node_name, kept.spec.priority, kept.status.phase) == ("n1", 7, "Running")
    assert kept.spec.containers is None
    assert kept.metadata.labels == {}
    assert slim(pod("p", group="g")).metadata.labels == {"scheduling.cpg.dev/pod-group": "g"}


def test_what_is_kept_of_a_node_is_its_labels() -> None:
    """What else changes at nodes is no news."""
    assert labels_of(node("n1", labels={"rack": "r1"})).metadata.labels["rack"] == "r1"


def test_a_group_marks_the_tree_that_it_comes_to_and_the_one_that_it_left(ground: ViewFixture) -> None:
    """A leaf that comes before its root is a tree of its own until then."""
    ground.put(pod_group("a", parent="root"))
    assert ground.taken() == {"root"}
    ground.put(pod_group("x", parent="a"), composite("a"))
    assert ground.taken() == {"a"}
    ground.put(composite("root"))
    assert "root" in ground.taken()
    ground.view.drop(CRD, composite("root"))
    assert ground.taken() == {"root"}
    assert not ground.view.drop(CRD, composite("root"))


def test_an_older_state_is_no_news(ground: ViewFixture) -> None:
    """Kopf and the sweep do not wait for each other."""
    newer = pod_group("a", gang=3, meta=at("10"))
    assert ground.view.put(CRD, newer)
    assert not ground.view.put(CRD, pod_group("a", gang=1, meta=at("9")))
    assert not ground.view.put(CRD, newer)
    assert ground.view.put(CRD, pod_group("a", gang=2, meta=at("11")))
    assert not ground.view.put(CRD, pod_group("a", gang=2, meta=at("opaque"))) or ground.taken()


def written(verb: Verb = Verb.APPLY_STATUS, resource: Resource = CPG_POD_GROUPS, **body: Any) -> Write:
    """Return a write of ours to a group."""
    return Write(verb=verb, resource=resource, target=at("10"), part="x", body=body)


def test_an_answer_to_a_write_of_ours_is_known_and_nearly_always_no_news(ground: ViewFixture) -> None:
    """Somebody else's part in it is; and so is nothing of what has gone, or made room for a namesake, since."""
    before = pod_group("a", gang=3, meta=at("10"))
    ground.put(before)
    ground.taken()

    def answered(found: PodGroup) -> bool:
        write = written(**{key: getattr(found.status, key) for key in ("conditions", "pods")})
        return ground.view.answered(CRD, write, msgspec.json.encode(to_manifest(found)))

    healthy = Condition(type="Healthy", status="True", reason="MinimumMet", last_transition_time=STAMP)
    ours = replace(before, status=PodGroupStatus(conditions=(healthy,), pods=PodCounts(desired=1)))
    meta = replace(at("11"), finalizers=(FINALIZER,))
    assert not answered(replace(ours, metadata=meta))
    assert ground.taken() == set()
    assert ground.view.knows(CRD, PodGroup, msgspec.to_builtins(meta))
    assert not ground.view.knows(CRD, PodGroup, msgspec.to_builtins(at("10")))
    assert not ground.view.knows(CRD, Workload, msgspec.to_builtins(meta))
    assert answered(replace(ours, metadata=replace(at("12"), labels={"x": "y"})))
    partial = replace(healthy, type="Partial")
    assert answered(replace(ours, metadata=at("13"), status=PodGroupStatus(conditions=(partial,))))
    assert not answered(replace(ours, metadata=at("14", uid="other")))
    ground.view.drop(CRD, replace(ours, metadata=at("15")))
    ground.taken()
    assert not answered(replace(ours, metadata=at("15")))
    ground.view.answered(CRD, written(resource=PODS), b"{}")
    ground.view.answered(CRD, written(), b'{"spec": 7}')
    assert ground.view.known(CRD, PodGroup) == {}


def test_what_others_changed_is_seen_in_an_answer_by_all_whom_it_concerns(ground: ViewFixture) -> None:
    """The tree, and the Workload that keeps its groups as its templates say: the watch will bring nothing newer."""
    source = workload([leaf_template("t")])
    marked = replace(source, metadata=replace(source.metadata, annotations={INSTANTIATE: "true"}))
    before = pod_group("a", gang=3, meta=at("10"), workload="w", template="t")
    ground.view.put(CRD, marked)
    ground.put(before)
    ground.taken()
    resized = pod_group("a", gang=9, meta=at("12"), workload="w", template="t")
    assert ground.view.answered(CRD, written(pods={"desired": 1}), msgspec.json.encode(to_manifest(resized)))
    assert {key.anchor.kind for key in ground.marked} == {"PodGroup", "Workload"}


def test_an_answer_in_which_others_have_written_what_is_ours_is_news(ground: ViewFixture) -> None:
    """The watch's word of it will be none: that is older than what was answered."""
    one, wrong = PodCounts(desired=1), TopologyDomain(key="rack", value="wrong")
    group = pod_group("a", gang=3, meta=at("10"))
    ground.put(group)
    for version, write, pods, domain, is_news in (
        ("11", written(pods={"desired": 1}), one, None, False),
        ("12", written(Verb.MERGE, metadata={}), one, None, False),
        ("13", replace(written(conditions=[]), manager="cpg-operator-validation"), one, None, False),
        ("14", written(pods={"desired": 1}), one, wrong, True),
        ("15", written(Verb.MERGE, metadata={}), PodCounts(desired=7), wrong, True),
        ("16", replace(written(conditions=[]), manager="cpg-operator-validation"), one, wrong, True),
    ):
        found = replace(group, metadata=at(version), status=PodGroupStatus(pods=pods, domain=domain))
        assert ground.view.answered(CRD, write, msgspec.json.encode(to_manifest(found))) is is_news, version


def test_what_a_write_has_not_found_is_forgotten(ground: ViewFixture) -> None:
    """With it goes what it held; a namesake, or what no view has, is nobody's loss."""
    ground.put(composite("root"), pod_group("a", parent="root", meta=at("10")))
    ground.taken()
    ground.view.missed(CRD, CPG_POD_GROUPS, at("10", uid="other"))
    ground.view.missed(CRD, CPG_POD_GROUPS, at("10", name="b"))
    ground.view.missed(CRD, PODS, at("10"))
    assert ground.taken() == set()
    ground.view.missed(CRD, CPG_POD_GROUPS, at("10"))
    assert ground.taken() == {"root"}
    assert ground.view.known(CRD, PodGroup) == {}


def test_a_namesake_is_another_object(ground: ViewFixture) -> None:
    """It takes the place whatever its version, and the end of the former does not end it."""
    ground.put(pod_group("a", meta=at("10", uid="old")))
    assert ground.view.put(CRD, pod_group("a", meta=at("9", uid="new")))
    assert not ground.view.drop(CRD, pod_group("a", meta=at("10", uid="old")))
    assert list(ground.view.known(CRD, PodGroup)) == ["new"]
    assert ground.view.drop(CRD, pod_group("a", meta=at("9", uid="new")))
    assert ground.view.known(CRD, PodGroup) == {}


def test_a_workload_marks_the_trees_that_are_made_from_it(ground: ViewFixture) -> None:
    """When it comes, changes and goes."""
    ground.put(*small_tree())
    ground.taken()
    found = workload([leaf_template("a")])
    assert ground.view.put(CRD, found)
    assert "root" in ground.taken()
    assert list(ground.view.known(CRD, Workload)) == [found.metadata.uid]
    assert not ground.view.put(CRD, found)
    assert not ground.view.drop(CRD, replace(found, metadata=replace(found.metadata, uid="other")))
    assert ground.view.drop(CRD, found)
    assert not ground.view.drop(CRD, found)
    assert "root" in ground.taken()


def test_pods_come_change_and_go(ground: ViewFixture) -> None:
    """Each time the tree of their group is marked; a pod that belongs to none marks nothing."""
    ground.put(*small_tree())
    (first, second) = members("a", 2)
    ground.taken()
    ground.pods(first, second, pod("alone"))
    assert ground.taken() == {"root"}
    assert names(ground, "a") == ["a-0", "a-1"]
    changed = replace(first, status=PodStatus(phase="Failed"))
    ground.view.on_pod(Modified(first.metadata.key, first, changed))
    assert ground.taken() == {"root"}
    ground.gone(changed, second)
    assert (names(ground, "a"), ground.taken()) == ([], {"root"})
    ground.gone(second)
    ground.view.on_pod(Rejection("default/x", ()))
    ground.view.on_pod(Synced())
    assert names(ground, "a") == []


def test_pods_may_come_before_their_group(ground: ViewFixture) -> None:
    """They are members as soon as it is there."""
    ground.pods(*members("a", 1))
    assert ground.taken() == {"a"}
    ground.put(*small_tree())
    assert names(ground, "a") == ["a-0"]


def test_a_pod_changes_sides_with_the_group_of_its_name(ground: ViewFixture) -> None:
    """The first flavour that has the group has the pods; both trees are marked."""
    ground.put(pod_group("a"))
    ground.pods(*members("a", 1))
    assert (names(ground, "a", CRD), names(ground, "a", NATIVE)) == (["a-0"], [])
    ground.marked.clear()
    ground.put(pod_group("a"), flavour=NATIVE)
    assert (names(ground, "a", CRD), names(ground, "a", NATIVE)) == ([], ["a-0"])
    assert {key.flavour for key in ground.marked} == {CRD, NATIVE}


def test_what_we_say_of_a_workload_is_no_news(ground: ViewFixture) -> None:
    """Else each refusal in other words would have it tried again at once; what somebody else changes is news."""
    source = workload([leaf_template("leaf")])

    def at(version: str, **more: Any) -> Workload:
        return replace(source, metadata=replace(source.metadata, resource_version=version, **more))

    def answered(found: Workload) -> bool:
        write = Write(verb=Verb.APPLY_STATUS, resource=KINDS[CRD][Workload], target=source.metadata, part="i")
        return ground.view.answered(CRD, write, msgspec.json.encode(to_manifest(found)))

    ground.view.put(CRD, at("1"))
    ground.marked.clear()
    said = WorkloadStatus(conditions=(Condition(type="Instantiated", status="False", reason="Refused"),))
    assert not answered(replace(at("2"), status=said))
    assert not answered(at("3", annotations={INSTANTIATED: "False"}))
    assert ground.marked == []
    assert answered(at("4", annotations={INSTANTIATE: "true"}))
    assert ground.marked
    assert ground.view.workloads[CRD]["default", "w"].metadata.resource_version == "4"


def test_nodes_concern_those_who_have_pods_there(ground: ViewFixture) -> None:
    """Labels may change in place, or with a node that is registered anew before its pods have gone."""
    ground.put(*small_tree(), pod_group("other"))
    ground.pods(*members("a", 2, node="n1"), *members("other", 1, node="n2"))
    ground.taken()
    before, after = node("n1", labels={"rack": "r1"}), node("n1", labels={"rack": "r2"})
    for change in (Added("n1", before), Modified("n1", before, after), Deleted("n1", after), Added("n1", before)):
        ground.view.on_node(change)
        assert ground.taken() == {"root"}
    assert ground.view.labels["n1"]["rack"] == "r1"
    ground.gone(*members("a", 1))
    ground.taken()
    ground.view.on_node(Modified("n1", before, after))
    assert ground.taken() == {"root"}
    ground.gone(*members("a", 2))
    ground.taken()
    ground.view.on_node(Deleted("n1", after))
    ground.view.on_node(Synced())
    assert ground.taken() == set()
    assert ground.view.labels == {}


def test_classes_concern_those_without_a_number(ground: ViewFixture) -> None:
    """What is resolved stays resolved, and has to agree with the class that it names."""
    ground.put(composite("resolved", priority=5), composite("open", priority=None))
    named = composite("named", priority=5)
    ground.put(replace(named, spec=replace(named.spec, priority_class_name="high")))
    ground.taken()
    high = priority_class("high", 9)
    ground.view.on_class(Added("high", high))
    assert ground.taken() == {"open", "named"}
    assert ground.view.classes.resolve("high", None) == 9
    ground.view.on_class(Deleted("high", high))
    ground.view.on_class(Synced())
    assert ground.view.classes.resolve("high", None) is None


def test_a_tree_is_known_by_its_anchor_of_now(ground: ViewFixture) -> None:
    """A key from before its root came leads to the root's tree."""
    key = TreeKey(CRD, GroupKey(PodGroup.kind, "default", "a"))
    ground.put(pod_group("a", parent="root"), composite("root"))
    assert ground.view.anchored(key).anchor == GroupKey(CompositePodGroup.kind, "default", "root")
    assert [one.key.name for one in ground.view.tree(key).nodes] == ["root", "a"]
    assert ground.view.trees() == {CRD: 1, NATIVE: 0}


def test_no_news_of_a_long_chain_climbs_all_of_it(ground: ViewFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ways up have led is remembered, and a forest, which would climb step by step, is not asked."""
    monkeypatch.delattr(Forest, "anchor_of")
    chain = [composite(f"{number}", parent=f"{number - 1}" if number else None) for number in range(50)]
    ground.put(*chain, pod_group("leaf", parent="49"))
    ground.pods(*members("leaf", 1))
    assert ground.taken() == {"0"}
    for group in chain[::-1]:
        ground.view.drop(CRD, group)
    assert ground.view.trees() == {CRD: 1, NATIVE: 0}


def test_a_namespace_that_has_been_read_wakes_its_trees() -> None:
    """And its Workloads, once; without a list of namespaces, there is none to wait for."""
    ground = ViewFixture("default", "other")
    ground.put(*small_tree(), pod_group("c", meta=metadata("c", namespace="other")))
    ground.view.put(CRD, workload([leaf_template("t")], name="w"))
    ground.marked.clear()
    assert ground.view.is_unread("default")
    ground.read()
    assert {(key.anchor.kind, key.anchor.name) for key in ground.marked} == {
        ("CompositePodGroup", "root"),
        ("Workload", "w"),
    }
    assert [ground.view.is_unread(name) for name in ("default", "other")] == [False, True]
    ground.marked.clear()
    ground.read()
    assert not ground.marked
    assert not ViewFixture().view.is_unread("default")
