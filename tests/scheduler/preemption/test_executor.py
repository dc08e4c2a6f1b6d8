"""The executor: in which order a job is written down and performed, and what ends it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import structlog
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError
from cpg_client.resources import CPG_POD_GROUPS, Resource
from cpg_client.timing import Timing
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.testing.builders import metadata, pod, pod_group
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.preemption.evictions import Evictions, JobProgress
from cpg_scheduler.preemption.executor import MAX_DOUBTFUL_ERRORS, EvictionExecutor
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    ClearNominations,
    EvictUnit,
    ExecutorEvent,
    ExecutorInstruction,
    Nominate,
    PlanPrepared,
    PodRefused,
    Preemptor,
    PreparationStopped,
    RetractEvictions,
    UnitEvicted,
    UnitFailed,
    UnitStalled,
    Victim,
)
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.victim_condition import is_victim_of, preemptor_in, victim_message
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest
from cpg_scheduler.write_gate import WriteGate

TREE = pod_group("train", meta=metadata("train", namespace="ml"))
WHOLE = pod_group("whole", all_=True)
PREEMPTOR = Preemptor(GroupKey("PodGroup", "ml", "train"), "uid-train", TREE)
SAID = "cpg-scheduler: preempting to accommodate a higher priority podgroup ml/train uid-train"
REASON = EvictionReason(preemptor=PREEMPTOR.key, node="n1", resource="cpu", amount=1000)
NO_RIGHT = 'pods "v0" is forbidden: User "me" cannot delete resource "pods" in the namespace "default"'
IN_FLIGHT = 9
Related = tuple[Resource, ObjectMeta] | None


async def no_time(_: float) -> None:
    """Wait for nothing."""
    await asyncio.sleep(0)


class WireNominator:
    """Nominates through a connection."""

    def __init__(self, api: FakeConnection) -> None:
        self._api = api

    async def nominate(self, pod: Pod, node: str) -> None:
        """Write the nomination alone."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        await self._api.patch(path, {"status": {"nominatedNodeName": node}})


