"""Who leads, and who leads no more."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import MERGE_PATCH

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
IN_FLIGHT = 4
FOLLOWED = 15.0
"""Seconds after which a leader that dies is followed at the latest, as the chart sets the times."""


async def test_the_lead_is_handed_over(testbed: "Testbed") -> None:
    """At once by a leader that ends, after the lease by one that dies; a replica that stands by is ready, too."""
    first = testbed.start_replica()
    await testbed.wait_for_log(first, "ready")
    second = testbed.start_replica()
    await testbed.wait_until(lambda: second.get("/readyz")[0] == 200)
    assert "standing by" in second.get("/readyz")[1]
    assert first.get("/readyz") == (200, "ok\n")
    ended = time.monotonic()
    first.process.terminate()
    await testbed.wait_for_log(second, "ready", 3)
    taken = time.monotonic() - ended
    assert first.process.wait(5)
    assert (first.process.exit_code, taken < 2) == (0, True)
    third = testbed.start_replica()
    await testbed.wait_until(lambda: "standing by" in third.get("/readyz")[1])
    second.process.kill()
    died = time.monotonic()
    await testbed.wait_for_log(third, "ready", 6)
    assert 0.5 < time.monotonic() - died < 5
    await testbed.create(testbed.pod("p"))
    await testbed.wait_until_bound(1)


async def test_a_leader_that_was_paused_binds_no_more(testbed: "Testbed") -> None:
    """It wakes up in the middle of a tree, finds that its lease is over, and ends without deciding to bind again."""
    paused = testbed.start_replica(bindsInFlight=IN_FLIGHT)
    await testbed.wait_for_log(paused, "ready")
    await testbed.create(*testbed.tree("first"))
    await testbed.wait_until_bound(16)
    async with testbed.watch_binds() as binds:
        await testbed.create(*testbed.tree("tree", size=16))
        for _ in range(3):
            await anext(binds)
        paused.pause()
    await asyncio.sleep(2)  # for what was under way, and for the lease to be over
    bound = await testbed.bound_count()
    assert 19 <= bound < 48
    await testbed.connection.patch(testbed.lease, {"spec": {"holderIdentity": "somebody-else"}}, MERGE_PATCH)
    paused.resume()
    assert await asyncio.to_thread(paused.process.wait, 5)
    assert paused.process.exit_code == 1
    assert "the lease" in paused.process.tail(2)
    # What is on its way to the server when the process is stopped arrives; nothing is sent after it wakes up.
    assert await testbed.bound_count() == bound
    testbed.start_replica()
    await testbed.wait_until_complete()


async def test_a_leader_that_dies_is_followed_in_time(testbed: "Testbed", record_property: Callable[..., None]) -> None:
    """As the chart sets the times, a pod that comes when the leader has just died has its node soon after the lease."""
    times = testbed.settings.get("leaderElection", {})
    leader = testbed.start_replica(leaderElection=times)
    await testbed.wait_for_log(leader, "ready")
    standby = testbed.start_replica(leaderElection=times)
    await testbed.wait_until(lambda: "standing by" in standby.get("/readyz")[1])
    leader.process.kill()
    died = time.monotonic()
    await testbed.create(testbed.pod("p"))
    await testbed.wait_until_bound(1, FOLLOWED)
    taken = time.monotonic() - died
    record_property("seconds from kill to bind", round(taken, 1))
    assert 5 < taken < FOLLOWED
