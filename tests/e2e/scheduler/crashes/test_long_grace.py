"""A pod that terminates with ten years of grace, on a node whose kubelet never ends it."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
CLASSES = {"high": 100, "low": 10, "lowest": 5}
TEN_YEARS = 10 * 365 * 86400
MAX_GRACE, OVERDUE = 2.0, 1.0
SOON_OVERDUE = f"""
import sys
from cpg_scheduler.preemption import terminating

terminating.OVERDUE_SECONDS = {OVERDUE}
from cpg_scheduler.__main__ import main

sys.exit(main())
"""
"""A scheduler that does not expect a pod any more one second after its grace period, instead of 30."""


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with two nodes and three priorities, and without kubelets."""
    with Cluster(ClusterSpec(nodes=(NodePool.parse("2 nodes, cpu=4"),))) as cluster:
        for name, value in CLASSES.items():
            cluster.kubectl("create", "priorityclass", name, f"--value={value}")
        yield cluster


async def test_a_preemption_waits_for_a_limited_part_of_ten_years(testbed: "Testbed") -> None:
    """A gang waits for the room of the terminating pod; when that is overdue, another pod is evicted."""
    replica = testbed.start_replica("--no-leader-elect", program=SOON_OVERDUE, maxGracePeriod=MAX_GRACE)
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(
        testbed.pod("slow", cpu="4", nodeName="node-1", priorityClassName="lowest"),
        testbed.pod("other", cpu="4", nodeName="node-2", priorityClassName="low", terminationGracePeriodSeconds=0),
    )
    path = PODS.path(testbed.namespace, "slow")
    await testbed.connection.delete(path, {"gracePeriodSeconds": TEN_YEARS})
    began = time.monotonic()
    members = (testbed.pod(f"high-{n}", group="high", cpu="2", priorityClassName="high") for n in range(2))
    await testbed.create(testbed.group("high", 2, priorityClassName="high"), *members)
    await testbed.wait_for_message("high-0", "preempti")
    assert "other" in await testbed.pod_nodes()

    async def is_placed() -> bool:
        nodes = await testbed.pod_nodes()
        return [nodes["high-0"], nodes["high-1"]] == ["node-2", "node-2"]

    await testbed.wait_until(is_placed)
    assert time.monotonic() - began > MAX_GRACE
    assert (await testbed.pod_nodes()).keys() == {"slow", "high-0", "high-1"}
