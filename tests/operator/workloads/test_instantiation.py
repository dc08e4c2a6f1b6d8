"""What is written for a Workload that asks for its groups."""

from typing import Any

from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import API_VERSION, FINALIZER, INSTANTIATE, INSTANTIATED
from cpg_api.scheduling.workload import Workload, WorkloadStatus
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_engine.testing.builders import inner_template, leaf_template, metadata, pod_group, workload
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.instantiation import LOOK_AGAIN, MOST_QUOTED, instantiation, workload_key
from cpg_operator.workloads.plan import desired
from cpg_operator.writes import Verb, Write
from cpg_operator.writing.retries import PartFailure

NOW = "2026-01-01T00:00:05Z"
LATER = "2026-01-01T00:00:01Z"
TREE = workload([inner_template("root", [leaf_template("leaf", gang=2)])])


def marked(source: Workload, *, told: Condition | None = None, **annotations: str) -> Workload:
    """Return a Workload that asks for its groups, and what its status says of that."""
    meta = replace(source.metadata, annotations={INSTANTIATE: "true", **annotations}, generation=3)
    return replace(source, metadata=meta, status=WorkloadStatus(conditions=(told,) if told else None))


def written(source: Workload, *groups: Group, flavour: str = CRD) -> list[Write]:
    """Return what is to be written for a Workload where these groups are there."""
    view = ClusterView({flavour: KINDS[flavour]}, lambda _: None)
    view.put(flavour, source)
    for group in groups:
        view.put(flavour, group)
    return list(instantiation(view, workload_key(flavour, source), stamp=NOW, troubles={}).writes)


def made(source: Workload, flavour: str = CRD) -> list[Group]:
    """Return the groups of a Workload."""
    version = KINDS[flavour][Workload].api_version
    return list(desired(source, api_version=version, native=flavour == NATIVE))


def told(write: Write) -> tuple[str, str, str]:
    """Return the condition that a write says, in short."""
    (condition,) = write.body["conditions"]
    return condition.status, condition.reason, condition.message


def test_the_groups_are_created_and_the_status_says_how_far_that_is() -> None:
    """With everything that makes them ours, and no event while work is under way."""
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
    assert told(status) == ("False", "Incomplete", "0 of 2 groups are there, 0 to be changed, 0 to be removed")
    assert status.word is None


def test_what_the_api_server_refuses_is_told() -> None:
    """A quota, say; with an event, because somebody has to do something."""
    view = ClusterView({CRD: KINDS[CRD]}, lambda _: None)
    view.put(CRD, marked(TREE))
    first, second, _ = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles={}).writes
    troubles = {second.place: PartFailure(9, "later"), first.place: PartFailure(1, "exceeded quota")}
    *created, status = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles=troubles).writes
    assert created == [first, second]
    assert told(status)[1:] == ("Refused", "0 of 2 groups are there; the API server refuses the others: exceeded quota")
    assert status.word is not None
    assert status.word.warning
    said = marked(TREE, told=status.body["conditions"][0])
    view.put(CRD, replace(said, metadata=replace(said.metadata, resource_version="2")))
    troubles = {second.place: PartFailure(9, "later"), first.place: PartFailure(2, "")}
    *_, status = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles=troubles).writes
    assert told(status)[2].endswith("refuses the others: later")
    assert status.word is None


def test_of_a_long_refusal_the_beginning_is_told() -> None:
    """A webhook may answer with whatever it likes, and the status has to be taken."""
    view = ClusterView({CRD: KINDS[CRD]}, lambda _: None)
    view.put(CRD, marked(TREE))
    first, *_ = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles={}).writes
    troubles = {first.place: PartFailure(1, "no " * 40_000)}
    *_, status = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles=troubles).writes
    assert told(status)[2].startswith("0 of 2 groups are there; the API server refuses the others: no no")
    assert len(told(status)[2]) < MOST_QUOTED + 100


