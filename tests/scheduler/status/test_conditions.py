"""Conditions and events: written once, again only when they change, and never taken back once final."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_scheduler.status.attempts import AttemptResult
from cpg_scheduler.status.updates import GroupStatusUpdate, PodStatusUpdate

if TYPE_CHECKING:
    from tests.scheduler.status.conftest import StatusFixture


OVERCOMMITTED = (
    "Warning",
    "OverCommitted",
    "its pods request more than it has: cpu by 1; of cpg-scheduler are default/p",
)


def with_condition(found: Pod, message: str) -> Pod:
    """Return a pod with the condition that it is unschedulable."""
    condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return replace(found, status=PodStatus(conditions=(condition,)))


def group_with_condition(status: str, message: str, finding: str = "") -> PodGroup:
    """Return a group with an InitiallyScheduled condition, and by default with the attempt that belongs to it."""
    reason = "Scheduled" if status == "True" else "Unschedulable"
    attempt = LastAttempt(finding or ("Placed" if status == "True" else "GroupMissing"))
    group = pod_group("pg")
    condition = Condition(
        type="PodGroupInitiallyScheduled",
        status=status,
        reason=reason,
        message=message,
        observed_generation=group.metadata.generation,
    )
    return replace(group, status=PodGroupStatus(conditions=(condition,), attempt=attempt))


async def let_settle(status: "StatusFixture") -> None:
    """Wait until writes that settle have been sent too."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await status.writer.drained()


async def test_a_pod_gets_a_condition_and_an_event_with_the_same_message(status: "StatusFixture") -> None:
    """The condition has kube-scheduler's type."""
    status.report(pod("p"), "no room")
    await status.writer.drained()
    assert status.conditions() == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
            "lastTransitionTime": "2026-11-18T12:00:00Z",
        }
    ]
    assert status.events() == [("Warning", "FailedScheduling", "no room")]


async def test_a_nominated_pod_gets_its_condition_with_the_nomination(status: "StatusFixture") -> None:
    """Once: reports while its plan goes on are kept, and the event can wait."""
    status.report_nominated(pod("p"), "2 pods are evicted")
    await status.writer.drained()
    assert status.status_writes() == []
    for _ in range(2):
        await status.writer.nominate(pod("p"), "n1")
        status.report_nominated(pod("p"), "1 pod is evicted")
        await status.writer.drained()
        (write,) = status.deferred
        await write()
        assert status.events()[-1] == ("Warning", "FailedScheduling", "2 pods are evicted")
        status.writer.forget("uid-default-p")
    first, second = (to_builtins(write.body)["status"] for write in status.status_writes())
    assert (first["nominatedNodeName"], first["conditions"][0]["message"]) == ("n1", "2 pods are evicted")
    assert second == {"nominatedNodeName": "n1"}


async def test_a_report_that_is_replaced_before_the_nomination_is_written_by_itself(status: "StatusFixture") -> None:
    """An older report is due and must not follow the nomination; or the plan was dropped."""
    status.report(pod("p"), "no room")
    status.report_nominated(pod("p"), "2 pods are evicted")
    status.report_nominated(pod("q"), "2 pods are evicted")
    status.report(pod("q"), "no room")
    await status.writer.drained()
    assert status.messages() == ["2 pods are evicted", "no room"]
    for name in ("p", "q"):
        await status.writer.nominate(pod(name), "n1")
    nominations = [to_builtins(write.body)["status"] for write in status.status_writes()[2:]]
    assert nominations == [{"nominatedNodeName": "n1"}] * 2


async def test_a_recovered_group_is_no_disruption_target(status: "StatusFixture") -> None:
    """A group that was deleted, or is being evicted once more, is left alone."""
    status.report_recovered(pod_group("pg"))
    status.report_recovered(pod_group("gone"))
    status.report_recovered(composite("evicted-again"), still=False)
    await status.writer.drained()
    (condition,) = status.conditions()
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionTarget", "False", "Rescheduled")


async def test_the_same_report_is_written_once(status: "StatusFixture") -> None:
    """Whether the watch shows it already or not, and also by the next process."""
    for _ in range(3):
        status.report(pod("p"), "no room")
        await status.writer.drained()
    status.report(with_condition(pod("p"), "no room"), "no room")
    status.report(with_condition(pod("q"), "no room"), "no room")
    status.report(group_with_condition("False", "too few"), "too few")
    await status.writer.drained()
    assert len(status.status_writes()) == 1