class JobRunner:
    """An executor and a job for two victims, whose units are started as the machine starts them, unvalidated."""

    def __init__(self, api: FakeConnection | None = None, *, is_resumed: bool = False) -> None:
        self.api = api or FakeConnection(Timing(sleep=no_time))
        self.metrics = Metrics("", lambda: 0.0)
        self.log = structlog.testing.CapturingLogger()
        self.inbox, self.gate, self.outbox = EventInbox(), WriteGate(), Outbox()
        self.evictions = Evictions(IN_FLIGHT, self.outbox)
        self.is_resumed = is_resumed
        self.is_valid = True
        self.refused: list[str] = []
        self.victims = [
            Victim([pod(name, node_name="n1")], REASON, groups) for name, groups in (("v0", [WHOLE]), ("v1", []))
        ]
        self.nominations = [] if is_resumed else [(pod("p0"), "n1")]
        self.pods_to_evict: Callable[[Victim], Sequence[Pod] | None] = lambda victim: victim.pods
        self.events: list[tuple[str, Preemptor, EvictionReason | None, Related]] = []
        self.tasks: asyncio.TaskGroup
        self.executor: EvictionExecutor

    def preempted(self, pod: Pod, preemptor: Preemptor, reason: EvictionReason | None, related: Related) -> None:
        """Keep an event."""
        self.events.append((pod.metadata.name, preemptor, reason, related))

    async def run(self, *instructions: ExecutorInstruction, job: bool = True) -> None:
        """Perform instructions, then the job, to the end."""
        async with asyncio.TaskGroup() as self.tasks:
            self.executor = EvictionExecutor(
                cast("Connection", self.api),
                lambda _: CPG_POD_GROUPS,
                self.tasks,
                inbox=self.inbox,
                gate=self.gate,
                nominator=WireNominator(self.api),
                events=self,
                scheduler_name="cpg-scheduler",
                metrics=self.metrics,
                log=structlog.wrap_logger(self.log, processors=[]),
                in_flight=IN_FLIGHT,
            )
            for instruction in instructions:
                self.executor.perform(instruction)
            if job:
                self.evictions.start(
                    PREEMPTOR,
                    self.victims,
                    preemption=None,
                    nominations=self.nominations,
                    is_resumed=self.is_resumed,
                )
            await self._drive()
            await self.gate.wait_open()

    async def _drive(self) -> None:
        while True:
            while (found := self.evictions.next()) is not None:
                self._start(*found)
            for instruction in self.outbox.take():
                self.executor.perform(cast("ExecutorInstruction", instruction))
            if not len(self.evictions):
                return
            await self.inbox.wait_for_event()
            for event in self.inbox.take():
                self._handle(event)

    def _start(self, progress: JobProgress, number: int) -> None:
        job, victim = progress.job, progress.job.victims[number]
        pods = None if self.refused and not job.is_resumed else self.pods_to_evict(victim)
        if not pods:
            self.evictions.finish(job.id, number, has_worked=pods is not None)
            return
        is_partial = job.is_resumed or len(pods) < len(victim.pods)
        self.outbox.add(EvictUnit(job.id, number, replace(victim, pods=pods), is_partial))

    def _handle(self, event: ExecutorEvent) -> None:
        progress = self.evictions.get(event.job_id)
        match event:
            case PlanPrepared() if self.is_valid:
                self.evictions.proceed(progress)
            case PlanPrepared() | PreparationStopped():
                self.outbox.clear_nominations(one for one, _ in self.nominations)
                self.evictions.end(progress, has_worked=False)
            case PodRefused():
                self.refused.append(event.pod.metadata.name)
                if not self.is_resumed:
                    self.outbox.add(CancelJob(event.job_id))
            case UnitStalled():
                self.evictions.stall(event.job_id, event.number)
            case UnitEvicted() | UnitFailed():
                has_worked = isinstance(event, UnitEvicted)
                self.evictions.finish(event.job_id, event.number, has_worked=has_worked)

    def unite(self) -> None:
        """Make both victims one unit."""
        pods = [victim.pods[0] for victim in self.victims]
        self.victims = [Victim(pods, REASON, [WHOLE])]

    def deleted(self) -> list[str]:
        """Return the pods whose deletion was requested, dry runs aside."""
        deletions = (one for one in self.api.writes if one.method == "DELETE" and "dryRun" not in one.body)
        return [write.path.rsplit("/")[-1] for write in deletions]

    def conditions(self, name: str) -> list[dict[str, Any]]:
        """Return the conditions that were written on a pod."""
        path = f"pods/{name}/status"
        found = (write.body["status"].get("conditions", ()) for write in self.api.writes if write.path.endswith(path))
        return [one for conditions in found for one in conditions]

    def marks(self, name: str = "whole") -> list[str]:
        """Return the status of the conditions that were written on a group."""
        found = (one for one in self.api.writes if one.path.endswith(f"podgroups/{name}/status"))
        return [one.body["status"]["conditions"][0].status for one in found]

    def sent(self) -> list[str]:
        """Return what was sent, in short."""
        return [f"{write.method} {write.path.rsplit('namespaces/default/')[-1]}" for write in self.api.writes]


def marked(name: str) -> Pod:
    """Return a pod with the condition of a victim."""
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=SAID)
    return replace(pod(name, node_name="n1"), status=PodStatus(conditions=(condition,)))


FORBIDDEN = ApiError(403, "Forbidden", "no")
INTERNAL = ApiError(500, "InternalError", "")


async def test_pods_are_nominated_before_the_first_eviction_and_each_victim_is_marked_before_its_deletion() -> None:
    """So a new leader can tell how far a job has come."""
    runner = JobRunner()
    await runner.run()
    sent = runner.sent()
    assert sent[:2] == ["PATCH pods/p0/status", "PATCH podgroups/whole/status"]
    assert sent[2:] == [
        "PATCH pods/v0/status",
        "DELETE pods/v0",
        "PATCH pods/v1/status",
        "DELETE pods/v1",
    ]
    assert [name for name, *_ in runner.events] == ["v0", "v1"]


async def test_all_pods_of_a_unit_are_marked_before_the_first_deletion() -> None:
    """After dry runs of all deletions. So a new leader recognises the unit by the pods that are left."""
    runner = JobRunner()
    runner.unite()
    await runner.run()
    dry_runs, sent = runner.sent()[:2], runner.sent()[4:8]
    assert ([one.body.get("dryRun") for one in runner.api.writes[:2]], dry_runs) == (
        [["All"], ["All"]],
        ["DELETE pods/v0", "DELETE pods/v1"],
    )
    assert sent == ["PATCH pods/v0/status", "PATCH pods/v1/status", "DELETE pods/v0", "DELETE pods/v1"]
    assert not any("dryRun" in one.body for one in runner.api.writes[6:8])


