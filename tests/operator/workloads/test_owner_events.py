"""Events on the owner of a tree: why it waits, and when it is placed."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import PodStatus
from cpg_api.integrations import job
from cpg_api.meta import Condition, OwnerReference
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import DERIVED_FROM, DISRUPTION_TARGET, EVENT_NOT_ADOPTED
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_api.validity import initially_scheduled_type
from cpg_client.flavours import CRD, KINDS
from cpg_client.resources import Resource
from cpg_client.stores import Added
from cpg_engine.testing.builders import composite, leaf_template, metadata, pod, pod_group, workload
from cpg_operator.reconcile import timestamp
from cpg_operator.testing.fixtures import NOW, TIMESTAMP, ViewFixture, members
from cpg_operator.workloads.owner_events import (
    EVENT_LIFETIME_SECONDS,
    REPEATED_SECONDS,
    WAITING_SECONDS,
    OwnerEvents,
    describe,
    forward_obstacles,
)
from cpg_operator.workloads.plan import ObstacleReason
from cpg_operator.writes import NOTHING, EventSpec, StepResult, TreeKey, Verb, Write

JOBS = Resource("batch", "v1", "jobs", "Job")
WORKLOAD = TreeKey(CRD, GroupKey("Workload", "default", "job.train"))
LONG_AGO = timestamp(NOW - EVENT_LIFETIME_SECONDS - 1)

State = tuple[str, str]


def scheduled(status: str, reason: str, message: str = "", *, since: str = TIMESTAMP) -> tuple[str, ...]:
    """Return status, reason, message and time of a condition."""
    return status, reason, message, since


PLACED = scheduled("True", "Scheduled")
NO_ROOM = scheduled("False", "Unschedulable", "no room")
PENDING = scheduled("Unknown", "Pending")


def with_condition(group: Group, condition: tuple[str, ...], kind: str = "") -> Group:
    """Return a group with the condition whether it was placed, or with one of another type."""
    status, reason, message, since = condition
    new = Condition(
        type=kind or initially_scheduled_type(group),
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
    )
    found = (*(group.status.conditions or ()), new)
    if isinstance(group, PodGroup):
        return replace(group, status=replace(group.status, conditions=found))
    return replace(group, status=replace(group.status, conditions=found))


class Tree:
    """The tree of a Job: a root over the gangs ``a`` and ``b`` of two pods each."""

    def __init__(self) -> None:
        """Start with the Job and its Workload."""
        self.now = 100.0
        self.fixture = ViewFixture()
        self.events = OwnerEvents(self.fixture.view.owners, lambda: self.now)
        self.fixture.view.owners.add_kind(job.KIND, JOBS)
        self.fixture.view.owners.take("Job", Added("k", job.Job(metadata=replace(metadata("train"), uid="owner"))))
        self.put_workload("owner")
        self._version = 1

    def put_workload(self, uid: str) -> None:
        """Put the Workload that was made for the Job with this UID."""
        made = workload([leaf_template("a")], name="job.train")
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid=uid, controller=True)
        annotated = replace(made.metadata, annotations={DERIVED_FROM: "job/train"}, owner_references=(owner,))
        self.fixture.put(replace(made, metadata=annotated))

    def put(self, root: tuple[str, ...], *, gang: int | None = 2, **leaves: tuple[str, ...]) -> None:
        """Put the groups with their conditions; leaves have that of the root by default."""
        self._version += 1
        groups: list[Group] = [composite("root", gang=gang, workload="job.train", key="block")]
        groups += [pod_group(name, gang=2, parent="root", workload="job.train") for name in ("a", "b")]
        for group in groups:
            found = with_condition(group, leaves.get(group.metadata.name, root))
            versioned = replace(found.metadata, resource_version=str(self._version))
            self.fixture.put(replace(found, metadata=versioned))

    def evict(self, name: str) -> None:
        """Evict a group as a whole."""
        key = GroupKey("CompositePodGroup" if name == "root" else "PodGroup", "default", name)
        found = self.fixture.view.groups(CRD).forest.groups[key]
        self._version += 1
        changed = with_condition(found, scheduled("True", "PreemptionByScheduler", "for big"), DISRUPTION_TARGET)
        self.fixture.put(replace(changed, metadata=replace(changed.metadata, resource_version=str(self._version))))

    def bind(self, *groups: str) -> None:
        """Have two pods of each group run on a node of a block, and two of each other group wait."""
        self.fixture.view.labels["n1"] = {"block": "one"}
        for group in ("a", "b"):
            found = list(members(group, 2))
            self.fixture.remove_pods(*found)
            waiting = (pod(one.metadata.name, group=group) for one in found)
            self.fixture.add_pods(*(found if group in groups else waiting))

    def state(self) -> State | None:
        """Return what the tree means for its owner."""
        found = describe(self.fixture.context())
        return (found.reason, found.note) if found is not None else None

    def report(self) -> StepResult:
        """Return the report that is due now."""
        return self.events.report(self.fixture.context())

    def report_after(self, seconds: float) -> list[tuple[str, bool]]:
        """Return the reason of the event that is due after some seconds, and whether it may be an earlier one."""
        self.report()
        self.now += seconds
        writes = self.report().writes
        return [(write.event.reason, write.event.only_new) for write in writes if write.event is not None]


@pytest.fixture
def tree() -> Tree:
    """Return a tree whose pods wait for room."""
    found = Tree()
    found.put(NO_ROOM)
    found.bind()
    return found


def test_a_tree_that_waits_says_what_its_root_says(tree: Tree) -> None:
    """With the reason of the condition as reason of the event, on the owner."""
    assert tree.state() == ("Unschedulable", "no room")
    assert tree.report() == StepResult(requeue_after=WAITING_SECONDS)
    tree.now += WAITING_SECONDS
    (write,) = tree.report().writes
    assert (write.verb, write.resource, write.target.uid) == (Verb.EVENT, JOBS, "owner")
    assert write.event == EventSpec("Unschedulable", "no room", warning=True, cause="Unschedulable", only_new=True)


def test_a_placed_tree_says_where_and_how_many(tree: Tree) -> None:
    """The domain is that of the root."""
    tree.put(PLACED)
    tree.bind("a", "b")
    assert tree.state() == ("Scheduled", "4 of 4 pods have nodes, in block one")
    ((reason, _),) = tree.report_after(WAITING_SECONDS)
    assert reason == "Scheduled"
    (write,) = tree.report().writes
    assert write.event is not None
    assert not write.event.warning


def test_a_tree_without_pods_or_attempts_says_nothing(tree: Tree) -> None:
    """It is suspended, or has just been made."""
    tree.put(PENDING)
    assert tree.state() is None
    tree.fixture.remove_pods(*members("a", 2), *members("b", 2))
    tree.put(PLACED)
    assert tree.state() is None
    assert tree.report() == NOTHING


def test_native_groups_have_no_condition_before_the_first_attempt() -> None:
    """They are pending, too."""
    tree = Tree()
    tree.fixture.put(
        composite("root", gang=1, workload="job.train"), pod_group("a", parent="root", workload="job.train")
    )
    tree.bind()
    assert tree.state() is None


@pytest.mark.parametrize(
    ("leaf", "state"),
    [
        (NO_ROOM, ("Unschedulable", "PodGroup b: no room")),
        (scheduled("False", "WaitingForGroup", "no pods"), ("Scheduled", "2 of 4 pods have nodes, in block one")),
        (PLACED, ("Incomplete", "PodGroup b: 0 of 2 pods have nodes: 0 of 2 pods running, 2 short")),
    ],
)
def test_a_group_may_wait_below_a_placed_root(tree: Tree, leaf: tuple[str, ...], state: State) -> None:
    """It needs room, or had it before; pods that do not exist yet are not waited for."""
    tree.put(PLACED, gang=None, b=leaf)
    tree.bind("a")
    assert tree.state() == state


def test_of_several_waiting_groups_the_first_is_named(tree: Tree) -> None:
    """And the others are counted; a group below one that waits says nothing more."""
    tree.put(PENDING, gang=None, a=NO_ROOM, b=NO_ROOM)
    assert tree.state() == ("Unschedulable", "PodGroup a: no room; and 1 more")
    tree.evict("b")
    tree.evict("a")
    assert tree.state() == ("Preempted", "PodGroup a: for big; and 1 more")


def test_a_tree_that_was_placed_before_is_incomplete(tree: Tree) -> None:
    """Its root keeps its condition. Pods that end or are gone are no pods that wait."""
    tree.put(PLACED)
    tree.bind("a")
    counts = "2 of 4 pods have nodes: 1 of 2 groups ready, 1 short: PodGroup b: 0 of 2 pods running, 2 short"
    assert tree.state() == ("Incomplete", f"CompositePodGroup root: {counts}")
    waiting = [pod(f"b-{number}", group="b") for number in range(2)]
    tree.fixture.remove_pods(*waiting)
    assert tree.state() == ("Scheduled", "2 of 2 pods have nodes, in block one")
    tree.fixture.add_pods(*(replace(one, status=PodStatus(phase="Failed")) for one in waiting))
    assert tree.state() == ("Scheduled", "2 of 2 pods have nodes, in block one")


@pytest.mark.parametrize("name", ["root", "b"])
def test_an_eviction_is_reported_at_once(tree: Tree, name: str) -> None:
    """Of the tree or of one of its groups, with the message that names the preemptor."""
    tree.put(PLACED)
    tree.evict(name)
    ((reason, _),) = tree.report_after(0.0)
    assert reason == "Preempted"
    state = tree.state()
    assert state is not None
    assert state[1].endswith(f"Group {name}: for big")


def test_a_reason_that_does_not_last_is_not_reported(tree: Tree) -> None:
    """While a tree is being made, several follow each other."""
    tree.put(scheduled("False", "WaitingForGroup", "no pods"))
    assert tree.report_after(WAITING_SECONDS - 1) == []
    tree.put(NO_ROOM)
    assert tree.report_after(WAITING_SECONDS - 1) == []
    tree.put(PLACED)
    tree.bind("a", "b")
    assert tree.report_after(1.0) == [("Scheduled", False)]


def test_one_event_for_each_change_of_the_reason(tree: Tree) -> None:
    """The write is the same until it has surely been sent; another message changes nothing, another reason does."""
    tree.report_after(WAITING_SECONDS)
    (first,) = tree.report().writes
    tree.put(scheduled("False", "Unschedulable", "less room"))
    (second,) = tree.report().writes
    assert second.repeats(first)
    assert tree.report_after(REPEATED_SECONDS + 1) == []
    tree.put(PENDING)
    assert tree.report_after(WAITING_SECONDS) == []
    tree.put(NO_ROOM)
    assert tree.report_after(WAITING_SECONDS) == [("Unschedulable", False)]
    (third,) = tree.report().writes
    assert not third.repeats(first)


def test_a_new_process_repeats_nothing(tree: Tree) -> None:
    """An event that exists is left alone; where it is not kept any more, that the tree was placed is old news."""
    assert tree.report_after(WAITING_SECONDS) == [("Unschedulable", True)]
    tree.bind("a", "b")
    for since, due in ((TIMESTAMP, [("Scheduled", True)]), (LONG_AGO, [])):
        tree.put(scheduled("True", "Scheduled", since=since))
        tree.events.forget(tree.fixture.context().key)
        assert tree.report_after(WAITING_SECONDS) == due


def test_trees_without_an_owner_get_no_event(tree: Tree) -> None:
    """Of a user, of an earlier owner of that name, or of another scheduler."""
    tree.put_workload("earlier")
    assert tree.report() == NOTHING
    tree.put_workload("owner")
    foreign = [replace(one, spec=replace(one.spec, scheduler_name="other")) for one in members("a", 2)]
    tree.fixture.remove_pods(*members("a", 2), *members("b", 2))
    tree.fixture.add_pods(*foreign)
    assert tree.report() == NOTHING
    tree.fixture.put(with_condition(pod_group("alone", gang=1), NO_ROOM))
    assert tree.events.report(tree.fixture.context("alone", kind="PodGroup")) == NOTHING
    tree.fixture.put(composite("other", workload="w"))
    assert tree.events.report(tree.fixture.context("other")) == NOTHING


def warnings(*reasons: str) -> StepResult:
    """Return writes about a Workload with warnings, and one without an event."""
    plain = Write(verb=Verb.MERGE, resource=KINDS[CRD][Workload], target=metadata("job.train"), part="p")
    events = (EventSpec(reason, "why", warning=reason != "Instantiated") for reason in reasons)
    return StepResult(writes=(plain, *(replace(plain, event=event) for event in events)))


def test_what_prevents_the_groups_is_reported_to_the_owner(tree: Tree) -> None:
    """Users of the owner do not look at its Workload. A group that is being deleted is no obstacle for long."""
    view = tree.fixture.view
    result = warnings("Refused", "Instantiated", ObstacleReason.BEING_DELETED)
    (write,) = forward_obstacles(view, WORKLOAD, result).writes
    assert (write.resource, write.target.name) == (JOBS, "train")
    assert write.event == EventSpec(EVENT_NOT_ADOPTED, "why", warning=True, cause="Refused")
    tree.put_workload("earlier")
    assert forward_obstacles(view, WORKLOAD, result) == NOTHING
    assert forward_obstacles(view, TreeKey(CRD, GroupKey("Workload", "default", "w")), result) == NOTHING


def test_kinds_of_groups_are_both_covered() -> None:
    """A tree of one gang has a PodGroup as its root."""
    tree = Tree()
    leaf = pod_group("job.train.pods", gang=2, workload="job.train")
    tree.fixture.put(with_condition(leaf, NO_ROOM))
    tree.fixture.add_pods(pod("p", group="job.train.pods"))
    found = describe(tree.fixture.context("job.train.pods", kind="PodGroup"))
    assert found is not None
    assert (found.reason, found.note) == ("Unschedulable", "no room")
