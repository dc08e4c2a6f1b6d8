"""Leader election of the scheduler: handover, takeover, and the loss of the lease."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import MERGE_PATCH

if TYPE_CHECKING:
    from aiohttp import web
    from tests.e2e.api_proxy import ApiProxy, Refuse
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
IN_FLIGHT = 4
MAX_TAKEOVER_SECONDS = 15.0
"""From the death of the leader to the first bind of the next one, with the times of the chart."""


async def test_a_standby_takes_over_when_the_leader_ends_or_dies(testbed: "Testbed") -> None:
    """A leader that ends releases its lease, so the standby leads at once; otherwise the lease must expire first.

    A standby is ready, too.
    """
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


async def test_a_paused_leader_stops_binding_when_its_lease_has_expired(
    testbed: "Testbed", api_proxy: "ApiProxy"
) -> None:
    """It resumes in the middle of a tree, notices the expired lease, and ends without another bind."""
    paused = testbed.start_replica(proxy=api_proxy, bindsInFlight=IN_FLIGHT)
    await testbed.wait_for_log(paused, "ready")
    await testbed.create(*testbed.tree("first"))
    await testbed.wait_until_bound(16)
    api_proxy.refuse = at_bind(3, paused.pause)
    await testbed.create(*testbed.tree("tree", size=16))
    await testbed.wait_until_bound(19)
    await asyncio.sleep(2)  # requests in flight arrive, and the lease expires
    bound = await testbed.bound_count()
    assert 19 <= bound < 19 + IN_FLIGHT
    await testbed.connection.patch(testbed.lease, {"spec": {"holderIdentity": "another-replica"}}, MERGE_PATCH)
    paused.resume()
    assert await asyncio.to_thread(paused.process.wait, 5)
    assert paused.process.exit_code == 1
    assert "the lease" in paused.process.tail(2)
    # Requests that were in flight at the pause have arrived; the resumed process sends none.
    assert await testbed.bound_count() == bound
    testbed.start_replica()
    await testbed.wait_until_complete()


def at_bind(number: int, act: Callable[[], None]) -> "Refuse":
    """Act when the API proxy gets the bind with this number, and refuse nothing."""
    binds = itertools.count(1)

    def watch(request: "web.Request") -> int:
        if request.path.endswith("/binding") and next(binds) == number:
            act()
        return 0

    return watch


async def test_a_standby_binds_soon_after_the_lease_of_a_dead_leader(
    testbed: "Testbed", record_property: Callable[..., None]
) -> None:
    """With the times of the chart, a pod created after the death of the leader is bound within the limit."""
    times = testbed.settings.get("leaderElection", {})
    leader = testbed.start_replica(leaderElection=times)
    await testbed.wait_for_log(leader, "ready")
    standby = testbed.start_replica(leaderElection=times)
    await testbed.wait_until(lambda: "standing by" in standby.get("/readyz")[1])
    leader.process.kill()
    died = time.monotonic()
    await testbed.create(testbed.pod("p"))
    await testbed.wait_until_bound(1, MAX_TAKEOVER_SECONDS)
    taken = time.monotonic() - died
    record_property("seconds from kill to bind", round(taken, 1))
    assert 5 < taken < MAX_TAKEOVER_SECONDS