async def test_a_unit_stays_if_the_dry_run_of_one_deletion_is_refused() -> None:
    """No pod has been marked by then, and none nominated."""
    runner = JobRunner()
    runner.unite()
    runner.api.error = lambda write: FORBIDDEN if write.path.endswith("/v1") else None
    await runner.run()
    assert (runner.refused, runner.sent(), runner.deleted()) == (
        ["v1"],
        ["DELETE pods/v0", "PATCH pods/p0/status"],
        [],
    )


async def test_a_webhook_without_dry_runs_refuses_nothing() -> None:
    """It has side effects, and the API server says so."""
    runner = JobRunner()
    runner.unite()
    unsupported = ApiError(400, "BadRequest", "admission webhook does not support dry run")
    runner.api.error = lambda write: unsupported if write.body and "dryRun" in write.body else None
    await runner.run()
    assert (runner.refused, runner.deleted()) == ([], ["v0", "v1"])


async def test_a_unit_of_which_a_pod_has_been_deleted_is_completed() -> None:
    """A pod of it that is refused is retracted."""
    runner = JobRunner()
    runner.unite()
    runner.api.error = lambda write: (
        FORBIDDEN if write.method == "DELETE" and "dryRun" not in write.body and "/v0" in write.path else None
    )
    await runner.run()
    assert (runner.refused, runner.deleted()) == (["v0"], ["v1"])
    assert [one["status"] for one in runner.conditions("v0")] == ["True", "False"]
    assert [one["status"] for one in runner.conditions("v1")] == ["True"]
    assert runner.marks() == ["True", "False"]


async def test_a_marked_group_is_retracted_if_no_pod_of_it_is_deleted() -> None:
    """The refusal of its first pod's condition ends the job; no other group is marked."""
    runner = JobRunner()
    runner.unite()
    others = Victim([pod("w0", node_name="n1"), pod("w1", node_name="n1")], groups=[pod_group("other", all_=True)])
    runner.victims.append(others)
    runner.api.error = lambda write: FORBIDDEN if write.path.endswith("/v0/status") else None
    await runner.run()
    assert (runner.deleted(), runner.marks(), runner.marks("other")) == ([], ["True", "False"], [])


async def test_a_refusal_cancels_all_units_that_have_not_been_started() -> None:
    """At most as many units are in flight as requests. A marked pod that stays is retracted."""
    runner = JobRunner()
    runner.victims = [Victim([pod(f"v{number}", node_name="n1")]) for number in range(100)]
    runner.api.error = lambda write: FORBIDDEN if write.method == "DELETE" and write.path.endswith("/v5") else None
    await runner.run()
    marked_pods = {name for name in (f"v{number}" for number in range(100)) if runner.conditions(name)}
    assert (runner.refused, len(runner.deleted()) < 30, len(marked_pods) < 30) == (["v5"], True, True)
    staying = {name for name in marked_pods if runner.conditions(name)[-1]["status"] == "False"}
    assert staying == marked_pods - set(runner.deleted())
    assert "v5" in staying


async def test_a_unit_that_is_not_started_is_not_marked() -> None:
    """Its eviction would be in vain: the preemptor was deleted while another unit was evicted."""
    runner = JobRunner()
    runner.pods_to_evict = lambda one: one.pods if one.pods[0].metadata.name == "v0" else None
    await runner.run()
    assert (runner.deleted(), bool(runner.conditions("v1")), runner.refused) == (["v0"], False, [])


async def test_condition_nomination_and_precondition_are_those_of_kube_scheduler() -> None:
    """The condition and the event name the preemptor."""
    runner = JobRunner()
    await runner.run()
    by = {f"{write.method} {'/'.join(write.path.split('/')[-2:])}": write for write in runner.api.writes}
    (condition,) = by["PATCH v0/status"].body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "DisruptionTarget",
        "True",
        "PreemptionByScheduler",
        SAID,
    )
    assert by["PATCH p0/status"].body["status"] == {"nominatedNodeName": "n1"}
    (shown,) = by["PATCH whole/status"].body["status"]["conditions"]
    assert (shown.type, shown.reason, shown.message) == ("DisruptionTarget", "PreemptionByScheduler", SAID)
    assert by["DELETE pods/v0"].body["preconditions"] == {"uid": "uid-default-v0"}
    name, preemptor, reason, related = runner.events[0]
    assert (name, preemptor, reason) == ("v0", PREEMPTOR, REASON)
    assert related is not None
    assert (related[0].kind, related[1].name, related[1].uid) == ("PodGroup", "train", "uid-train")