def test_a_change_that_is_refused_is_told_too() -> None:
    """The minimum of a template is another, and nobody may change the group."""
    view = ClusterView({CRD: KINDS[CRD]}, lambda _: None)
    for group in made(TREE):
        view.put(CRD, group)
    view.put(CRD, marked(workload([inner_template("root", [leaf_template("leaf", gang=3)])])))
    resize, told_before = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles={}).writes
    assert told(told_before)[1:] == ("Incomplete", "2 of 2 groups are there, 1 to be changed, 0 to be removed")
    troubles = {resize.place: PartFailure(1, "no changes")}
    _, status = instantiation(view, workload_key(CRD, TREE), stamp=NOW, troubles=troubles).writes
    words = "2 of 2 groups are there; the API server refuses what is to be changed or removed: no changes"
    assert told(status)[1:] == ("Refused", words)


def test_that_all_is_there_is_told_once() -> None:
    """With an event; afterwards there is nothing to write."""
    source = marked(TREE)
    (status,) = written(source, *made(source))
    assert told(status) == ("True", "Instantiated", "all 2 groups are there")
    assert status.word is not None
    assert not status.word.warning
    (condition,) = status.body["conditions"]
    assert (condition.last_transition_time, condition.observed_generation) == (NOW, 3)
    assert written(marked(TREE, told=condition), *made(source)) == []


def test_a_new_generation_is_noted_without_another_event() -> None:
    """The condition says what it was computed from."""
    said = Condition(
        type="Instantiated",
        status="True",
        reason="Instantiated",
        message="all 2 groups are there",
        observed_generation=2,
        last_transition_time=LATER,
    )
    source = marked(TREE, told=said)
    (status,) = written(source, *made(source))
    assert status.word is None
    assert status.body["conditions"][0].last_transition_time == LATER


