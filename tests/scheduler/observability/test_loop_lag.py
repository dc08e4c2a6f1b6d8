"""For how long the loop was held up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cpg_scheduler.observability.loop_lag import WINDOW_SECONDS, LoopLag


class Clock:
    """A clock that the test may set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return asyncio.get_running_loop().time() + self.ahead


@pytest.fixture
async def looked() -> AsyncIterator[tuple[Clock, LoopLag]]:
    """Let stalls be looked for as long as the test lasts."""
    clock = Clock()
    stalls = LoopLag(clock)
    work = asyncio.create_task(stalls.run())
    await asyncio.sleep(0.01)
    yield clock, stalls
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_the_longest_stall_is_told(looked: tuple[Clock, LoopLag]) -> None:
    """Whatever shorter ones come after it."""
    clock, stalls = looked
    for stall in (3.0, 7.0, 2.0):
        clock.ahead += stall
        await asyncio.sleep(0.1)
    assert 7.0 <= stalls.longest() + 0.02 < 8.0


async def test_a_stall_is_forgotten_after_a_while(looked: tuple[Clock, LoopLag]) -> None:
    """It is told for a minute at the least, so that whoever asks that often hears of each."""
    clock, stalls = looked
    clock.ahead += 7.0
    await asyncio.sleep(0.1)
    stalls._window_began = clock() - WINDOW_SECONDS
    await asyncio.sleep(0.1)
    assert stalls.longest() > 6.0
    stalls._window_began = clock() - WINDOW_SECONDS
    await asyncio.sleep(0.1)
    assert stalls.longest() < 6.0
