"""Conditions and events: said once, again only when they change, and never taken back once final."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import structlog
from msgspec import to_builtins
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, Resource
from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_scheduler.status.writer import STEADY, WORKERS, StatusWriter
from cpg_scheduler.testing.wire import Wire, Write

NOW = "2026-11-18T12:00:00Z"


class Desk:
    """A reporter at work, and what it wrote."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.log = structlog.testing.CapturingLogger()
        self.calm = asyncio.Event()
        self.calm.set()
        self.stored: dict[str, Group] = {}
        self.reporter = StatusWriter(
            cast("Connection", self.wire),
            self._known,
            now=lambda: NOW,
            instance="me",
            log=structlog.wrap_logger(self.log, processors=[]),
            calm=self.calm.wait,
            retry=0.02,
            settle=0.02,
        )

    def _known(self, group: Group) -> tuple[Group, Resource] | None:
        if group.metadata.name == "gone":
            return None
        resource = CPG_POD_GROUPS if isinstance(group, PodGroup) else CPG_COMPOSITE_POD_GROUPS
        return self.stored.get(group.metadata.uid, group), resource

    def show(self, group: Group) -> None:
        """Have the watch show a group."""
        self.stored[group.metadata.uid] = group
        self.reporter.saw(group)

    def group(self, group: Group, message: str) -> None:
        """Say that a group is not scheduled."""
        self.reporter.group(group, scheduled=False, reason="Unschedulable", message=message)

    def statuses(self) -> list[Write]:
        """Return what was written into statuses."""
        return [write for write in self.wire.writes if write.path.endswith("/status")]

    def conditions(self) -> list[dict[str, Any]]:
        """Return the conditions that were written."""
        return [to_builtins(write.body)["status"]["conditions"][0] for write in self.statuses()]

    def notes(self) -> list[tuple[str, str, str]]:
        """Return the events that were written."""
        events = [write.body for write in self.wire.writes if "/events" in write.path]
        return [(event["type"], event["reason"], event["note"]) for event in events]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """Let a reporter work for as long as the test lasts."""
    made = Desk()
    work = asyncio.create_task(made.reporter.run())
    yield made
    work.cancel()
    await asyncio.wait({work})


def shown(found: Pod, message: str) -> Pod:
    """Return a pod that shows what was said."""
    condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return replace(found, status=PodStatus(conditions=(condition,)))


def group_shown(status: str, message: str) -> PodGroup:
    """Return a group that shows what was said."""
    reason = "Scheduled" if status == "True" else "Unschedulable"
    group = pod_group("pg")
    condition = Condition(
        type="PodGroupInitiallyScheduled",
        status=status,
        reason=reason,
        message=message,
        observed_generation=group.metadata.generation,
    )
    return replace(group, status=PodGroupStatus(conditions=(condition,)))


async def test_a_pod_gets_a_condition_and_an_event(desk: Desk) -> None:
    """The event says the same, for those who look there."""
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert desk.conditions() == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
            "lastTransitionTime": NOW,
        }
    ]
    assert desk.notes() == [("Warning", "FailedScheduling", "no room")]


async def test_a_nominated_pod_is_told_in_the_same_write(desk: Desk) -> None:
    """Once: what is said while its plan goes on is kept, and the event can wait."""
    later: list[Callable[[], Awaitable[None]]] = []
    desk.reporter.later = later.append
    desk.reporter.nominated(pod("p"), "Unschedulable", "2 pods leave for it")
    await desk.reporter.drained()
    assert desk.statuses() == []
    for _ in range(2):
        await desk.reporter.nominate(pod("p"), "n1")
        desk.reporter.nominated(pod("p"), "Unschedulable", "1 pod leaves for it")
        await desk.reporter.drained()
        (write,) = later
        await write()
        assert desk.notes()[-1] == ("Warning", "FailedScheduling", "2 pods leave for it")
        desk.reporter.forget("uid-default-p")
    first, second = (to_builtins(write.body)["status"] for write in desk.statuses())
    assert (first["nominatedNodeName"], first["conditions"][0]["message"]) == ("n1", "2 pods leave for it")
    assert second == {"nominatedNodeName": "n1"}


