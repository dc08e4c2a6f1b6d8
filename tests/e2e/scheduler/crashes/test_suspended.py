"""A leader that is suspended for longer than its lease, while a standby takes over."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import NODES, PODS

if TYPE_CHECKING:
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
IN_FLIGHT = 4
SECONDS_SUSPENDED = 5.0


async def test_a_suspended_leader_writes_nothing_after_its_standby_took_over(
    testbed: "Testbed", api_proxy: "ApiProxy"
) -> None:
    """It has binds and status writes left from before; the proxy sees none of them when it resumes."""
    suspended = testbed.start_replica(proxy=api_proxy, bindsInFlight=IN_FLIGHT)
    await testbed.wait_for_log(suspended, "ready")
    standby = testbed.start_replica()
    await testbed.wait_until(lambda: "standing by" in standby.get("/readyz")[1])
    api_proxy.at(6, suspended.pause)
    await testbed.create(*testbed.tree("tree"), testbed.pod("huge", cpu="5"))
    await testbed.wait_for_log(standby, "ready")
    await testbed.create(*testbed.tree("next"))
    await testbed.wait_until_bound(32)
    written = api_proxy.writes
    assert written >= 6
    finished = [line for line in standby.log_lines("attempt") if line["root"].endswith("/tree") and line["binds"]]
    assert finished, "the leader was suspended too late to leave anything to do"
    suspended.resume()
    assert await asyncio.to_thread(suspended.process.wait, 5)
    assert (suspended.process.exit_code, "the lease" in suspended.process.tail(2)) == (1, True)
    assert api_proxy.writes == written
    assert standby.log_lines("attempt failed") == []


async def test_a_process_that_was_suspended_decides_on_what_happened_meanwhile(testbed: "Testbed") -> None:
    """Without leader election. Other pods have taken all nodes but one, and the backoff of its own pods has ended."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    nodes = [one["metadata"]["name"] for one in await testbed.list_objects(NODES)]
    await testbed.create(*(testbed.pod(f"fill-{name}", cpu="3", nodeName=name) for name in nodes))
    await testbed.create(*(testbed.pod(f"own-{name}", cpu="2") for name in nodes))
    await testbed.wait_for_pod_conditions()
    replica.pause()
    for name in nodes:
        await testbed.delete(PODS, f"fill-{name}")
    await asyncio.sleep(SECONDS_SUSPENDED)
    await testbed.create(*(testbed.pod(f"other-{name}", cpu="4", nodeName=name) for name in nodes[1:]))
    replica.resume()
    await testbed.wait_until_bound(len(nodes) + 1)
    await asyncio.sleep(1.0)
    assert (await testbed.overcommitted_cpus(), await testbed.bound_count()) == ({}, len(nodes) + 1)