async def test_nominations_are_cleared_if_the_plan_is_not_valid_any_more() -> None:
    """No victim is deleted."""
    runner = JobRunner()
    runner.is_valid = False
    await runner.run()
    assert runner.sent()[-1] == "PATCH pods/p0/status"
    assert runner.api.writes[-1].body["status"] == {"nominatedNodeName": None}
    assert not any(write.method == "DELETE" for write in runner.api.writes)


@pytest.mark.parametrize("message", ["no", NO_RIGHT])
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_a_refused_scout_ends_the_job(method: str, message: str) -> None:
    """The first unit of a namespace goes ahead, so that one request finds out what is forbidden there."""
    runner = JobRunner()
    forbidden = ApiError(403, "Forbidden", message)
    runner.api.error = lambda write: forbidden if write.method == method and "/v0" in write.path else None
    await runner.run()
    assert runner.refused == ["v0"]
    assert not any(write.method == "DELETE" for write in runner.api.writes)


@pytest.mark.parametrize(
    "error",
    [
        INTERNAL,
        ApiError(429, "TooManyRequests", ""),
        ApiError(401, "Unauthorized", ""),
        ApiError(403, "Forbidden", NO_RIGHT),
        ApiError(409, "Conflict", "the object has been modified"),
        ConnectionFailedError("", "", ""),
    ],
)
async def test_transient_errors_are_retried(error: ClientError) -> None:
    """Each request fails twice."""
    runner = JobRunner()
    failures: list[SentRequest] = []

    def fail(write: SentRequest) -> ClientError | None:
        failures.append(write)
        return error if len(failures) % 3 else None

    runner.api.error = fail
    await runner.run()
    deleted = [write.path for write in runner.api.writes if write.method == "DELETE"]
    assert (len(deleted), runner.refused) == (2, [])


