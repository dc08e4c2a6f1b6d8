"""The view: what it knows, and which trees each change adds to the work queue."""

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
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
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
    reference,
    workload,
)
from cpg_operator.testing.fixtures import TIMESTAMP, ViewFixture, members, small_tree
from cpg_operator.writes import TreeKey, Verb, Write


@pytest.fixture
def fixture() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def at(version: str, uid: str = "u", name: str = "a") -> ObjectMeta:
    """Return the metadata of one version of an object."""
    return replace(metadata(name), uid=uid, resource_version=version)


def names(fixture: ViewFixture, group: str, flavour: str = CRD) -> list[str]:
    """Return the names of a group's members."""
    key = GroupKey(PodGroup.kind, "default", group)
    return [one.metadata.name for one in fixture.view.members(flavour, key)]


def test_a_group_adds_the_tree_that_it_joins_and_the_one_that_it_left(fixture: ViewFixture) -> None:
    """A leaf that is created before its root is a tree of its own until then."""
    fixture.put(pod_group("a", parent="root"))
    assert fixture.take_queued() == {"root"}
    fixture.put(pod_group("x", parent="a"), composite("a"))
    assert fixture.take_queued() == {"a"}
    fixture.put(composite("root"))
    assert "root" in fixture.take_queued()
    fixture.view.remove(CRD, composite("root"))
    assert fixture.take_queued() == {"root"}
    assert not fixture.view.remove(CRD, composite("root"))


def test_an_older_version_is_ignored(fixture: ViewFixture) -> None:
    """Kopf's events and the sweep arrive in any order."""
    newer = pod_group("a", gang=3, meta=at("10"))
    assert fixture.view.put(CRD, newer)
    assert not fixture.view.put(CRD, pod_group("a", gang=1, meta=at("9")))
    assert not fixture.view.put(CRD, newer)
    assert fixture.view.put(CRD, pod_group("a", gang=2, meta=at("11")))
    assert not fixture.view.put(CRD, pod_group("a", gang=2, meta=at("opaque"))) or fixture.take_queued()


def written(verb: Verb = Verb.APPLY_STATUS, resource: Resource = CPG_POD_GROUPS, **body: Any) -> Write:
    """Return a write of ours to a group."""
    return Write(verb=verb, resource=resource, target=at("10"), part="x", body=body)


def test_the_answer_to_a_write_of_ours_adds_no_tree(fixture: ViewFixture) -> None:
    """Unless it shows another manager's change; the answer about an object that was deleted since is ignored."""
    before = pod_group("a", gang=3, meta=at("10"))
    fixture.put(before)
    fixture.take_queued()

    def take(found: PodGroup) -> bool:
        write = written(**{key: getattr(found.status, key) for key in ("conditions", "pods")})
        return fixture.view.take_answer(CRD, write, msgspec.json.encode(to_manifest(found)))

    healthy = Condition(type="Healthy", status="True", reason="MinimumMet", last_transition_time=TIMESTAMP)
    ours = replace(before, status=PodGroupStatus(conditions=(healthy,), pods=PodCounts(desired=1)))
    meta = replace(at("11"), finalizers=(FINALIZER,))
    assert not take(replace(ours, metadata=meta))
    assert fixture.take_queued() == set()
    assert fixture.view.has_version(CRD, PodGroup, msgspec.to_builtins(meta))
    assert not fixture.view.has_version(CRD, PodGroup, msgspec.to_builtins(at("10")))
    assert not fixture.view.has_version(CRD, Workload, msgspec.to_builtins(meta))
    assert take(replace(ours, metadata=replace(at("12"), annotations={RELEASE_ANNOTATION: "1m"})))
    partial = replace(healthy, type="Partial")
    assert take(replace(ours, metadata=at("13"), status=PodGroupStatus(conditions=(partial,))))
    assert not take(replace(ours, metadata=at("14", uid="other")))
    fixture.view.remove(CRD, replace(ours, metadata=at("15")))
    fixture.take_queued()
    assert not take(replace(ours, metadata=at("15")))
    fixture.view.take_answer(CRD, written(resource=PODS), b"{}")
    fixture.view.take_answer(CRD, written(), b'{"spec": 7}')
    assert fixture.view.by_uid(CRD, PodGroup) == {}


