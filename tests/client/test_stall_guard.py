"""What is held after a stall of the process."""

import asyncio

import pytest

from cpg_client import stall_guard
from cpg_client.stall_guard import MAX_SECONDS_STALLED, MAX_SECONDS_UNANSWERED, StallGuard
from cpg_client.watch_health import MAX_SECONDS_TO_RESUME


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


async def test_an_outage_is_held_until_the_server_answers_and_the_stores_have_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its history may be another one then. While it is away, nothing is read for that."""
    monkeypatch.setattr(stall_guard, "SECONDS_BETWEEN_BEATS", 0.001)
    unanswered, fresh, begun = 0.0, asyncio.Event(), asyncio.Event()

    async def catch_up() -> None:
        begun.set()
        await fresh.wait()

    guard = StallGuard(lambda: 100.0, catch_up, lambda: unanswered)
    running = asyncio.create_task(guard.run())
    unanswered = MAX_SECONDS_UNANSWERED - 0.1
    await asyncio.sleep(0.01)
    assert not guard.is_stalled
    unanswered = MAX_SECONDS_UNANSWERED
    await asyncio.sleep(0.01)
    assert (guard.is_stalled, begun.is_set()) == (True, False)
    unanswered = 0.0
    await begun.wait()
    assert (guard.is_stalled, begun.is_set()) == (True, True)
    fresh.set()
    async with asyncio.timeout(5):
        await guard.wait_current()
    running.cancel()


def test_an_outage_is_noticed_while_watches_would_still_resume() -> None:
    """After a longer one they list anew, and no decision comes before these lists."""
    assert MAX_SECONDS_UNANSWERED + stall_guard.SECONDS_BETWEEN_BEATS <= MAX_SECONDS_TO_RESUME