@pytest.mark.parametrize(
    "error",
    [
        ApiError(404, "NotFound", ""),
        ApiError(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b"),
        ApiError(409, "Conflict", "another object has this name: v0"),
    ],
)
async def test_a_victim_that_is_gone_is_no_failure(error: ClientError) -> None:
    """Also where another pod has its name by now."""
    runner = JobRunner()
    runner.api.error = lambda write: error if "/v0" in write.path else None
    await runner.run()
    assert (runner.refused, "DELETE pods/v1" in runner.sent()) == ([], True)


async def test_a_resumed_job_has_no_dry_run_and_marks_no_pod_twice() -> None:
    """A previous leader had begun to evict the unit."""
    runner = JobRunner(is_resumed=True)
    runner.victims = [Victim([marked("v0"), pod("v1", node_name="n1")])]
    await runner.run()
    assert (runner.conditions("v0"), len(runner.conditions("v1")), runner.deleted()) == ([], 1, ["v0", "v1"])
    assert not any("dryRun" in write.body for write in runner.api.writes)


async def test_all_units_of_a_resumed_job_are_completed() -> None:
    """Also where one pod is refused now: pods of any other unit may have been deleted before."""
    runner = JobRunner(is_resumed=True)
    runner.victims = [Victim([pod(f"{unit}{number}", node_name="n1") for number in range(2)]) for unit in "abc"]
    runner.api.error = lambda write: FORBIDDEN if write.method == "DELETE" and write.path.endswith("/a0") else None
    await runner.run()
    assert (runner.refused, sorted(runner.deleted())) == (["a0"], ["a1", "b0", "b1", "c0", "c1"])


async def test_conditions_of_victims_that_stay_are_retracted() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(RetractEvictions([pod("v0"), pod("v1")]), job=False)
    assert [runner.conditions(name)[0]["status"] for name in ("v0", "v1")] == ["False", "False"]


async def test_nominations_are_cleared() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(ClearNominations([pod("p0"), pod("p1")]), job=False)
    assert [write.body["status"] for write in runner.api.writes] == [{"nominatedNodeName": None}] * 2


async def test_a_pod_is_nominated_to_another_node() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(Nominate(pod("p0"), "n2"), job=False)
    assert [write.body["status"] for write in runner.api.writes] == [{"nominatedNodeName": "n2"}]


async def test_a_condition_of_a_group_that_cannot_be_written_stops_nothing() -> None:
    """The log has it."""
    runner = JobRunner()
    runner.api.error = lambda write: FORBIDDEN if "podgroups" in write.path else None
    await runner.run()
    assert runner.deleted() == ["v0", "v1"]
    assert [call.kwargs["event"] for call in runner.log.calls] == ["status write failed"]


async def test_the_duration_of_a_job_is_measured() -> None:
    """By the kind of the preemptor and the result."""
    runner = JobRunner()
    await runner.run()
    page = runner.metrics.page("").body.decode()
    assert 'preemption_execution_duration_seconds_count{preemptor="podgroup",result="success"} 1.0' in page


async def test_status_writes_wait_until_a_job_has_ended() -> None:
    """The gate is closed from its first request to its last, and between two units as well."""
    runner = JobRunner()
    gates: list[bool] = []

    def note(_: object) -> None:
        gates.append(runner.gate.is_open)

    def evict(victim: Victim) -> Sequence[Pod]:
        note(victim)
        return victim.pods

    runner.api.error, runner.pods_to_evict = note, evict
    await runner.run()
    assert (set(gates), len(gates), runner.gate.is_open) == ({False}, 8, True)


def test_a_condition_tells_the_victims_of_one_preemptor_from_others() -> None:
    """By the UID at its end."""
    assert is_victim_of(marked("v"), "uid-train")
    assert not is_victim_of(marked("v"), "train")
    assert not is_victim_of(pod("v"), "uid-train")


@pytest.mark.parametrize("kind", ["Pod", "PodGroup", "CompositePodGroup"])
def test_a_condition_names_the_preemptor(kind: str) -> None:
    """So a new leader knows it; conditions of other schedulers are not ours."""
    preemptor = Preemptor(GroupKey(kind, "ml", "big"), "uid-1")
    assert preemptor_in("cpg-scheduler", victim_message("cpg-scheduler", preemptor)) == preemptor
    assert preemptor_in("cpg-scheduler", victim_message("other-scheduler", preemptor)) is None
    assert preemptor_in("cpg-scheduler", "default-scheduler: preempting to accommodate a higher priority pod") is None


async def test_a_retracted_pod_that_is_evicted_after_all_is_marked_again() -> None:
    """After the retraction, though the watch may still show the older condition."""
    runner = JobRunner()
    victim = marked("v0")
    runner.victims = [Victim([victim])]
    await runner.run(RetractEvictions([victim]))
    assert ([one["status"] for one in runner.conditions("v0")], runner.deleted()) == (["False", "True"], ["v0"])


async def test_a_lasting_internal_error_counts_as_a_refusal() -> None:
    """A webhook cannot be called, say: the plan does not wait for ever, and other pods may be evicted instead."""
    runner = JobRunner()
    runner.api.error = lambda write: INTERNAL if write.path.endswith("pods/v0") else None
    await runner.run()
    assert (runner.refused, runner.deleted()) == (["v0"], [])
    assert [one["status"] for one in runner.conditions("v0")] == ["True", "False"]


async def test_stalled_units_give_their_places_to_others() -> None:
    """As many cannot be deleted as may be in flight, and each is retried."""
    runner = JobRunner()
    pods = [pod(f"v{n}", node_name="n1", meta=metadata(f"v{n}", namespace=f"ns{n}")) for n in range(2 * IN_FLIGHT)]
    runner.victims = [Victim([one]) for one in pods]
    lost = ConnectionFailedError("", "", "")
    stalled = {f"v{number}" for number in range(IN_FLIGHT)}

    def fail(write: SentRequest) -> ClientError | None:
        is_waiting = len(runner.deleted()) < IN_FLIGHT and write.method == "DELETE"
        return lost if is_waiting and write.path.rpartition("/")[2] in stalled else None

    runner.api.error = fail
    async with asyncio.timeout(10):
        await runner.run()
    assert (set(runner.deleted()[:IN_FLIGHT]) & stalled, len(runner.deleted())) == (set(), 2 * IN_FLIGHT)


@pytest.mark.parametrize(
    "then",
    [
        INTERNAL,
        ApiError(503, "ServiceUnavailable", ""),
        ConnectionFailedError("", "", ""),
    ],
)
async def test_deletions_are_retried_without_end_once_a_pod_of_the_unit_is_deleted(then: ClientError) -> None:
    """The refusal is reported once, and the plan does not wait for it; no unit is left in part."""
    runner = JobRunner()
    runner.unite()
    failures = 0

    def fail(write: SentRequest) -> ClientError | None:
        nonlocal failures
        is_it = write.method == "DELETE" and "dryRun" not in write.body and write.path.endswith("/v1")
        failures += is_it
        found = INTERNAL if failures <= MAX_DOUBTFUL_ERRORS + 1 else then
        return found if is_it and failures < 3 * MAX_DOUBTFUL_ERRORS else None

    runner.api.error = fail
    await runner.run()
    assert (runner.refused, runner.deleted(), runner.marks()) == (["v1"], ["v0", "v1"], ["True"])


async def test_deletions_are_given_up_if_no_pod_of_the_unit_is_deleted() -> None:
    """The eviction would be in vain when the server has recovered."""
    runner = JobRunner()
    runner.unite()
    runner.api.error = lambda write: INTERNAL if write.method == "DELETE" and "dryRun" not in write.body else None
    await runner.run()
    assert (set(runner.refused), runner.deleted(), runner.marks()) == ({"v0", "v1"}, [], ["True", "False"])


async def test_the_deletion_of_the_last_pod_of_a_unit_is_retried_without_end() -> None:
    """The others have ended by themselves, or before a restart."""
    runner = JobRunner()
    runner.unite()
    runner.pods_to_evict = lambda one: one.pods[1:]
    failures = 0

    def fail(write: SentRequest) -> ClientError | None:
        nonlocal failures
        is_it = write.method == "DELETE" and "dryRun" not in write.body
        failures += is_it
        return INTERNAL if is_it and failures < 2 * MAX_DOUBTFUL_ERRORS else None

    runner.api.error = fail
    await runner.run()
    assert (runner.refused, runner.deleted()) == (["v1"], ["v1"])


async def test_a_unit_without_running_pods_is_not_marked() -> None:
    """All have ended when it would start."""
    runner = JobRunner()
    runner.unite()
    runner.pods_to_evict = lambda _: ()
    await runner.run()
    assert (runner.deleted(), runner.marks(), runner.refused) == ([], [], [])


async def test_nominations_of_a_prepared_job_can_be_cleared() -> None:
    """The plan breaks when its first unit would start, because that unit has changed."""
    runner = JobRunner()

    def break_plan(_: Victim) -> None:
        runner.outbox.clear_nominations([runner.nominations[0][0]])

    runner.pods_to_evict = break_plan
    await runner.run()
    written = [write.body["status"] for write in runner.api.writes if write.path.endswith("p0/status")]
    assert written[0] == {"nominatedNodeName": "n1"}
    assert written[-1] == {"nominatedNodeName": None}


async def test_a_cancelled_job_nominates_no_pod() -> None:
    """The preemptor is deleted while the deletions are asked for in a dry run."""
    runner = JobRunner()
    runner.unite()

    def cancel(write: SentRequest) -> None:
        if write.path.endswith("/v1"):
            runner.executor.perform(CancelJob(1))

    runner.api.error = cancel
    await runner.run()
    assert (runner.deleted(), runner.conditions("v0")) == ([], [])
    assert [write.body["status"] for write in runner.api.writes if "p0" in write.path] == [{"nominatedNodeName": None}]


async def test_a_cancelled_unit_is_retracted_before_its_first_deletion() -> None:
    """Its second pod is refused while the first is being marked."""
    runner = JobRunner()
    runner.unite()

    def cancel(write: SentRequest) -> None:
        if write.path.endswith("/v1/status"):
            runner.executor.perform(CancelJob(1))

    runner.api.error = cancel
    await runner.run()
    assert (runner.deleted(), runner.marks()) == ([], ["True", "False"])
    assert [one["status"] for one in runner.conditions("v0")] == ["True", "False"]