def test_a_foreign_change_in_an_answer_adds_the_tree_and_its_workload(fixture: ViewFixture) -> None:
    """The watch will bring nothing newer, and the Workload restores what its templates say."""
    source = workload([leaf_template("t")])
    marked = replace(source, metadata=replace(source.metadata, annotations={INSTANTIATE: "true"}))
    before = pod_group("a", gang=3, meta=at("10"), workload="w", template="t")
    fixture.view.put(CRD, marked)
    fixture.put(before)
    fixture.take_queued()
    resized = pod_group("a", gang=9, meta=at("12"), workload="w", template="t")
    assert fixture.view.take_answer(CRD, written(pods={"desired": 1}), msgspec.json.encode(to_manifest(resized)))
    assert {key.anchor.kind for key in fixture.queue.added} == {"PodGroup", "Workload"}


def test_an_answer_with_a_foreign_value_in_our_status_is_reconciled_again(fixture: ViewFixture) -> None:
    """The watch's event about it counts as known: it is not newer than the answer."""
    one, wrong = PodCounts(desired=1), TopologyDomain(key="rack", value="wrong")
    group = pod_group("a", gang=3, meta=at("10"))
    fixture.put(group)
    for version, write, pods, domain, is_reconciled in (
        ("11", written(pods={"desired": 1}), one, None, False),
        ("12", written(Verb.MERGE, metadata={}), one, None, False),
        ("13", replace(written(conditions=[]), manager="cpg-operator-validation"), one, None, False),
        ("14", written(pods={"desired": 1}), one, wrong, True),
        ("15", written(Verb.MERGE, metadata={}), PodCounts(desired=7), wrong, True),
        ("16", replace(written(conditions=[]), manager="cpg-operator-validation"), one, wrong, True),
    ):
        found = replace(group, metadata=at(version), status=PodGroupStatus(pods=pods, domain=domain))
        assert fixture.view.take_answer(CRD, write, msgspec.json.encode(to_manifest(found))) is is_reconciled, version


def test_an_object_that_a_write_has_not_found_is_forgotten(fixture: ViewFixture) -> None:
    """Its tree is added; another object of its name, or an unknown one, stays."""
    fixture.put(composite("root"), pod_group("a", parent="root", meta=at("10")))
    fixture.take_queued()
    fixture.view.forget_missing(CRD, CPG_POD_GROUPS, at("10", uid="other"))
    fixture.view.forget_missing(CRD, CPG_POD_GROUPS, at("10", name="b"))
    fixture.view.forget_missing(CRD, PODS, at("10"))
    assert fixture.take_queued() == set()
    fixture.view.forget_missing(CRD, CPG_POD_GROUPS, at("10"))
    assert fixture.take_queued() == {"root"}
    assert fixture.view.by_uid(CRD, PodGroup) == {}


def test_a_new_object_of_the_same_name_is_another_object(fixture: ViewFixture) -> None:
    """It replaces the former whatever its version, and a late deletion of the former does not remove it."""
    fixture.put(pod_group("a", meta=at("10", uid="old")))
    assert fixture.view.put(CRD, pod_group("a", meta=at("9", uid="new")))
    assert not fixture.view.remove(CRD, pod_group("a", meta=at("10", uid="old")))
    assert list(fixture.view.by_uid(CRD, PodGroup)) == ["new"]
    assert fixture.view.remove(CRD, pod_group("a", meta=at("9", uid="new")))
    assert fixture.view.by_uid(CRD, PodGroup) == {}


def test_a_workload_adds_the_trees_that_are_made_from_it(fixture: ViewFixture) -> None:
    """When it is created, and when it is deleted."""
    fixture.put(*small_tree())
    fixture.take_queued()
    found = workload([leaf_template("a")])
    assert fixture.view.put(CRD, found)
    assert "root" in fixture.take_queued()
    assert list(fixture.view.by_uid(CRD, Workload)) == [found.metadata.uid]
    assert not fixture.view.put(CRD, found)
    assert not fixture.view.remove(CRD, replace(found, metadata=replace(found.metadata, uid="other")))
    assert fixture.view.remove(CRD, found)
    assert not fixture.view.remove(CRD, found)
    assert "root" in fixture.take_queued()


