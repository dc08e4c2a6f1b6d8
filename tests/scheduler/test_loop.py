"""The loop: when it runs passes, when it sleeps, and how it ends."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Container, ContainerPort
from cpg_engine.testing.builders import node, pod
from cpg_scheduler import cycle as scheduling_cycle
from cpg_scheduler.binding.batch import BindSucceeded
from cpg_scheduler.testing.gangs import gang
from cpg_scheduler.testing.stage import Stage


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def end(task: asyncio.Task[None]) -> None:
    """End a task."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_loop_sleeps_until_it_is_woken() -> None:
    """Then it runs until no unit is active."""
    stage = Stage(node("n1"))
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    stage.put(pod("p"))
    await asyncio.sleep(0)
    assert stage.binder.batches == []
    stage.inbox.wake()
    await until(lambda: bool(stage.binder.batches))
    await end(running)


async def test_changes_that_activate_no_unit_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """While thousands of pods end, there is not a pass for each; an active unit does not wait longer."""
    monkeypatch.setattr(scheduling_cycle, "GATHERING_SECONDS", 0.2)
    stage = Stage(node("n1"))
    passes: list[bool] = []
    run_pass = stage.loop.run_pass

    def counted() -> bool:
        passes.append(run_pass())
        return passes[-1]

    monkeypatch.setattr(stage.loop, "run_pass", counted)
    running = asyncio.create_task(stage.loop.run())
    await until(lambda: len(passes) == 1)
    for number in range(20):
        stage.put(pod(f"theirs{number}", node_name="n1"))
        stage.inbox.wake()
        await asyncio.sleep(0)
    assert passes == [False]
    stage.put(pod("p"))
    await until(lambda: bool(stage.binder.batches))
    assert passes.count(False) <= 2
    await end(running)


async def test_the_loop_wakes_when_a_backoff_ends() -> None:
    """Without any event. What the unit waited for was not room, which would have ended the backoff."""
    ports = (ContainerPort(host_port=80),)
    first, second = (pod(name, containers=(Container(name="main", ports=ports),)) for name in ("first", "second"))
    stage = Stage(node("n1"), replace(first, spec=replace(first.spec, node_name="n1")), second)
    stage.run_passes()
    stage.delete(stage.pod("first"))
    stage.run_passes()
    stage.now = 1.24
    await stage.loop._sleep()
    assert stage.binder.batches == []
    stage.now = 1.3
    assert stage.run_passes() == 1
    assert len(stage.binder.batches) == 1


async def test_many_passes_yield_to_other_tasks() -> None:
    """Watches and binds share the event loop."""
    stage = Stage(node("n1"), *(pod(f"p{number}") for number in range(20)))
    ticks = iter(range(10**6))
    stage.loop._clock = lambda: float(next(ticks))
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    assert 0 < len(stage.binder.batches) < 20
    await until(lambda: len(stage.binder.batches) == 20)
    await end(running)


async def test_many_steps_of_other_tasks_follow_a_long_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change takes several steps of the event loop from its socket to the cache."""
    stage = Stage(node("n1"))
    steps, seen = 0, list[int]()

    def run_pass() -> bool:
        stage.now += 1.0
        seen.append(steps)
        return True

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(stage.loop, "run_pass", run_pass)
    running, counting = asyncio.create_task(stage.loop.run()), asyncio.create_task(count())
    await until(lambda: len(seen) == 3)
    assert seen[2] - seen[1] > 10
    await end(running)
    await end(counting)


async def test_outcomes_are_handled_after_attempts_have_stopped() -> None:
    """The process is about to end: what was begun is reported, and no unit is attempted any more."""
    stage = Stage(node("n1"), *gang("pg"))
    running = asyncio.create_task(stage.loop.run())
    await until(lambda: bool(stage.binder.batches))
    stage.loop.stop_attempts()
    await asyncio.sleep(0)
    stage.put(pod("late"))
    stage.inbox.wake()
    (batch,) = stage.binder.batches
    stage.cache.binds_in_flight.end(batch.id, batch.nodes)
    stage.inbox.put(BindSucceeded(batch))
    await until(lambda: stage.status.groups == {"pg": (True, "", "")})
    assert [len(found.nodes) for found in stage.binder.batches] == [2]
    await end(running)


async def test_no_unit_is_attempted_where_the_process_ends_before_it_leads() -> None:
    """Nor is a preemption taken up."""
    stage = Stage(node("n1"), pod("p"))
    stage.loop.stop_attempts()
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    assert (stage.binder.batches, stage.executor.is_idle) == ([], True)
    await end(running)


async def test_outcomes_are_handled_while_changes_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of evictions makes room for the next, so none waits for a pass."""
    monkeypatch.setattr(scheduling_cycle, "GATHERING_SECONDS", 60.0)
    stage = Stage(node("n1"), *gang("pg"))
    running = asyncio.create_task(stage.loop.run())
    await until(lambda: bool(stage.binder.batches))
    await asyncio.sleep(0)
    stage.inbox.wake()
    await asyncio.sleep(0)
    (batch,) = stage.binder.batches
    stage.inbox.put(BindSucceeded(batch))
    await until(lambda: len(stage.queue) == 0)
    await end(running)


async def test_nothing_is_decided_after_a_stall_before_the_stores_are_fresh() -> None:
    """A process that was suspended resumes with old data; its queue is not lost."""
    stage = Stage(node("n1"))
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    stage.seconds_stalled = 10.0
    stage.put(pod("p"))
    stage.inbox.wake()
    await asyncio.sleep(0.05)
    assert stage.binder.batches == []
    stage.seconds_stalled = 0.0
    await until(lambda: bool(stage.binder.batches))
    await end(running)