async def test_the_last_report_is_written_also_where_the_object_shows_it_already(status: "StatusFixture") -> None:
    """A report in between, which is not written yet, must not stay."""
    status.report(with_condition(pod("p"), "first"), "second")
    status.report(with_condition(pod("p"), "first"), "first")
    status.report(group_with_condition("False", "first"), "second")
    status.report(group_with_condition("False", "first"), "first")
    await status.writer.drained()
    assert set(status.messages()) == {"first"}


async def test_a_group_gets_the_condition_of_its_kind_with_its_generation(status: "StatusFixture") -> None:
    """The generation is that of the group that was attempted."""
    group = composite("root")
    status.report(replace(group, metadata=replace(group.metadata, generation=7)), "too few")
    await status.writer.drained()
    found = status.conditions()[0]
    assert (found["type"], found["observedGeneration"]) == ("CompositePodGroupInitiallyScheduled", 7)
    assert status.events() == [("Warning", "FailedScheduling", "too few")]


async def test_a_group_whose_minimum_is_placed_has_an_empty_message(status: "StatusFixture") -> None:
    """As upstream; it replaces the message from before."""
    status.report_scheduled(pod_group("pg"))
    await status.writer.drained()
    found = status.conditions()[0]
    assert (found["status"], found["reason"], found["message"]) == ("True", "Scheduled", "")
    assert status.events() == [("Normal", "Scheduled", "its minimum has been placed")]


async def test_a_scheduled_group_is_never_reported_as_unscheduled(status: "StatusFixture") -> None:
    """Whether the watch shows it already or not."""
    status.report_scheduled(pod_group("pg"))
    status.report(pod_group("pg"), "too few")
    other = group_with_condition("True", "")
    status.report(replace(other, metadata=replace(other.metadata, uid="other")), "too few")
    await status.writer.drained()
    assert {condition["status"] for condition in status.conditions()} == {"True"}


async def test_a_report_about_an_older_state_of_a_scheduled_group_is_dropped(status: "StatusFixture") -> None:
    """A failed bind reports about the group as it was decided; another API server's watch may show that state again."""
    decided = pod_group("pg")
    status.report_scheduled(decided)
    await status.writer.drained()
    status.show(group_with_condition("True", ""))
    status.report(decided, "waiting for a volume")
    status.show(decided)
    status.report(decided, "refused")
    await status.writer.drained()
    assert {condition["status"] for condition in status.conditions()} == {"True"}
    status.writer.forget(decided.metadata.uid)
    status.report(decided, "too few")
    await status.writer.drained()
    assert [condition["status"] for condition in status.conditions()] == ["True", "True", "False"]


async def test_whether_a_group_is_scheduled_is_checked_again_before_writing(status: "StatusFixture") -> None:
    """The watch may show the report of an earlier leader only now."""
    status.report(pod_group("pg"), "too few")
    status.show(group_with_condition("True", ""))
    await status.writer.drained()
    assert status.api.writes == []


async def test_a_final_condition_that_was_wiped_out_is_written_again(status: "StatusFixture") -> None:
    """As any other."""
    for _ in range(2):
        status.report_scheduled(pod_group("pg"))
        await status.writer.drained()
        status.show(group_with_condition("True", ""))
        status.report_scheduled(pod_group("pg"))
        status.show(pod_group("pg"))
    await status.writer.drained()
    assert [condition["status"] for condition in status.conditions()] == ["True", "True"]


async def test_a_status_that_does_not_change_keeps_its_transition_time(status: "StatusFixture") -> None:
    """Only the message is new."""
    group = group_with_condition("False", "first")
    old = replace((group.status.conditions or ())[0], last_transition_time="2020-01-01T00:00:00Z")
    status.report(replace(group, status=replace(group.status, conditions=(old,))), "second")
    await status.writer.drained()
    assert status.conditions()[0]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


async def test_the_event_of_a_cause_has_one_name_across_processes(status: "StatusFixture") -> None:
    """The next process does not know what was reported, and names the event by its cause."""
    status.report(with_condition(pod("p"), "1 node is full"), "2 nodes are full", cause="full")
    status.report(with_condition(pod("q"), "no nodes"), "2 nodes are full")
    await status.writer.drained()
    status.writer.forget("uid-default-p")
    status.report(with_condition(pod("p"), "1 node is full"), "3 nodes are full", cause="full")
    await status.writer.drained()
    names = [write.body["metadata"]["name"] for write in status.api.writes if "/events" in write.path]
    assert (len(names), len(set(names))) == (3, 2)


async def test_a_pod_that_has_got_its_node_is_not_reported_as_unscheduled(status: "StatusFixture") -> None:
    """The API server marks it as scheduled; if its bind fails, it is reported as if for the first time."""
    status.pods["uid-default-p"] = pod("p", node_name="n1")
    status.report(pod("p"), "no room")
    await status.writer.drained()
    assert status.api.writes == []
    del status.pods["uid-default-p"]
    status.report(pod("p"), "no room")
    await status.writer.drained()
    assert status.messages() == ["no room"]


