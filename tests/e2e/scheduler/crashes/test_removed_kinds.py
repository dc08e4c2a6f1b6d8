"""The removal of the CRDs: what they said of running pods is not forgotten, and no gang is evicted pod by pod."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, PODS
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
CLASSES = {"high": 100, "low": 10}
CRDS = [f"{plural}.scheduling.cpg.dev" for plural in ("podgroups", "compositepodgroups", "workloads")]
WAITS = {
    "default": "waiting for PodGroup {}/whole1: the API server serves no PodGroups",
    "native": "waiting for PodGroup {}/whole1: PodGroups of scheduling.cpg.dev are not served",
}


@pytest.fixture(scope="module", params=list(WAITS))
def crash_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster with two nodes and two priorities, without and with the native groups."""
    with Cluster(ClusterSpec(gates=request.param, nodes=(NodePool.parse("2 nodes, cpu=4"),))) as cluster:
        for name, value in CLASSES.items():
            cluster.kubectl("create", "priorityclass", name, f"--value={value}")
        yield cluster


@pytest.fixture
def release(crash_cluster: Cluster, install: "Installer") -> ChartRelease:
    """Return a release with our kinds that reads what the cluster serves."""
    return install(crash_cluster, {"api": "auto", "crds": {"install": True}, "operator": {"enabled": False}})


@pytest.fixture(autouse=True)
def our_groups(testbed: "Testbed") -> None:
    """Have the testbed make groups of our kinds, named by labels."""
    testbed.is_native, testbed.pod_groups, testbed.composites = False, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS


async def running(testbed: "Testbed") -> dict[str, int]:
    """Return how many pods of each gang are left."""
    names = [one["metadata"]["name"] for one in await testbed.list_objects(PODS)]
    return dict(Counter(name.rpartition("-")[0] for name in names if name.startswith("whole")))


async def is_bound(testbed: "Testbed", name: str) -> bool:
    """Return whether a pod has a node."""
    return bool((await testbed.pod_nodes())[name])


async def test_gangs_are_not_evicted_in_part_when_their_kinds_are_removed(testbed: "Testbed") -> None:
    """The scheduler evicts them as it knew them. The next process evicts them as a whole, or not at all.

    A new pod of such a gang is not placed as a single pod, and says why.
    """
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
    await testbed.wait_until(lambda: is_bound(testbed, "high"), what="the place of the pod")
    assert list((await running(testbed)).values()) == [4]
    first.process.kill()
    second = testbed.start_replica("--no-leader-elect", api="auto")
    await testbed.wait_for_log(second, "ready")
    (left,) = {node for name, node in (await testbed.pod_nodes()).items() if name.startswith("whole")}
    selector = {"kubernetes.io/hostname": left}
    await testbed.create(testbed.pod("higher", priorityClassName="high", nodeSelector=selector))
    await testbed.create(testbed.pod("late", group="whole1"))
    await testbed.wait_for_message("late", WAITS[testbed.cluster.spec.gates].format(testbed.namespace))
    if testbed.cluster.spec.gates == "native":
        await testbed.wait_until(lambda: is_bound(testbed, "higher"), what="the place of the pod")
    else:
        await testbed.wait_for_message("higher", "0/2 nodes")
    await asyncio.sleep(2.0)
    assert list((await running(testbed)).values()) == ([] if testbed.cluster.spec.gates == "native" else [4])
