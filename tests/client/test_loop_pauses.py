"""Pauses of the event loop: when they are noticed, and for how long they count."""

import asyncio

import pytest

from cpg_client import loop_pauses
from cpg_client.loop_pauses import MIN_SECONDS_OF_PAUSE, SECONDS_TO_NOTICE, LoopPauses


async def test_a_pause_counts_from_its_end_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the beat has noticed it. A short delay is none."""
    monkeypatch.setattr(loop_pauses, "SECONDS_BETWEEN_BEATS", 0.001)
    now = 100.0
    pauses = LoopPauses(lambda: now)
    now += 60.0
    assert pauses.recent() == 0.0
    running = asyncio.create_task(pauses.run())
    await asyncio.sleep(0.01)
    now += MIN_SECONDS_OF_PAUSE
    assert pauses.recent() == 0.0
    await asyncio.sleep(0.01)
    assert pauses.recent() == 0.0
    now += 7.0
    assert pauses.recent() == 7.0
    await asyncio.sleep(0.01)
    assert pauses.recent() == 7.0
    for _ in range(2):
        now += SECONDS_TO_NOTICE / 2
        await asyncio.sleep(0.01)
    # Steps of that size are pauses as well, and newer.
    assert pauses.recent() == SECONDS_TO_NOTICE / 2
    for _ in range(10):
        now += MIN_SECONDS_OF_PAUSE
        await asyncio.sleep(0.01)
    assert pauses.recent() == 0.0
    running.cancel()
