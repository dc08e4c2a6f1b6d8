"""Binds: sent once, never guessed about, and reported as one event for each batch."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.meta import LabelSelector
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.timing import Timing
from cpg_engine.testing.builders import bare, leaf_template, metadata, node, pod, pod_group, workload
from cpg_scheduler.binding.batch import (
    BindFailure,
    BindInDoubt,
    BindRefused,
)
from cpg_scheduler.testing.binder_fixture import (
    run_others,
    running_binder,
    until,
)
from cpg_scheduler.testing.stage import Stage

SILENCE = ConnectionFailedError("server", "POST", "no answer")
DENIED = ApiError(403, "Forbidden", "by a webhook")


async def test_all_pods_of_a_batch_are_bound() -> None:
    """Each by a request of its own, and there is one event."""
    async with running_binder() as bench:
        bench.start()
    assert sorted(write.path for write in bench.api.writes) == [
        f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"
    ]
    assert {write.body["target"]["name"] for write in bench.api.writes} == {"n1"}
    assert (bench.outcomes, bench.assumed(), bench.binder.active) == (["bound abc"], ["a", "b", "c"], 0)


async def test_active_batches_are_counted() -> None:
    """None is active when the last has ended."""
    async with running_binder() as bench:
        bench.start("ab")
        bench.start("c")
        assert bench.binder.active == 2
        await bench.gate.wait_open()
        assert bench.binder.active == 0
    assert sorted(bench.outcomes) == ["bound ab", "bound c"]


async def test_binds_wait_after_a_stall_until_the_stores_are_fresh() -> None:
    """They were decided before it, and are validated after it."""
    async with running_binder() as bench:
        bench.stage.seconds_stalled = 10.0
        bench.start()
        await asyncio.sleep(0.05)
        assert bench.api.writes == []
        bench.stage.seconds_stalled = 0.0
        await bench.gate.wait_open()
    assert bench.outcomes == ["bound abc"]


async def test_a_batch_waits_for_the_status_writes_of_its_pods() -> None:
    """A condition that arrived after the bind would say that the pod cannot be scheduled. Other batches go on."""
    async with running_binder() as bench:
        with bench.gate.writing("uid-default-a"):
            bench.start("ab")
            bench.start("c")
            await run_others()
            assert [write.path.split("/")[-2] for write in bench.api.writes] == ["c"]
    assert bench.outcomes == ["bound c", "bound ab"]


async def test_a_batch_is_validated_after_the_status_writes_of_its_pods() -> None:
    """Such a write may take a minute, in which another scheduler may have filled the node."""
    async with running_binder() as bench:
        with bench.gate.writing("uid-default-a"):
            bench.start("ab")
            await run_others()
            _cordon(bench.stage)
    assert (bench.outcomes, bench.failure.is_outdated, bench.api.writes) == (["failed ab"], True, [])


async def test_the_number_of_requests_in_flight_is_limited() -> None:
    """A batch is active until its last request has been answered."""
    async with running_binder(in_flight=2) as bench:
        bench.api.open.clear()
        bench.start()
        await run_others()
        assert (bench.binder.active, bench.api.in_flight) == (1, 2)
        bench.start("d")
        await run_others()
        assert bench.api.in_flight == 2
        bench.api.open.set()
    assert (len(bench.api.writes), bench.api.most_in_flight, bench.binder.active) == (4, 2, 0)


@pytest.mark.parametrize(
    ("error", "there", "why"),
    [
        (DENIED, {}, "403 Forbidden: by a webhook"),
        (ApiError(422, "Invalid", "no such thing"), {}, "422 Invalid: no such thing"),
        (ApiError(409, "Conflict", "busy"), {}, "409 Conflict: busy"),
        (ApiError(409, "Conflict", "bound"), {"spec": {"nodeName": "n2"}}, "it is bound to node n2"),
    ],
)
async def test_a_refused_bind_is_forgotten(error: ApiError, there: dict[str, Any], why: str) -> None:
    """The other pods are bound, and the answer of the API server is the problem."""
    async with running_binder() as bench:
        bench.show("b", **there)
        bench.fail("b", error)
        bench.start()
    assert (bench.outcomes, bench.assumed()) == (["failed abc"], ["a", "c"])
    assert bench.failure == BindFailure(frozenset({"uid-default-b"}), BindRefused("default/b", 0, "n1", why))
    assert bench.waits == []


async def test_of_several_refused_binds_the_first_is_reported() -> None:
    """With the number of the others."""
    async with running_binder() as bench:
        bench.api.error = lambda _: DENIED
        bench.start()
    assert bench.failure.uids == {"uid-default-a", "uid-default-b", "uid-default-c"}
    assert bench.failure.problem == BindRefused("default/a", 2, "n1", "403 Forbidden: by a webhook")


@pytest.mark.parametrize(
    "there",
    [
        None,
        {},
        {"metadata": {"uid": "another"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Failed"}},
    ],
    ids=["not found", "gone", "made anew", "terminating", "ended"],
)
async def test_a_pod_that_is_gone_is_not_reported(there: dict[str, Any] | None) -> None:
    """Whether the bind was answered with not found, or with a conflict."""
    async with running_binder() as bench:
        bench.show("b", **(there or {}))
        if there == {}:
            bench.api.objects.clear()
        bench.fail("b", ApiError(404, "NotFound", "") if there is None else ApiError(409, "Conflict", ""))
        bench.start()
    assert (bench.assumed(), bench.failure) == (["a", "c"], BindFailure(frozenset()))
    counted = bench.stage.metrics.page("").body
    assert b'binds_total{result="gone"} 1.0' in counted
    assert b'binds_total{result="error"} 0.0' in counted


async def test_a_conflict_with_our_own_bind_is_a_success() -> None:
    """The pod has the node that it should have."""
    async with running_binder() as bench:
        bench.show("b", spec={"nodeName": "n1"})
        bench.fail("b", ApiError(409, "Conflict", "already assigned"))
        bench.start()
    assert (bench.outcomes, bench.assumed()) == (["bound abc"], ["a", "b", "c"])


@pytest.mark.parametrize("error", [SILENCE, ApiError(504, "Timeout", ""), ApiError(503, "ServiceUnavailable", "")])
async def test_an_unanswered_bind_that_has_worked_is_not_repeated(error: Exception) -> None:
    """The pod is read, and has its node."""
    async with running_binder() as bench:
        bench.show("b", spec={"nodeName": "n1"})
        bench.fail("b", error)
        bench.start()
    assert (bench.outcomes, bench.sent("b"), bench.waits) == (["bound abc"], 0, [1.0])


async def test_an_unanswered_bind_that_has_not_worked_is_repeated() -> None:
    """Until it is answered, with a growing backoff; the pod stays assumed."""
    async with running_binder() as bench:
        assumed = []
        bench.fail("b", *[SILENCE] * 4)
        bench.stage.log.calls.clear()
        bench.start()
        while not bench.outcomes:
            assumed.append(bench.assumed())
            await asyncio.sleep(0)
    assert (bench.outcomes, bench.sent("b"), bench.waits) == (["bound abc"], 1, [1, 2, 4, 8])
    assert all(found == ["a", "b", "c"] for found in assumed)
    assert len(bench.api.reads) == 4


async def test_a_bind_stays_in_doubt_while_its_pod_cannot_be_read() -> None:
    """An outage or an unreadable answer says nothing about the bind before it."""
    async with running_binder() as bench:
        bench.show("b", spec=["odd"])
        answers = iter([SILENCE, ApiError(403, "Forbidden", "not for you"), None, None])
        bench.api.error = lambda write: next(answers) if "/pods/b" in write.path else None
        bench.start()
        await until(lambda: len(bench.waits) == 3)
        assert bench.assumed() == ["a", "b", "c"]
        bench.show("b", spec={"nodeName": "n1"})
    assert bench.outcomes == ["bound abc"]


async def test_a_repeated_internal_error_is_an_answer() -> None:
    """A webhook that cannot be called answers so; if it recovers in time, the bind works."""
    error = ApiError(500, "InternalError", "failed calling webhook")
    async with running_binder() as bench:
        bench.fail("b", *[error] * 3)
        bench.start()
    assert (bench.outcomes, bench.waits) == (["failed abc"], [1, 2])
    assert "failed calling webhook" in str(bench.failure.problem)
    async with running_binder() as bench:
        bench.fail("b", *[error] * 2)
        bench.start()
    assert bench.outcomes == ["bound abc"]


async def test_a_bind_in_doubt_is_reported_once_and_delays_no_other_write() -> None:
    """With the last answer; the gate is open while the binder waits."""
    async with running_binder() as bench:
        now, gate = [100.0], asyncio.Event()

        async def sleep(seconds: float) -> None:
            now[0] += seconds
            bench.waits.append(seconds)
            if len(bench.waits) == 5:
                await gate.wait()

        bench.api.timing = Timing(sleep=sleep, clock=lambda: now[0])
        asked = "POST /api/v1/namespaces/default/pods/b/binding"
        bench.fail("b", SILENCE, *[ApiError(503, "ServiceUnavailable", "overloaded", request=asked)] * 6)
        bench.start()
        await until(lambda: len(bench.waits) == 5)
        problem = BindInDoubt("n1", "503 ServiceUnavailable: overloaded")
        assert bench.delays == [BindFailure(frozenset({"uid-default-b"}), problem)]
        async with asyncio.timeout(1):
            await bench.gate.wait_open()
        assert (bench.outcomes, bench.assumed(), bench.binder.active) == ([], ["a", "b", "c"], 1)
        gate.set()
    assert (bench.outcomes, len(bench.delays)) == (["bound abc"], 1)


async def test_a_bind_in_doubt_occupies_no_worker() -> None:
    """Others are sent meanwhile, and it is sent again when a worker is free."""
    async with running_binder(in_flight=1) as bench:
        silent = asyncio.Event()

        async def sleep(_: float) -> None:
            await silent.wait()

        bench.api.timing = Timing(sleep=sleep)
        bench.fail("a", SILENCE)
        bench.start("ab")
        await run_others()
        assert (bench.sent("a"), bench.sent("b")) == (0, 1)
        bench.api.open.clear()
        bench.start("c")
        await run_others()
        silent.set()
        await run_others()
        assert (bench.outcomes, bench.api.in_flight) == ([], 1)
        bench.api.open.set()
    assert bench.outcomes == ["bound c", "bound ab"]


def _cordon(stage: Stage) -> None:
    stage.put(node("n1", unschedulable=True))


def _delete(stage: Stage) -> None:
    stage.delete(stage.pod("b"))


@pytest.mark.parametrize("happens", [_cordon, _delete])
async def test_an_outdated_batch_is_dropped_before_its_first_bind(happens: Callable[[Stage], None]) -> None:
    """None of its binds is sent."""
    async with running_binder() as bench:
        bench.start()
        happens(bench.stage)
    assert (bench.api.writes, bench.assumed()) == ([], [])
    assert (bench.outcomes, bench.failure.is_outdated, bench.failure.problem) == (["failed abc"], True, None)
    assert bench.binder.active == 0


def _raise_minimum(stage: Stage) -> None:
    stage.put(pod_group("pg", gang=4))


def _change_template(stage: Stage) -> None:
    stage.put(workload([leaf_template("pg", gang=4)]))


def _remove_member(stage: Stage) -> None:
    stage.delete(stage.pod("z"))


def _end_member(stage: Stage) -> None:
    stage.mark_deleted(stage.pod("z"))


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("happens", [_raise_minimum, _change_template, _remove_member, _end_member])
async def test_a_batch_is_dropped_when_a_group_has_lost_its_minimum(
    happens: Callable[[Stage], None],
    waits: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Whether it has waited, as for a status write, or for its turn alone."""
    async with running_binder() as bench:
        bench.stage.put(workload([leaf_template("pg", gang=3)]), bare(pod_group("pg", workload="w")))
        bench.stage.put(*(pod(name, group="pg", node_name="n1" if name == "z" else "") for name in "xyz"))
        with bench.gate.writing("uid-default-x") if waits else nullcontext():
            bench.start("xy")
            await run_others(20 * waits)
            happens(bench.stage)
    assert (bench.outcomes, bench.failure.is_outdated, bench.api.writes) == (["failed xy"], True, [])


