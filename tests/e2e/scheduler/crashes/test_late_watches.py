"""A standby whose watches are late: it takes over with the state of that moment, and not with that of its watches."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import MERGE_PATCH
from cpg_client.resources import LEASES
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica
from cpg_lab.specs import NEWEST, ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
NODES = 8
HELD_WATCHES = """
import asyncio, pathlib, sys
from cpg_client.connection import Connection
from cpg_scheduler.__main__ import main

prompt = Connection.stream

async def held(self, *arguments, **named):
    async for chunk in prompt(self, *arguments, **named):
        while pathlib.Path({flag!r}).exists():
            await asyncio.sleep(0.02)
        yield chunk

Connection.stream = held
sys.exit(main())
"""
"""A scheduler that gets nothing from its watches while a file exists; its other requests are not affected."""


@pytest.fixture(scope="module", params=["1.30", NEWEST])
def crash_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster of the oldest and the newest version: the newer one serves consistent reads from its cache."""
    with Cluster(ClusterSpec(kubernetes=request.param, nodes=(NodePool.parse(f"{NODES} nodes, cpu=4"),))) as cluster:
        yield cluster


async def standby(testbed: "Testbed", flag: Path) -> Replica:
    """Start a replica that can be kept late, beside a leader that is played by the test."""
    namespace, name = testbed.settings["leaseNamespace"], testbed.settings["leaseName"]
    spec = {"holderIdentity": "the-test", "leaseDurationSeconds": 3600}
    await testbed.connection.post(LEASES.path(namespace), {"metadata": {"name": name}, "spec": spec})
    replica = testbed.start_replica(program=HELD_WATCHES.format(flag=str(flag)))
    await testbed.wait_until(lambda: replica.get("/readyz") == (200, "standing by: the-test leads\n"))
    return replica


async def release_lease(testbed: "Testbed") -> None:
    """End the leadership of the test in order: the next replica leads at once."""
    await testbed.connection.patch(testbed.lease, {"spec": {"holderIdentity": ""}}, MERGE_PATCH)


async def test_a_late_standby_sees_the_last_binds_of_the_leader(testbed: "Testbed", tmp_path: Path) -> None:
    """Its watches deliver nothing of what the leader did last. It over-commits no node."""
    flag = tmp_path / "held"
    replica = await standby(testbed, flag)
    await testbed.create(*(testbed.pod(f"new-{number}", cpu="4") for number in range(NODES)))
    await asyncio.sleep(1.0)  # the standby sees these pods
    flag.touch()
    await testbed.create(*(testbed.pod(f"run-{n}", cpu="4", nodeName=f"node-{n + 1}") for n in range(NODES - 1)))
    await release_lease(testbed)
    await testbed.wait_for_log(replica, "ready", 5)
    await testbed.wait_until_bound(NODES)
    await asyncio.sleep(1.0)
    assert (await testbed.overcommitted_cpus(), await testbed.bound_count()) == ({}, NODES)


async def test_a_take_over_with_current_watches_lists_no_pods(
    testbed: "Testbed", tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """Nothing has changed for a while, so no watch shows the present version: pods are touched, the rest is listed."""
    replica = await standby(testbed, tmp_path / "never")
    await testbed.create(testbed.pod("new"))
    await asyncio.sleep(1.0)
    await release_lease(testbed)
    await testbed.wait_until_bound(1, 5)
    (line,) = replica.log_lines("caught up")
    record_property("seconds to catch up", line["seconds"])
    assert "/api/v1/pods" not in line["listed"]