async def test_a_pod_whose_bind_is_in_flight_says_what_it_waits_for(status: "StatusFixture") -> None:
    """It counts as bound already, and once the outcome is known, there is nothing to wait for."""
    status.pods["uid-default-p"] = pod("p", node_name="n1")
    status.binds_in_flight.begin(1, ["uid-default-p"])
    status.writer.write(PodStatusUpdate(pod("p"), "BindInDoubt", "no answer", while_binding=True))
    status.writer.write(PodStatusUpdate(pod("q"), "Unschedulable", "no room"))
    await status.writer.drained()
    assert [condition["reason"] for condition in status.conditions()] == ["BindInDoubt", "Unschedulable"]
    status.binds_in_flight.end(1, ["uid-default-p"])
    status.writer.write(PodStatusUpdate(pod("p"), "BindInDoubt", "still no answer", while_binding=True))
    await status.writer.drained()
    assert len(status.conditions()) == 2


async def test_a_group_that_was_deleted_is_not_written(status: "StatusFixture") -> None:
    """It was deleted while its unit was attempted."""
    status.report(pod_group("gone"), "no room")
    await status.writer.drained()
    assert status.api.writes == []


async def test_nothing_is_remembered_of_a_deleted_pod(status: "StatusFixture") -> None:
    """The memory of the process does not grow with deleted objects."""
    status.report(pod("p"), "no room")
    await status.writer.drained()
    status.writer.forget("uid-default-p")
    status.writer.forget("uid-default-p")
    assert status.writer._reported == {}


async def test_a_condition_that_was_wiped_out_is_written_again(status: "StatusFixture") -> None:
    """Once the watch has shown a report, the object's own condition counts; until then, the memory does."""
    status.report(pod("p"), "no room")
    await status.writer.drained()
    status.writer.on_seen(with_condition(pod("p"), "something older"))
    status.report(pod("p"), "no room")
    status.writer.on_seen(with_condition(pod("p"), "no room"))
    assert status.writer._reported == {}
    status.report(with_condition(pod("p"), "no room"), "no room")
    await status.writer.drained()
    assert len(status.status_writes()) == 1
    status.report(pod("p"), "no room")
    await status.writer.drained()
    assert len(status.status_writes()) == 2


async def test_a_report_that_is_not_written_yet_is_not_forgotten(status: "StatusFixture") -> None:
    """The watch may show an earlier write of the same message while another one is due."""
    status.report(pod("p"), "no room")
    status.writer.on_seen(with_condition(pod("p"), "no room"))
    assert len(status.writer._reported) == 1
    status.writer.on_seen(pod("never-reported"))


async def test_a_reason_that_was_not_reported_overwrites_the_shown_one(status: "StatusFixture") -> None:
    """While the watch has not shown a report, or a nomination is to bring one, a change may be our own."""
    plain, shown = pod("p"), with_condition(pod("p"), "no room")
    reason = PodCondition(type="PodScheduled", status="False", reason="WaitingForGroup", message="too few")
    late = replace(plain, status=PodStatus(conditions=(reason,)))
    status.report(plain, "no room")
    assert not status.writer.is_overwritten(late, shown)
    await status.writer.drained()
    assert not status.writer.is_overwritten(late, shown)
    status.writer.on_seen(shown)
    assert status.writer.is_overwritten(shown, late)
    assert not status.writer.is_overwritten(shown, with_condition(plain, "less room"))
    assert not status.writer.is_overwritten(plain, late)
    status.report_nominated(plain, "evicting")
    assert not status.writer.is_overwritten(late, shown)


async def test_a_new_generation_of_a_group_is_written_without_an_event(status: "StatusFixture") -> None:
    """The condition names the generation that it is about; the message is the same."""
    old = group_with_condition("False", "too few")
    changed = replace(old, metadata=replace(old.metadata, generation=old.metadata.generation + 1))
    status.report(changed, "too few")
    await status.writer.drained()
    assert [condition["observedGeneration"] for condition in status.conditions()] == [changed.metadata.generation]
    assert status.events() == []


async def test_a_node_gets_an_event_and_no_condition(status: "StatusFixture") -> None:
    """Its status belongs to its kubelet."""
    status.report_overcommitted("n1")
    await status.writer.drained()
    assert (status.status_writes(), status.events()) == ([], [OVERCOMMITTED])