async def test_a_batch_below_a_minimum_is_not_dropped_for_that() -> None:
    """Room is reserved for the pods that its group expects, or there would be no decision."""
    async with running_binder() as bench:
        bench.stage.put(pod_group("pg", gang=3), pod("x", group="pg"), pod("y", group="pg"))
        bench.start("xy")
        bench.stage.put(node("n2"), pod_group("pg", gang=4))
    assert bench.outcomes == ["bound xy"]


async def test_a_batch_ends_with_an_earlier_one_of_its_unit() -> None:
    """A late member is not bound without its gang; other units are bound."""
    async with running_binder() as bench:
        bench.start("ab")
        bench.start("c", unit="a")
        bench.start("d")
        _delete(bench.stage)
    assert (bench.outcomes, bench.assumed()) == (["failed ab", "failed c", "bound d"], ["d"])
    assert bench.failure.is_outdated


async def test_a_change_that_does_not_concern_a_batch_does_not_drop_it() -> None:
    """The nodes of its pods are as before."""
    async with running_binder() as bench:
        bench.start()
        bench.stage.put(node("n2"), pod("running", cpu=1, node_name="n1"))
    assert bench.outcomes == ["bound abc"]


async def test_a_violation_of_the_decision_itself_does_not_drop_a_batch() -> None:
    """Otherwise the batch would be dropped and decided the same way for ever."""
    rule = TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector({"app": "web"}),
    )
    async with running_binder() as bench:
        hosts = (node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2"))
        first, second = (metadata(name, app="web") for name in "ab")
        bench.stage.put(*hosts, pod("a", meta=first, topology_spread_constraints=(rule,)), pod("b", meta=second))
        bench.start("ab")
        bench.stage.put(pod("running", node_name="n2"))
    assert bench.outcomes == ["bound ab"]


async def test_a_batch_is_not_dropped_after_its_first_bind() -> None:
    """Half a gang is worse than a gang on a cordoned node."""
    async with running_binder(in_flight=1) as bench:
        bench.start()
        await until(lambda: bench.api.writes)
        _cordon(bench.stage)
    assert bench.outcomes == ["bound abc"]
