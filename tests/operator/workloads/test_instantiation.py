"""The writes for a Workload that asks for its groups."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import (
    API_VERSION,
    DERIVED_FROM,
    EXPECTED_PODS,
    FINALIZER,
    INSTANTIATE,
    INSTANTIATED,
    REPLICAS,
)
from cpg_api.scheduling.workload import Workload, WorkloadStatus
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_engine.testing.builders import inner_template, leaf_template, metadata, pod_group, workload
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.instantiation import MAX_REFUSAL_LENGTH, POLLING_SECONDS, instantiate
from cpg_operator.workloads.plan import desired_groups
from cpg_operator.writes import ObjectPart, TreeKey, Verb, Write
from cpg_operator.writing.retries import PartFailure

NOW = "2026-01-01T00:00:05Z"
LATER = "2026-01-01T00:00:01Z"
TREE = workload([inner_template("root", [leaf_template("leaf", gang=2)])])


def marked(source: Workload, *, reported: Condition | None = None, **annotations: str) -> Workload:
    """Return a Workload that asks for its groups, with this condition."""
    meta = replace(source.metadata, annotations={INSTANTIATE: "true", **annotations}, generation=3)
    return replace(source, metadata=meta, status=WorkloadStatus(conditions=(reported,) if reported else None))


def annotated(name: str, value: str) -> Workload:
    """Return a Workload that asks for its groups, with another annotation."""
    found = marked(TREE)
    return replace(found, metadata=replace(found.metadata, annotations={INSTANTIATE: "true", name: value}))


def leaving_with(group: Group, *finalizers: str) -> Group:
    """Return a group that is being deleted, with these finalizers."""
    return replace(group, metadata=replace(group.metadata, deletion_timestamp=LATER, finalizers=finalizers))


def written(source: Workload, *groups: Group, flavour: str = CRD) -> list[Write]:
    """Return the writes for a Workload where these groups exist."""
    view = ClusterView({flavour: KINDS[flavour]}, RecordingQueue())
    view.put(flavour, source)
    for group in groups:
        view.put(flavour, group)
    return writes_of(view, source, flavour=flavour)


def key_of_workload(source: Workload, flavour: str = CRD) -> TreeKey:
    """Return the key of a Workload in the work queue."""
    return TreeKey(flavour, GroupKey(Workload.kind, source.metadata.namespace, source.metadata.name))


def writes_of(
    view: ClusterView,
    source: Workload,
    failures: Mapping[ObjectPart, PartFailure] | None = None,
    *,
    flavour: str = CRD,
) -> list[Write]:
    """Return the writes for a Workload."""
    key = key_of_workload(source, flavour)
    return list(instantiate(view, key, timestamp=NOW, failures=failures or {}).writes)


def made(source: Workload, flavour: str = CRD) -> list[Group]:
    """Return the groups of a Workload."""
    version = KINDS[flavour][Workload].api_version
    return list(desired_groups(source, api_version=version, native=flavour == NATIVE))


def reported(write: Write) -> tuple[str, str, str]:
    """Return status, reason and message of the written condition."""
    (condition,) = write.body["conditions"]
    return condition.status, condition.reason, condition.message


def test_the_groups_are_created_and_the_status_shows_the_progress() -> None:
    """With owner and finalizer, and without an event until the work is done."""
    root, leaf, status = written(marked(TREE))
    assert [write.verb for write in (root, leaf, status)] == [Verb.CREATE, Verb.CREATE, Verb.APPLY_STATUS]
    assert leaf.resource is KINDS[CRD][type(pod_group("x"))]
    assert leaf.body == {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": "w-leaf",
            "namespace": "default",
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "Workload",
                    "name": "w",
                    "uid": TREE.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "parentCompositePodGroupName": "w-root",
            "workloadRef": {"workloadName": "w", "templateName": "leaf"},
            "schedulingPolicy": {"gang": {"minCount": 2}},
        },
    }
    assert reported(status) == ("False", "Incomplete", "0 of 2 groups are there, 0 to be changed, 0 to be removed")
    assert status.event is None


def test_a_group_that_is_replaced_is_released_at_once() -> None:
    """From our finalizer alone: its pods stay members of the group that is created after it."""
    source = annotated(DERIVED_FROM, "jobset/train")
    root, leaf = made(source)
    leaving = leaving_with(root, FINALIZER, "other/finalizer")
    release, status = written(source, leaving, leaf)
    assert (release.verb, release.part, release.unchanged) == (Verb.MERGE, "finalizers", True)
    assert release.body == {"metadata": {"finalizers": ["other/finalizer"]}}
    assert reported(status) == (
        "False",
        "Incomplete",
        "2 of 2 groups are there, 0 to be changed, 0 to be removed, 1 to be created again once they are gone",
    )
    (status,) = written(source, leaving_with(root, "other/finalizer"), leaf)
    assert reported(status)[1] == "Incomplete"


def test_a_native_workload_has_its_replicas_in_an_annotation() -> None:
    """The annotation counts there only."""
    source = annotated(REPLICAS, "root=2")
    created = [one.target.name for one in written(source, flavour=NATIVE) if one.verb is Verb.CREATE]
    assert created == ["w-root-0", "w-root-1", "w-leaf-0", "w-leaf-1"]
    created = [one.target.name for one in written(source) if one.verb is Verb.CREATE]
    assert created == ["w-root", "w-leaf"]


def test_replicas_that_cannot_be_read_change_nothing() -> None:
    """A mistyped entry must not remove groups."""
    source = annotated(REPLICAS, "root=two")
    (report,) = written(source, *made(TREE, NATIVE), flavour=NATIVE)
    text = report.body["metadata"]["annotations"][INSTANTIATED]
    assert text.startswith("False: InvalidReplicas: the annotation scheduling.cpg.dev/replicas has to name templates")
    assert report.event is not None
    assert report.event.warning


def test_a_refusal_of_the_api_server_is_reported() -> None:
    """Such as by a quota; with an event, because users have to act."""
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    view.put(CRD, marked(TREE))
    first, second, _ = writes_of(view, TREE)
    failures = {second.object_part: PartFailure(9, "later"), first.object_part: PartFailure(1, "exceeded quota")}
    *created, status = writes_of(view, TREE, failures)
    assert created == [first, second]
    assert reported(status)[1:] == (
        "Refused",
        "0 of 2 groups are there; the API server refuses the others: exceeded quota",
    )
    assert status.event is not None
    assert status.event.warning
    current = marked(TREE, reported=status.body["conditions"][0])
    view.put(CRD, replace(current, metadata=replace(current.metadata, resource_version="2")))
    failures = {second.object_part: PartFailure(9, "later"), first.object_part: PartFailure(2, "")}
    *_, status = writes_of(view, TREE, failures)
    assert reported(status)[2].endswith("refuses the others: later")
    assert status.event is None


def test_a_reported_refusal_stays_while_it_is_true() -> None:
    """A quota may refuse other groups at each retry: the status changes once the named group does not fail any more."""
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    view.put(CRD, marked(TREE))
    first, second, _ = writes_of(view, TREE)
    failures = {second.object_part: PartFailure(1, '"leaf" exceeds the quota')}
    *_, status = writes_of(view, TREE, failures)
    current = marked(TREE, reported=status.body["conditions"][0])
    view.put(CRD, replace(current, metadata=replace(current.metadata, resource_version="2")))
    failures = {**failures, first.object_part: PartFailure(1, '"root" exceeds the quota')}
    assert writes_of(view, TREE, failures) == [first, second]
    del failures[second.object_part]
    *_, status = writes_of(view, TREE, failures)
    assert reported(status)[2].endswith('"root" exceeds the quota')
    assert status.event is None


def test_a_long_refusal_is_shortened() -> None:
    """A webhook may answer with any text, and the status has to be accepted."""
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    view.put(CRD, marked(TREE))
    first, *_ = writes_of(view, TREE)
    failures = {first.object_part: PartFailure(1, "no " * 40_000)}
    *_, status = writes_of(view, TREE, failures)
    assert reported(status)[2].startswith("0 of 2 groups are there; the API server refuses the others: no no")
    assert len(reported(status)[2]) < MAX_REFUSAL_LENGTH + 100


def test_a_refused_change_is_reported() -> None:
    """Such as a new minimum that a policy does not allow."""
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    for group in made(TREE):
        view.put(CRD, group)
    view.put(CRD, marked(workload([inner_template("root", [leaf_template("leaf", gang=3)])])))
    resize, before = writes_of(view, TREE)
    assert reported(before)[1:] == ("Incomplete", "2 of 2 groups are there, 1 to be changed, 0 to be removed")
    failures = {resize.object_part: PartFailure(1, "no changes")}
    _, status = writes_of(view, TREE, failures)
    message = "2 of 2 groups are there; the API server refuses what is to be changed or removed: no changes"
    assert reported(status)[1:] == ("Refused", message)


def test_a_complete_set_of_groups_is_reported_once() -> None:
    """With an event; after that nothing is written."""
    source = marked(TREE)
    (status,) = written(source, *made(source))
    assert reported(status) == ("True", "Instantiated", "all 2 groups are there")
    assert status.event is not None
    assert not status.event.warning
    (condition,) = status.body["conditions"]
    assert (condition.last_transition_time, condition.observed_generation) == (NOW, 3)
    assert written(marked(TREE, reported=condition), *made(source)) == []


def test_a_new_generation_is_reported_without_another_event() -> None:
    """The condition shows which generation it was computed from."""
    condition_before = Condition(
        type="Instantiated",
        status="True",
        reason="Instantiated",
        message="all 2 groups are there",
        observed_generation=2,
        last_transition_time=LATER,
    )
    source = marked(TREE, reported=condition_before)
    (status,) = written(source, *made(source))
    assert status.event is None
    assert status.body["conditions"][0].last_transition_time == LATER


def test_a_minimum_is_changed_in_place() -> None:
    """By a patch of that field alone."""
    before = made(marked(workload([inner_template("root", [leaf_template("leaf", gang=1)], gang=2)])))
    root, leaf, status = written(marked(TREE), *before)
    assert root.body == {"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}}
    assert leaf.body == {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    assert reported(status)[2] == "2 of 2 groups are there, 2 to be changed, 0 to be removed"


def test_surplus_groups_are_deleted() -> None:
    """Their finalizer holds them until their pods have ended."""
    two = marked(workload([replace(leaf_template("leaf"), replicas=2)]))
    one = marked(workload([replace(leaf_template("leaf"), replicas=1)]))
    removal, status = written(one, *made(two))
    assert (removal.verb, removal.target.name) == (Verb.DELETE, "w-leaf-1")
    assert reported(status)[2] == "1 of 1 groups are there, 0 to be changed, 1 to be removed"


def test_a_conflict_is_reported_and_nothing_is_overwritten() -> None:
    """The first five are spelled out; the other groups of the tree are created."""
    foreign_groups = [pod_group(f"w-leaf-{number}") for number in range(7)]
    *created, status = written(marked(workload([replace(leaf_template("leaf"), replicas=8)])), *foreign_groups)
    assert [write.target.name for write in created] == ["w-leaf-7"]
    state, reason, message = reported(status)
    assert (state, reason) == ("False", "Conflict")
    assert message.count("was not created from this Workload") == 5
    assert message.endswith("; and 2 more")
    assert status.event is not None
    assert status.event.warning


def test_groups_that_are_deleted_together_get_one_event() -> None:
    """However many, and in any order; the status names them where they are few."""
    source = marked(workload([replace(leaf_template("leaf"), replicas=40)]))
    there = made(source)
    terminating = [replace(one, metadata=replace(one.metadata, uid="old", deletion_timestamp=LATER)) for one in there]
    current, statuses = source, []
    for gone in range(41):
        for status in written(current, *there[:gone], *terminating[gone:]):
            statuses.append(status)
            current = marked(source, reported=status.body["conditions"][0])
    deleted = [status for status in statuses if reported(status)[1] == "BeingDeleted"]
    assert reported(deleted[0])[2] == "more than 5 groups are being deleted and will be created again afterwards"
    assert reported(deleted[-1])[2].startswith("PodGroup default/w-leaf-39 is being deleted")
    assert len(deleted) == 6
    assert [status.event.reason for status in statuses if status.event] == ["BeingDeleted", "Instantiated"]


def test_a_conflict_is_reported_beside_groups_that_are_being_deleted() -> None:
    """A foreign group does not vanish by itself."""
    source = marked(workload([replace(leaf_template("leaf"), replicas=9)]))
    *others, last = made(source)
    terminating = [replace(one, metadata=replace(one.metadata, deletion_timestamp=LATER)) for one in others]
    foreign = pod_group(last.metadata.name)
    (status,) = written(source, *terminating, foreign)
    assert reported(status)[1] == "BeingDeleted"
    assert reported(status)[2].endswith(
        "afterwards; PodGroup default/w-leaf-8 exists and was not created from this Workload; it is left unchanged"
    )


def requeue_after(source: Workload, *groups: Group, flavour: str = CRD) -> float | None:
    """Return after how many seconds a Workload is reconciled again without an event."""
    view = ClusterView({flavour: KINDS[flavour]}, RecordingQueue())
    view.put(flavour, source)
    for group in groups:
        view.put(flavour, group)
    return instantiate(view, key_of_workload(source, flavour), timestamp=NOW, failures={}).requeue_after


def test_only_an_obstacle_that_vanishes_without_an_event_is_polled() -> None:
    """A group that names the Workload causes an event, and so does the Workload itself."""
    source = marked(TREE)
    root, leaf = made(source)
    assert requeue_after(source, root, leaf) is None
    foreign = pod_group("w-leaf")
    unnamed = replace(foreign, spec=replace(foreign.spec, workload_ref=None))
    assert requeue_after(source, root, unnamed) == POLLING_SECONDS
    named = replace(foreign, spec=replace(foreign.spec, workload_ref=leaf.spec.workload_ref))
    assert requeue_after(source, root, named) is None
    terminating = replace(leaf, metadata=replace(leaf.metadata, deletion_timestamp=LATER))
    assert requeue_after(source, root, terminating) is None
    many = replace(inner_template("root", [replace(leaf_template("leaf"), replicas=1000)]), replicas=1000)
    assert requeue_after(marked(workload([many]))) is None
    wider = marked(workload([inner_template("root", [leaf_template("leaf", gang=2)], gang=2)]))
    assert requeue_after(wider, *made(source, NATIVE), flavour=NATIVE) is None


def test_a_deleted_workload_gets_no_groups() -> None:
    """The garbage collector deletes its groups, and new ones would follow them for ever."""
    source = marked(TREE)
    assert written(replace(source, metadata=replace(source.metadata, deletion_timestamp=LATER))) == []
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    assert writes_of(view, source) == []


def test_without_the_annotation_nothing_is_done() -> None:
    """Where it was removed, the condition is removed, whichever manager wrote it; all else stays."""
    assert written(TREE) == []
    condition_before = Condition(type="Instantiated", status="True", reason="Instantiated", last_transition_time=NOW)
    source = replace(TREE, status=WorkloadStatus(conditions=(condition_before,)))
    (status,) = written(source, *made(TREE))
    assert (status.verb, status.body, status.unchanged) == (Verb.MERGE_STATUS, {"conditions": []}, True)
    assert status.event is not None
    other = replace(condition_before, type="Other")
    source = replace(TREE, status=WorkloadStatus(conditions=(other, condition_before)))
    (status,) = written(source, *made(TREE))
    assert status.body == {"conditions": [other]}


def test_a_kind_that_is_not_served_is_reported() -> None:
    """PodGroups may be served alone; a new run of the operator begins when that changes."""
    kinds = {kind: resource for kind, resource in KINDS[NATIVE].items() if kind is not CompositePodGroup}
    view = ClusterView({NATIVE: kinds}, RecordingQueue())
    view.put(NATIVE, marked(TREE))
    (note,) = writes_of(view, TREE, flavour=NATIVE)
    assert annotation(note).startswith("False: NotServed: the API server serves no CompositePodGroups")


def annotation(write: Write) -> Any:  # noqa: ANN401 - text, or None that removes it
    """Return the annotation in a write."""
    assert write.verb is Verb.MERGE
    return write.body["metadata"]["annotations"][INSTANTIATED]


def test_a_native_workload_has_an_annotation_for_its_report() -> None:
    """It has no status; its groups have the API versions that are served, without our own fields."""
    root, leaf, note = written(marked(TREE), flavour=NATIVE)
    assert (root.body["apiVersion"], leaf.body["apiVersion"]) == (
        "scheduling.k8s.io/v1alpha3",
        "scheduling.k8s.io/v1beta1",
    )
    assert "finalizers" not in leaf.body["metadata"]
    assert annotation(note) == "False: Incomplete: 0 of 2 groups are there, 0 to be changed, 0 to be removed"
    (note,) = written(marked(TREE), *made(marked(TREE), NATIVE), flavour=NATIVE)
    text = annotation(note)
    assert text == "True: Instantiated: all 2 groups are there"
    assert written(marked(TREE, **{INSTANTIATED: text}), *made(marked(TREE), NATIVE), flavour=NATIVE) == []
    unmarked = replace(TREE, metadata=replace(metadata("w"), annotations={INSTANTIATED: text}))
    (note,) = written(unmarked, flavour=NATIVE)
    assert annotation(note) is None
    assert written(TREE, flavour=NATIVE) == []


def test_a_group_without_a_minimum_is_left_alone() -> None:
    """A basic group has none."""
    source = marked(workload([leaf_template("leaf", gang=None)]))
    assert [write.verb for write in written(source, *made(source))] == [Verb.APPLY_STATUS]


def test_a_group_gets_the_list_of_its_expected_pods() -> None:
    """With its minimum, if it is a gang."""
    for gang, spec in ((2, {"schedulingPolicy": {"gang": {"minCount": 2}}}), (None, None)):
        source = workload([leaf_template("leaf", gang=gang)])
        there = made(source)
        annotations = {**marked(source).metadata.annotations, EXPECTED_PODS: '{"leaf": [{"count": 2}]}'}
        current = marked(source)
        current = replace(current, metadata=replace(current.metadata, annotations=annotations))
        resize, _ = written(current, *there)
        body = {"metadata": {"annotations": {EXPECTED_PODS: '[{"count": 2}]'}}}
        assert resize.body == (body if spec is None else body | {"spec": spec})
