"""What is held after a stall of the process."""

import asyncio

import pytest

from cpg_client import stall_guard
from cpg_client.stall_guard import MAX_SECONDS_STALLED, StallGuard


async def test_a_stall_is_held_until_the_stores_have_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that takes longer than a stall. Short delays hold nothing."""
    monkeypatch.setattr(stall_guard, "SECONDS_BETWEEN_BEATS", 0.001)
    now, fresh, begun = 100.0, asyncio.Event(), asyncio.Event()

    async def catch_up() -> None:
        begun.set()
        await fresh.wait()

    guard = StallGuard(lambda: now, catch_up)
    running = asyncio.create_task(guard.run())
    await asyncio.sleep(0.01)
    now += MAX_SECONDS_STALLED
    assert not guard.is_stalled
    await asyncio.sleep(0.01)
    now += MAX_SECONDS_STALLED + 1
    waiting = asyncio.create_task(guard.wait_current())
    await begun.wait()
    now += 60.0
    await asyncio.sleep(0.03)
    assert (guard.is_stalled, waiting.done()) == (True, False)
    fresh.set()
    async with asyncio.timeout(5):
        await waiting
    assert not guard.is_stalled
    running.cancel()