def test_changes_of_pods_add_the_tree_of_their_group(fixture: ViewFixture) -> None:
    """Paced, because they come in streams; a pod without a group adds nothing."""
    fixture.put(*small_tree())
    (first, second) = members("a", 2)
    fixture.take_queued()
    fixture.add_pods(first, second, pod("alone"))
    assert fixture.take_queued() == {"root"}
    assert names(fixture, "a") == ["a-0", "a-1"]
    changed = replace(first, status=PodStatus(phase="Failed"))
    fixture.view.on_pod(Modified(first.metadata.key, first, changed))
    assert fixture.take_queued() == {"root"}
    fixture.remove_pods(changed, second)
    assert (names(fixture, "a"), fixture.take_queued()) == ([], {"root"})
    fixture.remove_pods(second)
    fixture.view.on_pod(Rejection("default/x", ()))
    fixture.view.on_pod(Synced())
    assert names(fixture, "a") == []


def test_pods_may_be_created_before_their_group(fixture: ViewFixture) -> None:
    """They are its members from its creation on."""
    fixture.add_pods(*members("a", 1))
    assert fixture.take_queued() == {"a"}
    fixture.put(*small_tree())
    assert names(fixture, "a") == ["a-0"]


def test_pods_belong_to_the_first_flavour_that_has_their_group(fixture: ViewFixture) -> None:
    """Where a group of the name appears in another flavour, both trees are added."""
    fixture.put(pod_group("a"))
    fixture.add_pods(*members("a", 1))
    assert (names(fixture, "a", CRD), names(fixture, "a", NATIVE)) == (["a-0"], [])
    fixture.queue.added.clear()
    fixture.put(pod_group("a"), flavour=NATIVE)
    assert (names(fixture, "a", CRD), names(fixture, "a", NATIVE)) == ([], ["a-0"])
    assert {key.flavour for key in fixture.queue.added} == {CRD, NATIVE}


def test_a_workload_that_means_the_same_adds_no_trees(fixture: ViewFixture) -> None:
    """Thousands of groups may name it; its labels say nothing about them, its templates and its annotation do."""
    source = workload([leaf_template("t")])
    made = pod_group("made")
    fixture.put(source, replace(made, spec=replace(made.spec, workload_ref=reference("w", "t"))))
    fixture.take_queued()
    labelled = replace(source.metadata, labels={"a": "b"}, resource_version="2")
    fixture.put(replace(source, metadata=labelled))
    assert fixture.take_queued() == set()
    annotated = replace(source.metadata, annotations={INSTANTIATE: "true"}, resource_version="3")
    fixture.put(replace(source, metadata=annotated))
    assert fixture.take_queued() == {"made"}
    changed = workload([replace(leaf_template("t"), priority=5)])
    fixture.put(replace(changed, metadata=replace(annotated, resource_version="4")))
    assert fixture.take_queued() == {"made"}


def test_our_own_report_on_a_workload_adds_nothing(fixture: ViewFixture) -> None:
    """Otherwise each refusal with another message would be tried again at once; a user's change is added."""
    source = workload([leaf_template("leaf")])

    def at(version: str, **more: Any) -> Workload:
        return replace(source, metadata=replace(source.metadata, resource_version=version, **more))

    def take(found: Workload) -> bool:
        write = Write(verb=Verb.APPLY_STATUS, resource=KINDS[CRD][Workload], target=source.metadata, part="i")
        return fixture.view.take_answer(CRD, write, msgspec.json.encode(to_manifest(found)))

    fixture.view.put(CRD, at("1"))
    fixture.queue.added.clear()
    report = WorkloadStatus(conditions=(Condition(type="Instantiated", status="False", reason="Refused"),))
    assert not take(replace(at("2"), status=report))
    assert not take(at("3", annotations={INSTANTIATED: "False"}))
    assert fixture.queue.added == []
    assert take(at("4", annotations={INSTANTIATE: "true"}))
    assert fixture.queue.added
    assert fixture.view.workloads(CRD)["default", "w"].metadata.resource_version == "4"


