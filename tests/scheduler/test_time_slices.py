"""Long decisions in time slices: others have their turn, and nothing that a decision reads changes meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import Integrations
from cpg_client.stores import Added
from cpg_engine.testing.builders import node, pod
from cpg_scheduler import time_slices
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.reflectors import ReflectedCluster, ServedKinds, reflectors
from cpg_scheduler.testing.gangs import gang
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.time_slices import TimeSlices

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from cpg_client.connection import Connection

STEPS = 5


class SlicedCall:
    """A call that takes five steps, and records them."""

    def __init__(self, slices: TimeSlices) -> None:
        self.seen: list[str] = []
        self._slices = slices

    def __call__(self) -> str:
        """Take the steps."""
        try:
            for number in range(STEPS):
                self._slices.pause()
                self.seen.append(f"step {number}")
        finally:
            self.seen.append("ended")
        return "result"

    async def others(self) -> None:
        """Record each turn of another task."""
        while True:
            self.seen.append("other")
            await asyncio.sleep(0)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> TimeSlices:
    """Return slices that end at once."""
    monkeypatch.setattr(time_slices, "MAX_SECONDS_PER_SLICE", 0.0)
    return TimeSlices()


async def test_a_call_within_its_slice_is_not_suspended() -> None:
    """So it costs nothing, and others run afterwards."""
    slices = TimeSlices(lambda: 0.0)
    call = SlicedCall(slices)
    others = asyncio.create_task(call.others())
    assert await slices.run(call) == "result"
    assert call.seen == [*(f"step {number}" for number in range(STEPS)), "ended"]
    assert slices.suspended_seconds == 0

    others.cancel()


async def test_others_have_a_turn_after_each_slice(slices: TimeSlices) -> None:
    """Time in which the call is suspended is counted, since it is not its cost."""
    call = SlicedCall(slices)
    others = asyncio.create_task(call.others())
    assert await slices.run(call) == "result"
    assert call.seen == [*(one for number in range(STEPS) for one in ("other", f"step {number}")), "ended"]
    assert slices.suspended_seconds > 0
    others.cancel()


async def test_changes_wait_for_the_end_of_a_call(slices: TimeSlices) -> None:
    """They are applied in order; without a call, at once."""
    call = SlicedCall(slices)
    running = asyncio.create_task(slices.run(call))
    for change in ("one", "two"):
        await asyncio.sleep(0)
        assert slices.is_suspended
        slices.when_free(lambda change=change: call.seen.append(change))  # type: ignore[misc]
    await slices.wait_free()
    assert call.seen[-3:] == ["ended", "one", "two"]
    assert await running == "result"
    slices.when_free(lambda: call.seen.append("three"))
    assert call.seen[-1] == "three"


async def test_a_cancelled_call_is_unwound(slices: TimeSlices) -> None:
    """A search rolls the ledger back that way. A pause on the way out does not suspend it again."""
    call = SlicedCall(slices)

    def with_pause_at_the_end() -> None:
        try:
            call()
        finally:
            slices.pause()
            call.seen.append("unwound")

    running = asyncio.create_task(slices.run(with_pause_at_the_end))
    await asyncio.sleep(0)
    slices.when_free(lambda: call.seen.append("change"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert call.seen == ["ended", "unwound", "change"]
    assert not slices.is_suspended


async def test_an_error_comes_out_of_the_call(slices: TimeSlices) -> None:
    """Also after it was suspended; the next call runs."""

    def fail() -> None:
        slices.pause()
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        await slices.run(fail)
    assert await slices.run(SlicedCall(slices)) == "result"


async def test_a_pause_elsewhere_does_nothing(slices: TimeSlices) -> None:
    """An explanation uses the engine outside of the call, and runs to its end."""
    slices.pause()
    running = asyncio.create_task(slices.run(SlicedCall(slices)))
    await asyncio.sleep(0)
    slices.pause()
    assert await running == "result"


def put_by_watch(cache: ClusterCache) -> Callable[[Pod], None]:
    """Return a function that reports a new pod as the reflector of pods does."""
    nothing = cast("Connection", None)
    found = reflectors(
        nothing, ReflectedCluster(cache, ServedKinds({}, {}), Integrations([], [])), cast("FilteringBoundLogger", None)
    )
    (reflector,) = (one for one in found if one.source.kind is Pod)
    return lambda target: reflector._on_change(Added(target.metadata.key, target))


async def test_what_a_watch_reports_during_a_decision_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes the room meanwhile is seen by the next decision, and the binds are validated before they go."""
    monkeypatch.setattr(time_slices, "MAX_SECONDS_PER_SLICE", 0.0)
    results, theirs = list[dict[str, str]](), pod("theirs", cpu=1, node_name="n3")
    for arrives in (False, True):
        stage = Stage(*(node(f"n{number}", cpu=1) for number in range(4)), *gang("pg", size=4, minimum=4))
        watch = put_by_watch(stage.cache)
        running = asyncio.create_task(stage.loop.run())
        suspensions = 0
        async with asyncio.timeout(10):
            while not stage.binder.batches:
                await asyncio.sleep(0)
                if stage.cache.slices.is_suspended:
                    suspensions += 1
                    if arrives and suspensions == 1:
                        watch(theirs)
                        assert theirs.metadata.uid not in stage.cache.pods
        assert suspensions
        assert (theirs.metadata.uid in stage.cache.pods) is arrives
        results.append(dict(stage.binder.batches[0].nodes))
        running.cancel()
        await asyncio.wait({running})
    assert results[0] == results[1]
