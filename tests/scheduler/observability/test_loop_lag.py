"""The lag of the event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cpg_scheduler.observability.loop_lag import WINDOW_SECONDS, LoopLag


class Clock:
    """A clock that the test can set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return asyncio.get_running_loop().time() + self.ahead


@pytest.fixture
async def measured() -> AsyncIterator[tuple[Clock, LoopLag]]:
    """Measure the lag for as long as the test lasts."""
    clock = Clock()
    lag = LoopLag(clock)
    work = asyncio.create_task(lag.run())
    await asyncio.sleep(0.01)
    yield clock, lag
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_the_longest_lag_is_reported(measured: tuple[Clock, LoopLag]) -> None:
    """Also after shorter ones."""
    clock, lag = measured
    for seconds in (3.0, 7.0, 2.0):
        clock.ahead += seconds
        await asyncio.sleep(0.1)
    assert 7.0 <= lag.longest() + 0.02 < 8.0


async def test_a_lag_is_forgotten_after_two_windows(measured: tuple[Clock, LoopLag]) -> None:
    """It is reported for at least one, so Prometheus sees every lag."""
    clock, lag = measured
    clock.ahead += 7.0
    await asyncio.sleep(0.1)
    lag._window_began = clock() - WINDOW_SECONDS
    await asyncio.sleep(0.1)
    assert lag.longest() > 6.0
    lag._window_began = clock() - WINDOW_SECONDS
    await asyncio.sleep(0.1)
    assert lag.longest() < 6.0
