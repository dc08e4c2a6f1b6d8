"""A decision that takes longer than the lease: nothing ends, and others have their turn meanwhile."""

import asyncio
import datetime as dt
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.e2e.scheduler.crashes.conftest import BLOCK, RACK, CreateRequest

from cpg_client.leader_election import LeaseRecord
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
LEASE = {"leaseDuration": 6, "renewDeadline": 4.5, "retryPeriod": 0.5}
"""Seconds; the API server of a busy machine takes a part of them."""
PODS, TERMS = 45, 800
SLOW = """
import sys, time
from cpg_scheduler.time_slices import TimeSlices

pause, left = TimeSlices.pause, 4.0

def spend(slices):
    global left
    until = time.perf_counter() + 0.002
    while slices._call is not None and left > 0 and time.perf_counter() < until:
        pass
    left -= 0.002
    pause(slices)

TimeSlices.pause = spend
from cpg_scheduler.__main__ import main
sys.exit(main())
"""
"""A scheduler whose first steps of a search take 2 ms more each, so that a decision takes seconds on any machine."""
MIN_SECONDS = 2.0
MAX_PROBE_SECONDS = 1.5


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster of 1,000 nodes in 100 racks."""
    with Cluster(ClusterSpec(nodes=(NodePool.parse("10 blocks x 10 racks x 10 nodes, cpu=64"),))) as cluster:
        yield cluster


def hostile(testbed: "Testbed") -> list[CreateRequest]:
    """Return a gang for one rack whose pods have many terms, and whose last pod fits nowhere; only a trial shows it."""
    terms = [
        {"labelSelector": {"matchLabels": {"absent": f"x{number}"}}, "topologyKey": RACK} for number in range(TERMS)
    ]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    never = {
        "maxSkew": 1,
        "minDomains": 99,
        "topologyKey": BLOCK,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    pods = [testbed.pod(f"pod-{number:02}", group="hostile", cpu="100m", affinity=apart) for number in range(PODS)]
    for _, body in pods:
        body["metadata"]["labels"]["app"] = "web"
    pods[-1][1]["spec"]["topologySpreadConstraints"] = [never]
    return [testbed.group("hostile", PODS, key=RACK), *pods]


async def lease_age(testbed: "Testbed") -> float:
    """Return the seconds since the last renewal, by the same clock as the replicas'."""
    found = msgspec.json.decode(await testbed.connection.get(testbed.lease))
    renewed = msgspec.convert(found["spec"], LeaseRecord).renew_time
    assert renewed is not None
    return time.time() - dt.datetime.fromisoformat(renewed).timestamp()


def whole_attempts(leader: Replica) -> list[dict[str, Any]]:
    """Return the log lines of attempts at the whole gang."""
    return [line for line in leader.log_lines("attempt") if line["pods"] == PODS]


async def test_a_decision_that_is_longer_than_the_lease_ends_no_replica(testbed: "Testbed") -> None:
    """The lease is renewed in time, probes are answered, and another pod is bound right after."""
    options: dict[str, Any] = {"leaderElection": LEASE, "search": {"budget": 10_000}}
    leader = testbed.start_replica(program=SLOW, **options)
    await testbed.wait_for_log(leader, "ready")
    standby = testbed.start_replica(**options)
    await testbed.wait_until(lambda: standby.get("/readyz")[0] == 200)
    await testbed.create(*hostile(testbed))
    ages, probes, began = list[float](), list[float](), time.monotonic()
    other_pod = False
    while not (attempts := whole_attempts(leader)) and time.monotonic() - began < 90:
        ages.append(await lease_age(testbed))
        asked = time.monotonic()
        status, body = await asyncio.to_thread(leader.get, "/readyz")
        probes.append(time.monotonic() - asked)
        assert status == 200, (body, leader.process.output()[-1000:])
        if not other_pod and len(ages) > 5:
            other_pod = True
            await testbed.create(testbed.pod("other"))
        await asyncio.sleep(0.1)
    attempt = attempts[0]
    assert attempt["finding"] == "NotFound"
    assert attempt["milliseconds"] > 1000 * MIN_SECONDS, "the decision is not long enough to show anything"
    assert max(ages) < LEASE["leaseDuration"]
    assert max(probes) < MAX_PROBE_SECONDS
    assert other_pod
    await testbed.wait_until_bound(1, 5)
    assert [replica.process.exit_code for replica in (leader, standby)] == [None, None]
    assert not [line for line in standby.log_lines("leader") if line["is_ours"]]