async def test_a_pod_that_is_to_be_told_otherwise_is_told_in_its_own_write(desk: Desk) -> None:
    """Before its nomination, which must not be followed by older words; or because its plan has fallen."""
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    desk.reporter.nominated(pod("p"), "Unschedulable", "2 pods leave for it")
    desk.reporter.nominated(pod("q"), "Unschedulable", "2 pods leave for it")
    desk.reporter.pod(pod("q"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert [found["message"] for found in desk.conditions()] == ["2 pods leave for it", "no room"]
    for name in ("p", "q"):
        await desk.reporter.nominate(pod(name), "n1")
    assert [to_builtins(write.body)["status"] for write in desk.statuses()[2:]] == [{"nominatedNodeName": "n1"}] * 2


async def test_a_group_that_is_back_says_so(desk: Desk) -> None:
    """Of a group that is gone, or is evicted once more, there is nothing to say."""
    desk.reporter.recovered(pod_group("pg"), lambda: True)
    desk.reporter.recovered(pod_group("gone"), lambda: True)
    desk.reporter.recovered(composite("evicted-again"), lambda: False)
    await desk.reporter.drained()
    (condition,) = desk.conditions()
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionTarget", "False", "Rescheduled")


async def test_what_was_said_is_not_said_again(desk: Desk) -> None:
    """Neither before the watch shows it nor after, nor by the next process."""
    for _ in range(3):
        desk.reporter.pod(pod("p"), "Unschedulable", "no room")
        await desk.reporter.drained()
    desk.reporter.pod(shown(pod("p"), "no room"), "Unschedulable", "no room")
    desk.reporter.pod(shown(pod("q"), "no room"), "Unschedulable", "no room")
    desk.group(group_shown("False", "too few"), "too few")
    await desk.reporter.drained()
    assert len(desk.statuses()) == 1


async def test_a_burst_of_reports_is_one_write(desk: Desk) -> None:
    """The last word counts."""
    for number in range(50):
        desk.reporter.pod(pod("p"), "Unschedulable", f"attempt {number}")
        desk.group(pod_group("pg"), f"attempt {number}")
    await desk.reporter.drained()
    assert {condition["message"] for condition in desk.conditions()} == {"attempt 49"}
    assert len(desk.statuses()) == 2


async def test_the_last_word_is_sent_after_the_one_before_has_arrived(desk: Desk) -> None:
    """On two connections it could arrive first, and the older one would stay."""
    desk.wire.open.clear()
    for message in ("first", "second", "third"):
        desk.reporter.pod(pod("p"), "Unschedulable", message)
        await asyncio.sleep(0.01)
    assert desk.wire.in_flight == 1
    desk.wire.open.set()
    await desk.reporter.drained()
    assert [condition["message"] for condition in desk.conditions()] == ["first", "third"]


async def test_the_last_word_counts_also_where_it_is_shown_already(desk: Desk) -> None:
    """What was said in between, and is not yet written, must not stay."""
    desk.reporter.pod(shown(pod("p"), "first"), "Unschedulable", "second")
    desk.reporter.pod(shown(pod("p"), "first"), "Unschedulable", "first")
    desk.group(group_shown("False", "first"), "second")
    desk.group(group_shown("False", "first"), "first")
    await desk.reporter.drained()
    assert {condition["message"] for condition in desk.conditions()} == {"first"}


async def test_a_group_gets_the_condition_of_its_kind(desk: Desk) -> None:
    """With the generation that it was judged by."""
    group = composite("root")
    desk.group(replace(group, metadata=replace(group.metadata, generation=7)), "too few")
    await desk.reporter.drained()
    found = desk.conditions()[0]
    assert (found["type"], found["observedGeneration"]) == ("CompositePodGroupInitiallyScheduled", 7)
    assert desk.notes() == [("Warning", "FailedScheduling", "too few")]


async def test_a_group_whose_minimum_is_placed_is_told_so(desk: Desk) -> None:
    """With an empty message, as upstream, in place of the words that stood there before."""
    desk.reporter.group(pod_group("pg"), scheduled=True, reason="", message="")
    await desk.reporter.drained()
    found = desk.conditions()[0]
    assert (found["status"], found["reason"], found["message"]) == ("True", "Scheduled", "")
    assert desk.notes() == [("Normal", "Scheduled", "its minimum has been placed")]


async def test_what_is_final_is_never_taken_back(desk: Desk) -> None:
    """Whether the watch shows it already or not."""
    desk.reporter.group(pod_group("pg"), scheduled=True, reason="", message="")
    desk.group(pod_group("pg"), "too few")
    other = group_shown("True", "")
    desk.group(replace(other, metadata=replace(other.metadata, uid="other")), "too few")
    await desk.reporter.drained()
    assert [condition["status"] for condition in desk.conditions()] == ["True"]


async def test_who_was_decided_about_before_it_became_final_takes_nothing_back(desk: Desk) -> None:
    """The watch has shown it, a failed bind speaks of the group as it was, and then another server's watch does."""
    decided = pod_group("pg")
    desk.reporter.group(decided, scheduled=True, reason="", message="")
    await desk.reporter.drained()
    desk.show(group_shown("True", ""))
    desk.group(decided, "waiting for a volume")
    desk.show(decided)
    desk.group(decided, "refused")
    await desk.reporter.drained()
    assert [condition["status"] for condition in desk.conditions()] == ["True"]
    desk.reporter.forget(decided.metadata.uid)
    desk.group(decided, "too few")
    await desk.reporter.drained()
    assert [condition["status"] for condition in desk.conditions()] == ["True", "False"]


async def test_what_has_become_final_is_looked_for_once_more_before_writing(desk: Desk) -> None:
    """An earlier leader's last word may be seen only now."""
    desk.group(pod_group("pg"), "too few")
    desk.show(group_shown("True", ""))
    await desk.reporter.drained()
    assert desk.wire.writes == []


async def test_what_is_final_and_was_wiped_out_is_said_again(desk: Desk) -> None:
    """As everything that was wiped out."""
    for _ in range(2):
        desk.reporter.group(pod_group("pg"), scheduled=True, reason="", message="")
        await desk.reporter.drained()
        desk.show(group_shown("True", ""))
        desk.reporter.group(pod_group("pg"), scheduled=True, reason="", message="")
        desk.show(pod_group("pg"))
    await desk.reporter.drained()
    assert [condition["status"] for condition in desk.conditions()] == ["True", "True"]


async def test_a_status_that_does_not_change_keeps_its_time(desk: Desk) -> None:
    """Only the words are new."""
    group = group_shown("False", "first")
    old = replace((group.status.conditions or ())[0], last_transition_time="2020-01-01T00:00:00Z")
    desk.group(replace(group, status=PodGroupStatus(conditions=(old,))), "second")
    await desk.reporter.drained()
    assert desk.conditions()[0]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


async def test_an_object_that_is_gone_is_no_trouble(desk: Desk) -> None:
    """It is not even worth a line in the log; other failures are."""
    desk.wire.error = lambda write: ApiError(404 if "/gone" in write.path else 500, "", "")
    for name in ("gone", "other"):
        desk.reporter.pod(pod(name), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert [call.kwargs["uid"] for call in desk.log.calls] == ["uid-default-other"]


async def test_a_cause_is_one_event_whatever_the_numbers(desk: Desk) -> None:
    """A gang arrives member by member: the first words at once, the last when it is there, and few in between."""
    desk.reporter._settle = 0.3
    for missing in range(200, 0, -1):
        words = f"waiting for {missing} more pods"
        desk.reporter.group(pod_group("pg"), scheduled=False, reason="Unschedulable", message=words, cause="too few")
        desk.reporter.pod(pod("p"), "Unschedulable", words, cause="too few")
        if missing % 10 == 0:
            await desk.reporter.drained()
    await asyncio.sleep(0.4)
    await desk.reporter.drained()
    told = [condition["message"] for condition in desk.conditions()]
    assert told[-2:] == ["waiting for 1 more pods"] * 2
    assert len(told) <= 8
    assert [kind for _, kind, _ in desk.notes()] == ["FailedScheduling"] * 2


async def test_the_same_cause_is_the_same_event_to_the_next_process(desk: Desk) -> None:
    """It does not know what was said, and names the event by its cause."""
    desk.reporter.pod(shown(pod("p"), "1 node is full"), "Unschedulable", "2 nodes are full", cause="full")
    desk.reporter.pod(shown(pod("q"), "no nodes"), "Unschedulable", "2 nodes are full")
    await desk.reporter.drained()
    desk.reporter.forget("uid-default-p")
    desk.reporter.pod(shown(pod("p"), "1 node is full"), "Unschedulable", "3 nodes are full", cause="full")
    await desk.reporter.drained()
    names = [write.body["metadata"]["name"] for write in desk.wire.writes if "/events" in write.path]
    assert (len(names), len(set(names))) == (3, 2)


async def test_another_cause_is_told_at_once(desk: Desk) -> None:
    """Also while words about the one before wait for more to come."""
    for message, cause in (("2 nodes", "full"), ("3 nodes", "full"), ("tainted", "taint")):
        desk.reporter.pod(pod("p"), "Unschedulable", message, cause=cause)
        await desk.reporter.drained()
    assert [condition["message"] for condition in desk.conditions()] == ["2 nodes", "tainted"]
    await asyncio.sleep(0.1)
    await desk.reporter.drained()
    assert [note for _, _, note in desk.notes()] == ["2 nodes", "tainted"]


async def test_causes_that_alternate_are_told_once_in_a_while(desk: Desk) -> None:
    """Somebody changes the minimum of his group to and fro; what is so in the end is what stays."""
    desk.reporter._settle = 0.1
    for _ in range(20):
        for cause in ("too few", "no room"):
            desk.reporter.pod(pod("p"), "Unschedulable", cause, cause=cause)
            await desk.reporter.drained()
    assert [condition["message"] for condition in desk.conditions()] == ["too few", "no room"]
    desk.reporter.pod(pod("p"), "Unschedulable", "too few", cause="too few")
    await asyncio.sleep(0.3)
    await desk.reporter.drained()
    told = [condition["message"] for condition in desk.conditions()]
    assert (told[-1], len(told)) == ("too few", 3)
    assert desk.notes()[-1] == ("Warning", "FailedScheduling", "too few")


async def test_what_could_not_be_said_is_said_later(desk: Desk) -> None:
    """Otherwise a pod that is parked would be silent for ever; a newer word takes the place of the failed one."""
    desk.wire.error = lambda _: ApiError(500, "InternalError", "")
    for name in ("p", "q"):
        desk.reporter.pod(pod(name), "Unschedulable", "no room")
    await desk.reporter.drained()
    desk.wire.error = lambda _: None
    desk.reporter.pod(pod("q"), "Unschedulable", "still no room")
    await asyncio.sleep(0.1)
    await desk.reporter.drained()
    assert sorted(condition["message"] for condition in desk.conditions())[:2] == ["no room", "still no room"]


async def test_whatever_could_not_be_said_is_said_later(desk: Desk) -> None:
    """Also that a group is back, and what is said of a node: of neither is it remembered what was said."""
    desk.wire.error = lambda _: ApiError(500, "InternalError", "")
    desk.reporter.recovered(pod_group("pg"), lambda: True)
    desk.reporter.node("n1", "over-committed")
    await desk.reporter.drained()
    desk.wire.error = lambda _: None
    await asyncio.sleep(0.1)
    await desk.reporter.drained()
    assert [condition["type"] for condition in desk.conditions()] == ["DisruptionTarget"]
    assert desk.notes() == [("Warning", "OverCommitted", "over-committed")]


async def test_an_event_that_could_not_be_written_is_written_later(desk: Desk) -> None:
    """Though the watch shows the condition already."""
    desk.wire.error = lambda write: ApiError(500, "InternalError", "") if "/events" in write.path else None
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    desk.reporter.saw(shown(pod("p"), "no room"))
    desk.wire.error = lambda _: None
    await asyncio.sleep(0.1)
    await desk.reporter.drained()
    assert desk.notes() == [("Warning", "FailedScheduling", "no room")]


async def test_what_could_not_be_said_of_the_forgotten_is_dropped(desk: Desk) -> None:
    """There is nobody left to tell."""
    desk.wire.error = lambda _: ApiError(500, "InternalError", "")
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    desk.wire.error = lambda _: None
    desk.reporter.forget("uid-default-p")
    await asyncio.sleep(0.1)
    assert desk.statuses() == []


async def test_a_pod_that_has_its_node_by_now_is_not_told_that_it_has_none(desk: Desk) -> None:
    """The API server says of it that it is scheduled; if nothing comes of it, it is told as if for the first time."""
    desk.reporter.waits = lambda *_: False
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert desk.wire.writes == []
    desk.reporter.waits = lambda *_: True
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert [condition["message"] for condition in desk.conditions()] == ["no room"]


async def test_a_group_that_no_store_has_is_not_written(desk: Desk) -> None:
    """It was deleted while its tree was decided about."""
    desk.group(pod_group("gone"), "no room")
    await desk.reporter.drained()
    assert desk.wire.writes == []


async def test_nothing_is_remembered_of_what_is_forgotten(desk: Desk) -> None:
    """The memory of the process does not grow with what is gone."""
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    desk.reporter.forget("uid-default-p")
    desk.reporter.forget("uid-default-p")
    assert desk.reporter._said == {}


async def test_what_was_wiped_out_is_said_again(desk: Desk) -> None:
    """Once the watch has shown what was said, the object's own word counts; until then, the memory does."""
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    desk.reporter.saw(shown(pod("p"), "something older"))
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    desk.reporter.saw(shown(pod("p"), "no room"))
    assert desk.reporter._said == {}
    desk.reporter.pod(shown(pod("p"), "no room"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert len(desk.statuses()) == 1
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    await desk.reporter.drained()
    assert len(desk.statuses()) == 2


async def test_what_is_still_to_be_written_is_not_forgotten(desk: Desk) -> None:
    """The watch may show an earlier write of the same words while another is on its way."""
    desk.reporter.pod(pod("p"), "Unschedulable", "no room")
    desk.reporter.saw(shown(pod("p"), "no room"))
    assert len(desk.reporter._said) == 1
    desk.reporter.saw(pod("never-spoken-of"))


async def test_a_group_that_has_changed_is_looked_at_anew(desk: Desk) -> None:
    """The condition says of which generation it speaks; the same words are no news, so there is no event."""
    old = group_shown("False", "too few")
    changed = replace(old, metadata=replace(old.metadata, generation=old.metadata.generation + 1))
    desk.group(changed, "too few")
    await desk.reporter.drained()
    assert [condition["observedGeneration"] for condition in desk.conditions()] == [changed.metadata.generation]
    assert desk.notes() == []


async def test_groups_go_before_pods_and_binds_before_both(desk: Desk) -> None:
    """While binds are under way, all but two writers stop after what they had begun to wait for."""
    desk.calm.clear()
    await asyncio.sleep(0)
    for number in range(100):
        desk.reporter.pod(pod(f"p{number}"), "Unschedulable", "no room")
    desk.group(pod_group("pg"), "too few")
    while len(desk.wire.writes) < 2 * WORKERS:  # noqa: ASYNC110 - each step of the loop counts
        await asyncio.sleep(0)
    assert "podgroups/pg" in desk.statuses()[0].path
    desk.wire.most_in_flight = 0
    await asyncio.wait_for(desk.reporter.drained(), 5)
    assert len(desk.statuses()) == 101
    assert desk.wire.most_in_flight <= STEADY


async def test_a_node_is_spoken_of_in_an_event(desk: Desk) -> None:
    """Its status is its kubelet's."""
    desk.reporter.node("n1", "over-committed")
    await desk.reporter.drained()
    assert (desk.statuses(), desk.notes()) == ([], [("Warning", "OverCommitted", "over-committed")])
