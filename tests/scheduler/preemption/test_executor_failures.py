"""Refused and failing requests of the executor: what is retried, cancelled, completed and retracted."""

import asyncio

import pytest

from cpg_client.errors import ApiError, ClientError, ConnectionFailedError
from cpg_engine.testing.builders import metadata, pod, pod_group
from cpg_scheduler.preemption.executor import MAX_DOUBTFUL_ERRORS
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    Victim,
)
from cpg_scheduler.testing.fake_connection import SentRequest
from cpg_scheduler.testing.job_runner import IN_FLIGHT, JobRunner

NO_RIGHT = 'pods "v0" is forbidden: User "me" cannot delete resource "pods" in the namespace "default"'
FORBIDDEN = ApiError(403, "Forbidden", "no")
INTERNAL = ApiError(500, "InternalError", "")


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


async def test_all_units_of_a_resumed_job_are_completed() -> None:
    """Also where one pod is refused now: pods of any other unit may have been deleted before."""
    runner = JobRunner(is_resumed=True)
    runner.victims = [Victim([pod(f"{unit}{number}", node_name="n1") for number in range(2)]) for unit in "abc"]
    runner.api.error = lambda write: FORBIDDEN if write.method == "DELETE" and write.path.endswith("/a0") else None
    await runner.run()
    assert (runner.refused, sorted(runner.deleted())) == (["a0"], ["a1", "b0", "b1", "c0", "c1"])


async def test_a_condition_of_a_group_that_cannot_be_written_stops_nothing() -> None:
    """The log has it."""
    runner = JobRunner()
    runner.api.error = lambda write: FORBIDDEN if "podgroups" in write.path else None
    await runner.run()
    assert (runner.deleted(), [call.kwargs["event"] for call in runner.log.calls]) == (
        ["v0", "v1"],
        ["status write failed"],
    )


async def test_a_lasting_internal_error_counts_as_a_refusal() -> None:
    """A webhook cannot be called, say: the plan does not wait for ever, and other pods may be evicted instead."""
    runner = JobRunner()
    runner.api.error = lambda write: INTERNAL if write.path.endswith("pods/v0") else None
    await runner.run()
    assert (runner.refused, runner.deleted()) == (["v0"], [])
    assert [one["status"] for one in runner.conditions("v0")] == ["True", "False"]


async def test_evictions_wait_after_a_stall_until_the_stores_are_fresh() -> None:
    """Their conditions wait as well."""
    runner = JobRunner(is_resumed=True)
    runner.seconds_stalled = 10.0
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(0.05)
    assert runner.sent() == []
    runner.seconds_stalled = 0.0
    await running
    assert sorted(runner.deleted()) == ["v0", "v1"]


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