def test_a_node_adds_the_trees_that_have_pods_on_it(fixture: ViewFixture) -> None:
    """Labels change in place, or with a node that is registered again before its pods are deleted."""
    fixture.put(*small_tree(), pod_group("other"))
    fixture.add_pods(*members("a", 2, node="n1"), *members("other", 1, node="n2"))
    fixture.take_queued()
    before, after = node("n1", labels={"rack": "r1"}), node("n1", labels={"rack": "r2"})
    for change in (Added("n1", before), Modified("n1", before, after), Deleted("n1", after), Added("n1", before)):
        fixture.view.on_node(change)
        assert fixture.take_queued() == {"root"}
    assert fixture.view.labels["n1"]["rack"] == "r1"
    fixture.remove_pods(*members("a", 1))
    fixture.take_queued()
    fixture.view.on_node(Modified("n1", before, after))
    assert fixture.take_queued() == {"root"}
    fixture.remove_pods(*members("a", 2))
    fixture.take_queued()
    fixture.view.on_node(Deleted("n1", after))
    fixture.view.on_node(Synced())
    assert fixture.take_queued() == set()
    assert fixture.view.labels == {}


def test_a_class_adds_trees_without_a_priority_and_those_that_name_it(fixture: ViewFixture) -> None:
    """A resolved priority stays, and has to agree with the class that it names."""
    fixture.put(composite("resolved", priority=5), composite("open", priority=None))
    named = composite("named", priority=5)
    fixture.put(replace(named, spec=replace(named.spec, priority_class_name="high")))
    fixture.take_queued()
    high = priority_class("high", 9)
    fixture.view.on_class(Added("high", high))
    assert fixture.take_queued() == {"open", "named"}
    assert fixture.view.classes.resolve("high", None) == 9
    fixture.view.on_class(Deleted("high", high))
    fixture.view.on_class(Synced())
    assert fixture.view.classes.resolve("high", None) is None


def test_a_former_key_leads_to_the_present_tree(fixture: ViewFixture) -> None:
    """A leaf's key from before the creation of its root leads to the root's tree."""
    key = TreeKey(CRD, GroupKey(PodGroup.kind, "default", "a"))
    fixture.put(pod_group("a", parent="root"), composite("root"))
    assert fixture.view.current_key(key).anchor == GroupKey(CompositePodGroup.kind, "default", "root")
    assert [one.key.name for one in fixture.view.tree(key).nodes] == ["root", "a"]
    assert fixture.view.count_trees() == {CRD: 1, NATIVE: 0}


def test_no_change_in_a_long_chain_climbs_all_of_it(fixture: ViewFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store remembers the anchors of paths, and does not ask the forest, which would climb step by step."""
    monkeypatch.delattr(Forest, "anchor_of")
    chain = [composite(f"{number}", parent=f"{number - 1}" if number else None) for number in range(50)]
    fixture.put(*chain, pod_group("leaf", parent="49"))
    fixture.add_pods(*members("leaf", 1))
    assert fixture.take_queued() == {"0"}
    for group in chain[::-1]:
        fixture.view.remove(CRD, group)
    assert fixture.view.count_trees() == {CRD: 1, NATIVE: 0}


def test_a_namespace_that_has_been_read_adds_its_trees() -> None:
    """And its Workloads, once; where all namespaces are managed, none is waited for."""
    fixture = ViewFixture("default", "other")
    fixture.put(*small_tree(), pod_group("c", meta=metadata("c", namespace="other")))
    fixture.view.put(CRD, workload([leaf_template("t")], name="w"))
    fixture.queue.added.clear()
    assert fixture.view.is_unread("default")
    fixture.mark_read()
    assert {(key.anchor.kind, key.anchor.name) for key in fixture.queue.added} == {
        ("CompositePodGroup", "root"),
        ("Workload", "w"),
    }
    assert [fixture.view.is_unread(name) for name in ("default", "other")] == [False, True]
    fixture.queue.added.clear()
    fixture.mark_read()
    assert not fixture.queue.added
    assert not ViewFixture().view.is_unread("default")