async def test_a_group_gets_its_attempt_in_the_request_of_its_condition(status: "StatusFixture") -> None:
    """The API of Kubernetes has no field for it, so native groups get none."""
    for name in ("pg", "native"):
        status.report(pod_group(name), "no group", number=3)
    await status.writer.drained()
    assert [len(to_builtins(write.body)["status"]["conditions"]) for write in status.status_writes()] == [1, 1]
    (attempt,) = status.attempts()
    assert attempt == {
        "finding": "GroupMissing",
        "time": "2026-11-18T12:00:00Z",
        "number": 3,
        "blockedAt": {"kind": "PodGroup", "name": "missing"},
        "nextStep": {
            "remedy": "CreateGroup",
            "kind": "PodGroup",
            "name": "missing",
            "text": "create PodGroup default/missing",
        },
    }


@pytest.mark.parametrize("status", [0.0], indirect=True)
async def test_attempts_without_news_are_written_seldom(status: "StatusFixture") -> None:
    """A pending group is attempted every 10 s for two hours: 6 requests in the first, 4 in the second, and no event."""
    hour = 360
    for number in range(2 * hour):
        status.report(pod_group("pg"), "no group", number=number)
        status.report(pod_group("native"), "no group", number=number)
        await let_settle(status)
        status.seconds += 10.0
    written = [attempt["number"] for attempt in status.attempts()]
    assert len(status.status_writes()) == len(written) + 1
    assert [number for number in written if number < hour] == [0, 6, 18, 42, 90, 186, 282]
    assert [number for number in written if number >= hour] == [378, 474, 570, 666]
    assert len(status.events()) == 2


@pytest.mark.parametrize("status", [0.0], indirect=True)
async def test_thousands_of_groups_do_not_refresh_their_attempts_at_once(status: "StatusFixture") -> None:
    """Beyond a burst, all groups together have a rate."""
    groups = [pod_group(f"pg-{number}") for number in range(1000)]
    for number in range(10):
        for group in groups:
            status.report(group, "no group", number=number)
        await let_settle(status)
        status.seconds += 61.0
    assert len(status.status_writes()) <= 1000 + 100 + 2 * 610


async def test_the_attempt_follows_a_condition_that_the_operator_has_written(status: "StatusFixture") -> None:
    """It says the same, so there is no event; the attempt is missing."""
    seen = group_with_condition("False", "the tree is invalid")
    status.show(replace(seen, status=replace(seen.status, attempt=None)))
    for _ in range(2):
        status.report(pod_group("pg"), "the tree is invalid")
    await status.writer.drained()
    assert [attempt["finding"] for attempt in status.attempts()] == ["GroupMissing"]
    assert (status.messages(), status.events()) == (["the tree is invalid"], [])


async def test_the_attempt_of_a_group_that_was_placed_once_goes_on(status: "StatusFixture") -> None:
    """Its condition is final, but some of its pods may be gone, and what replaces them may have no room."""
    status.show(group_with_condition("True", ""))
    for _ in range(2):
        status.report(pod_group("pg"), "too few")
        await status.writer.drained()
    status.show(group_with_condition("True", "", "GroupMissing"))
    for _ in range(2):
        status.report_scheduled(pod_group("pg"))
        await status.writer.drained()
    assert [attempt["finding"] for attempt in status.attempts()] == ["GroupMissing", "Placed"]
    assert [(one["status"], one["message"]) for one in status.conditions()] == [("True", "")] * 2
    assert status.events() == []


async def test_a_repeated_report_does_not_cancel_the_event_of_the_first(status: "StatusFixture") -> None:
    """The first is not written yet when the tree is attempted again, with the same result or only another finding."""
    status.report(pod_group("pg"), "too few")
    status.report(pod_group("pg"), "too few")
    status.report(pod_group("other"), "too few")
    failure = AttemptResult(problem=ValueError())
    status.writer.write(
        GroupStatusUpdate(
            pod_group("other"), scheduled=False, attempt=failure, reason="Unschedulable", message="too few"
        )
    )
    await status.writer.drained()
    assert status.events() == [("Warning", "FailedScheduling", "too few")] * 2


async def test_an_api_server_with_older_kinds_gets_the_condition_alone(status: "StatusFixture") -> None:
    """It refuses the field; other refusals are reported as usual."""
    refusal = ApiError(500, "InternalError", "failed to create typed patch object: field not declared in schema")
    status.api.error = lambda write: refusal if "attempt" in write.body.get("status", ()) else None
    status.report(pod_group("pg"), "too few")
    await status.writer.drained()
    assert [to_builtins(write.body)["status"].keys() for write in status.status_writes()] == [{"conditions"}]
    status.api.error = lambda _: ApiError(500, "InternalError", "etcd is down")
    status.report(pod_group("other"), "too few")
    await status.writer.drained()
    assert [call.kwargs["event"] for call in status.log.calls] == ["status write failed"]