def test_a_minimum_is_changed_where_it_stands() -> None:
    """By a patch of that field alone."""
    before = made(marked(workload([inner_template("root", [leaf_template("leaf", gang=1)], gang=2)])))
    root, leaf, status = written(marked(TREE), *before)
    assert root.body == {"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}}
    assert leaf.body == {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    assert told(status)[2] == "2 of 2 groups are there, 2 to be changed, 0 to be removed"


def test_surplus_groups_are_deleted() -> None:
    """Those that have their finalizer stay until their pods have gone."""
    two = marked(workload([replace(leaf_template("leaf"), replicas=2)]))
    one = marked(workload([replace(leaf_template("leaf"), replicas=1)]))
    removal, status = written(one, *made(two))
    assert (removal.verb, removal.target.name) == (Verb.DELETE, "w-leaf-1")
    assert told(status)[2] == "1 of 1 groups are there, 0 to be changed, 1 to be removed"


def test_a_conflict_is_told_and_nothing_is_overwritten() -> None:
    """The first five in words; the rest of the tree is made all the same."""
    strangers = [pod_group(f"w-leaf-{number}") for number in range(7)]
    *created, status = written(marked(workload([replace(leaf_template("leaf"), replicas=8)])), *strangers)
    assert [write.target.name for write in created] == ["w-leaf-7"]
    state, reason, message = told(status)
    assert (state, reason) == ("False", "Conflict")
    assert message.count("was not made from this Workload") == 5
    assert message.endswith("; and 2 more")
    assert status.word is not None
    assert status.word.warning


def test_groups_that_go_together_are_told_of_once() -> None:
    """However many, and whichever goes first: the status names them where they are few, and the event comes once."""
    source = marked(workload([replace(leaf_template("leaf"), replicas=40)]))
    there = made(source)
    leaving = [replace(one, metadata=replace(one.metadata, uid="old", deletion_timestamp=LATER)) for one in there]
    said, statuses = source, []
    for gone in range(41):
        for status in written(said, *there[:gone], *leaving[gone:]):
            statuses.append(status)
            said = marked(source, told=status.body["conditions"][0])
    going = [status for status in statuses if told(status)[1] == "BeingDeleted"]
    assert told(going[0])[2] == "more than 5 groups are on their way out, and are made anew when they have gone"
    assert told(going[-1])[2].startswith("PodGroup default/w-leaf-39 is being deleted")
    assert len(going) == 6
    assert [status.word.reason for status in statuses if status.word] == ["BeingDeleted", "Instantiated"]


def test_who_is_in_the_way_is_told_beside_those_who_go() -> None:
    """A stranger does not go by itself."""
    source = marked(workload([replace(leaf_template("leaf"), replicas=9)]))
    *others, last = made(source)
    leaving = [replace(one, metadata=replace(one.metadata, deletion_timestamp=LATER)) for one in others]
    stranger = pod_group(last.metadata.name)
    (status,) = written(source, *leaving, stranger)
    assert told(status)[1] == "BeingDeleted"
    assert told(status)[2].endswith(
        "have gone; PodGroup default/w-leaf-8 exists and was not made from this Workload; it is left as it is"
    )


def again_in(source: Workload, *groups: Group, flavour: str = CRD) -> float | None:
    """Return after how many seconds a Workload is looked at again though nothing is heard."""
    view = ClusterView({flavour: KINDS[flavour]}, lambda _: None)
    view.put(flavour, source)
    for group in groups:
        view.put(flavour, group)
    return instantiation(view, workload_key(flavour, source), stamp=NOW, troubles={}).again_in


def test_only_what_says_nothing_when_it_goes_is_asked_after() -> None:
    """A group that names the Workload is heard of, and so is the Workload itself."""
    source = marked(TREE)
    root, leaf = made(source)
    assert again_in(source, root, leaf) is None
    stranger = pod_group("w-leaf")
    unnamed = replace(stranger, spec=replace(stranger.spec, workload_ref=None))
    assert again_in(source, root, unnamed) == LOOK_AGAIN
    named = replace(stranger, spec=replace(stranger.spec, workload_ref=leaf.spec.workload_ref))
    assert again_in(source, root, named) is None
    leaving = replace(leaf, metadata=replace(leaf.metadata, deletion_timestamp=LATER))
    assert again_in(source, root, leaving) is None
    many = replace(inner_template("root", [replace(leaf_template("leaf"), replicas=1000)]), replicas=1000)
    assert again_in(marked(workload([many]))) is None
    wider = marked(workload([inner_template("root", [leaf_template("leaf", gang=2)], gang=2)]))
    assert again_in(wider, *made(source, NATIVE), flavour=NATIVE) is None


def test_of_a_workload_that_goes_or_is_gone_nothing_is_made() -> None:
    """The garbage collector has its groups, and creating more would keep them coming."""
    source = marked(TREE)
    assert written(replace(source, metadata=replace(source.metadata, deletion_timestamp=LATER))) == []
    view = ClusterView({CRD: KINDS[CRD]}, lambda _: None)
    assert instantiation(view, workload_key(CRD, source), stamp=NOW, troubles={}).writes == ()


def test_without_the_mark_nothing_is_done() -> None:
    """And where it was taken away, the condition goes, whoever has written it too; others and the groups stay."""
    assert written(TREE) == []
    said = Condition(type="Instantiated", status="True", reason="Instantiated", last_transition_time=NOW)
    source = replace(TREE, status=WorkloadStatus(conditions=(said,)))
    (status,) = written(source, *made(TREE))
    assert (status.verb, status.body, status.unchanged) == (Verb.MERGE_STATUS, {"conditions": []}, True)
    assert status.word is not None
    other = replace(said, type="Other")
    source = replace(TREE, status=WorkloadStatus(conditions=(other, said)))
    (status,) = written(source, *made(TREE))
    assert status.body == {"conditions": [other]}


def test_a_kind_that_is_not_served_is_told_and_not_written() -> None:
    """As PodGroups may be served alone; the operator begins anew when that changes."""
    kinds = {kind: resource for kind, resource in KINDS[NATIVE].items() if kind is not CompositePodGroup}
    view = ClusterView({NATIVE: kinds}, lambda _: None)
    view.put(NATIVE, marked(TREE))
    (note,) = instantiation(view, workload_key(NATIVE, TREE), stamp=NOW, troubles={}).writes
    assert annotation(note).startswith("False: NotServed: the API server serves no CompositePodGroups")


def annotation(write: Write) -> Any:  # noqa: ANN401 - text, or None that removes it
    """Return what a write says in the annotation."""
    assert write.verb is Verb.MERGE
    return write.body["metadata"]["annotations"][INSTANTIATED]


def test_a_native_workload_tells_it_in_an_annotation() -> None:
    """It has no status; its groups are of the versions that the server has, without what is ours alone."""
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
    """A basic group has none to follow."""
    source = marked(workload([leaf_template("leaf", gang=None)]))
    assert [write.verb for write in written(source, *made(source))] == [Verb.APPLY_STATUS]
