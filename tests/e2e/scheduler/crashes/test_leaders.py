"""Who leads, and who leads no more."""

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import MERGE_PATCH

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Arena

pytestmark = pytest.mark.e2e
IN_FLIGHT = 4


async def test_the_lead_is_handed_over(arena: "Arena") -> None:
    """At once by a leader that ends, after the lease by one that dies; a replica that stands by is ready, too."""
    first = arena.start()
    await arena.until_said(first, "ready")
    second = arena.start()
    await arena.until(lambda: second.ask("/readyz")[0] == 200)
    assert "standing by" in second.ask("/readyz")[1]
    assert first.ask("/readyz") == (200, "ok\n")
    ended = time.monotonic()
    first.process.terminate()
    await arena.until_said(second, "ready", 3)
    taken = time.monotonic() - ended
    assert first.process.wait(5)
    assert (first.process.exit_code, taken < 2) == (0, True)
    third = arena.start()
    await arena.until(lambda: "standing by" in third.ask("/readyz")[1])
    second.process.kill()
    died = time.monotonic()
    await arena.until_said(third, "ready", 6)
    assert 0.5 < time.monotonic() - died < 5
    await arena.create(arena.pod("p"))
    await arena.until_bound(1)


async def test_a_leader_that_was_paused_binds_no_more(arena: "Arena") -> None:
    """It wakes up in the middle of a tree, finds that its lease is over, and ends without deciding to bind again."""
    paused = arena.start(bindsInFlight=IN_FLIGHT)
    await arena.until_said(paused, "ready")
    await arena.create(*arena.tree("first"))
    await arena.until_bound(16)
    async with arena.binds() as binds:
        await arena.create(*arena.tree("tree", size=16))
        for _ in range(3):
            await anext(binds)
        paused.pause()
    await asyncio.sleep(2)  # for what was under way, and for the lease to be over
    bound = await arena.bound()
    assert 19 <= bound < 48
    await arena.connection.patch(arena.lease, {"spec": {"holderIdentity": "somebody-else"}}, MERGE_PATCH)
    paused.resume()
    assert await asyncio.to_thread(paused.process.wait, 5)
    assert paused.process.exit_code == 1
    assert "the lease" in paused.process.tail(2)
    # What is on its way to the server when the process is stopped arrives; nothing is sent after it wakes up.
    assert await arena.bound() == bound
    arena.start()
    await arena.until_whole()
