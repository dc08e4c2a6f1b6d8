"""Outages of the API server and of etcd: no change is lost, and no bind is repeated.

The tests end an outage as soon as the scheduler has noticed it. This shows the same as half a minute would, because
the backoff of the watches is at most five seconds. ``make crash`` has the long outage (``OUTAGE``, seconds).
"""

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.resources import CPG_POD_GROUPS, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
OUTAGE = float(os.environ.get("OUTAGE", "0"))
MAX_SECONDS_UNTIL_NOT_READY = 8.0


async def test_the_scheduler_continues_after_an_outage_of_the_api_server(
    testbed: "Testbed", record: dict[str, Any]
) -> None:
    """The history is compacted as well, so no watch can resume: new lists show what has changed meanwhile."""
    result = record["outage of the API server"] = {"seconds": OUTAGE, "outcome": "incomplete"}
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(
        *testbed.tree("first"), testbed.pod("huge", cpu="5"), testbed.group("pg", 2), testbed.pod("p", group="pg")
    )
    await testbed.wait_until_bound(16)
    await testbed.wait_for_message("p", "waiting for more pods")
    await asyncio.to_thread(testbed.cluster.kill_component, "apiserver")
    await testbed.wait_until(lambda: replica.get("/readyz")[0] == 503, MAX_SECONDS_UNTIL_NOT_READY)
    await asyncio.sleep(OUTAGE)
    assert replica.get("/healthz")[0] == 200
    await asyncio.to_thread(testbed.cluster.start_component, "apiserver")
    back = time.monotonic()
    await testbed.delete(PODS, "p")
    await testbed.create(*(testbed.pod(f"q{number}", group="pg") for number in range(2)), *testbed.tree("second"))
    await testbed.compact_etcd()
    await testbed.wait_until_bound(34)
    await testbed.wait_until(lambda: replica.get("/readyz")[0] == 200)
    await testbed.delete(PODS, "huge")
    await testbed.wait_until_complete()
    assert {one["metadata"]["name"] for one in await testbed.list_objects(CPG_POD_GROUPS)} >= {
        "pg",
        "first-0",
        "second-1",
    }
    bound = [line["binds"] for line in replica.log_lines("bound")]
    assert (sum(bound), replica.log_lines("attempt failed"), replica.process.is_running) == (34, [], True)
    result |= {"outcome": "complete", "seconds_until_complete": round(time.monotonic() - back, 2)}


async def test_the_scheduler_completes_a_tree_after_an_outage_of_etcd(
    testbed: "Testbed", record: dict[str, Any]
) -> None:
    """Binds that fail or get no response in the middle of a tree are retried; the watches stay open."""
    result = record["outage of etcd"] = {"seconds": 2, "outcome": "incomplete"}
    replica = testbed.start_replica("--no-leader-elect", bindsInFlight=2, backoff={"first": 0.2, "most": 1})
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(*testbed.tree("tree", size=12))
    await testbed.wait_until_bound(2)
    await asyncio.to_thread(testbed.cluster.kill_component, "etcd")
    await asyncio.sleep(2)
    await asyncio.to_thread(testbed.cluster.start_component, "etcd")
    back = time.monotonic()
    await testbed.wait_until_complete(60)
    assert replica.process.is_running
    result |= {"outcome": "complete", "seconds_until_complete": round(time.monotonic() - back, 2)}


async def test_a_leader_ends_without_an_api_server_and_new_replicas_wait_for_it(testbed: "Testbed") -> None:
    """The leader cannot renew its lease. New replicas are alive, not ready, and schedule when the server is back."""
    leader = testbed.start_replica()
    await testbed.wait_for_log(leader, "ready")
    await asyncio.to_thread(testbed.cluster.kill_component, "apiserver")
    assert await asyncio.to_thread(leader.process.wait, 10)
    assert (leader.process.exit_code, "could not be renewed" in leader.process.tail(2)) == (1, True)
    waiting = testbed.start_replica()
    alone = testbed.start_replica("--no-leader-elect", schedulerName="another")
    await testbed.wait_for_log(waiting, "lease attempt failed")
    await testbed.wait_for_log(alone, "API server not reached")
    assert [replica.get("/healthz")[0] for replica in (waiting, alone)] == [200, 200]
    assert [replica.get("/readyz")[0] for replica in (waiting, alone)] == [503, 503]
    third = testbed.start_replica("--no-leader-elect", schedulerName="third")
    await testbed.wait_for_log(third, "API server not reached")
    third.process.terminate()
    assert await asyncio.to_thread(third.process.wait, 5)
    assert third.process.exit_code == 0
    await asyncio.to_thread(testbed.cluster.start_component, "apiserver")
    await testbed.create(*testbed.tree("tree"))
    await testbed.wait_until_complete(30)
    await testbed.wait_until(lambda: [replica.get("/readyz")[0] for replica in (waiting, alone)] == [200, 200])
