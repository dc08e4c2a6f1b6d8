"""The removal of the CRDs: what they said of running pods is not forgotten, and no gang is evicted pod by pod."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
CLASSES = {"high": 100, "low": 10}
CRDS = [f"{plural}.scheduling.cpg.dev" for plural in ("podgroups", "compositepodgroups", "workloads")]


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with two nodes and two priorities."""
    with Cluster(ClusterSpec(nodes=(NodePool.parse("2 nodes, cpu=4"),))) as cluster:
        for name, value in CLASSES.items():
            cluster.kubectl("create", "priorityclass", name, f"--value={value}")
        yield cluster


async def running(testbed: "Testbed") -> dict[str, int]:
    """Return how many pods of each gang are left."""
    names = [one["metadata"]["name"] for one in await testbed.list_objects(PODS)]
    return dict(Counter(name.rpartition("-")[0] for name in names if name.startswith("whole")))


async def test_gangs_are_not_evicted_in_part_when_their_kinds_are_removed(testbed: "Testbed") -> None:
    """The scheduler evicts them as it knew them. The next process cannot know them, so it does not evict them."""
    whole: dict[str, Any] = {"disruptionMode": {"all": {}}, "priorityClassName": "low"}
    grace: dict[str, Any] = {"priorityClassName": "low", "terminationGracePeriodSeconds": 0}
    for number, node in ((1, "node-1"), (2, "node-2")):
        name = f"whole{number}"
        pods = (testbed.pod(f"{name}-{member}", group=name, nodeName=node, **grace) for member in range(4))
        await testbed.create(testbed.group(name, 4, **whole), *pods)
    first = testbed.start_replica("--no-leader-elect", api="auto")
    await testbed.wait_for_log(first, "ready")
    await asyncio.to_thread(testbed.cluster.kubectl, "delete", "crd", *CRDS)
    await asyncio.sleep(1.0)
    await testbed.create(testbed.pod("high", priorityClassName="high"))

    async def is_placed() -> bool:
        return bool((await testbed.pod_nodes())["high"])

    await testbed.wait_until(is_placed, what="the place of the pod")
    assert list((await running(testbed)).values()) == [4]
    first.process.kill()
    second = testbed.start_replica("--no-leader-elect", api="auto")
    await testbed.wait_for_log(second, "ready")
    await testbed.create(testbed.pod("higher", cpu="4", priorityClassName="high"))
    await testbed.wait_for_message("higher", "0/2 nodes")
    await asyncio.sleep(2.0)
    assert list((await running(testbed)).values()) == [4]
