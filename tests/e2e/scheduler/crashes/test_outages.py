"""The API server or its store goes away and comes back: nothing is lost, nothing is done twice.

An outage that ends when it has been noticed stands for one of half a minute, because the watches' waits grow to five
seconds and no further; ``make crash`` has the long one (``OUTAGE``, seconds).
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
NOTICED = 8.0


async def test_an_api_server_may_go_and_come_back(testbed: "Testbed", record: dict[str, Any]) -> None:
    """Its history is gone, too, so the watches cannot go on: what happened meanwhile is found all the same."""
    told = record["outage of the API server"] = {"seconds": OUTAGE, "outcome": "not whole"}
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(
        *testbed.tree("first"), testbed.pod("huge", cpu="5"), testbed.group("pg", 2), testbed.pod("p", group="pg")
    )
    await testbed.wait_until_bound(16)
    await testbed.wait_for_message("p", "waiting for more pods")
    await asyncio.to_thread(testbed.cluster.kill_component, "apiserver")
    await testbed.wait_until(lambda: replica.get("/readyz")[0] == 503, NOTICED)
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
    told |= {"outcome": "whole", "seconds_until_whole": round(time.monotonic() - back, 2)}


async def test_a_store_may_go_and_come_back(testbed: "Testbed", record: dict[str, Any]) -> None:
    """In the middle of a tree: what is refused, or not answered, is tried again; the watches live on meanwhile."""
    told = record["outage of the store"] = {"seconds": 2, "outcome": "not whole"}
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
    told |= {"outcome": "whole", "seconds_until_whole": round(time.monotonic() - back, 2)}


async def test_a_leader_without_an_api_server_gives_up(testbed: "Testbed") -> None:
    """It cannot know whether it still leads; whoever starts afterwards waits for the server, and goes on."""
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
