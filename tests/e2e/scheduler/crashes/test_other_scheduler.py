"""kube-scheduler fills the same nodes at the same time.

Races between the two schedulers are random here. ``test_volumes.py`` has the deterministic case: a pod of another
scheduler takes the room of a gang that waits for its volumes.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.connection import MERGE_PATCH
from cpg_client.listing import list_all
from cpg_client.resources import EVENTS, PODS
from cpg_client.watching import watch
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.scheduler.crashes.conftest import Testbed

    from cpg_lab.charts import ChartRelease

pytestmark = pytest.mark.e2e
CPUS = 32
ROOM = 4
MAX_WATCH_SECONDS = 1.0
"""From the bind that fills a node until both schedulers have seen it."""
KINDS: dict[str, Any] = {"api": "crd", "operator": {"enabled": False}}
NO_KINDS: dict[str, Any] = {"crds": {"install": False}, "operator": {"enabled": False}}
LEAVES = ("left", "right")
BindTimes = dict[str, tuple[float, str]]
"""For each pod, the time of its bind and its node."""


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with kube-scheduler."""
    nodes = NodePool.parse(f"{CPUS // ROOM} nodes, cpu={ROOM}")
    with Cluster(ClusterSpec(components=("scheduler",), nodes=(nodes,))) as cluster:
        yield cluster


@pytest.fixture
def release(crash_cluster: Cluster, install: "Installer", request: pytest.FixtureRequest) -> "ChartRelease":
    """Return the release of the chart, without our kinds unless a test has them as a parameter."""
    return install(crash_cluster, getattr(request, "param", NO_KINDS))


async def test_an_overcommitted_node_is_reported_until_kubelets_have_rejected_pods(testbed: "Testbed") -> None:
    """The log, the metric and an event name the node, and no pod is added to it."""
    replica = testbed.start_replica("--no-leader-elect", api="auto")
    await testbed.wait_for_log(replica, "ready")
    ours = [testbed.pod(f"ours-{number}") for number in range(CPUS)]
    theirs = [testbed.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS)]
    async with bind_times(testbed) as seen:
        await asyncio.gather(testbed.create(*ours), testbed.create(*theirs))
        await testbed.wait_until_bound(CPUS)
        await testbed.wait_for_pod_conditions(20)
        await testbed.wait_until(lambda: len(seen) >= CPUS)
    assert (overcommitted_by_us(seen), bound_to_full_nodes(seen)) == ([], [])
    node = next(where for name, (_, where) in seen.items() if name.startswith("ours"))
    await testbed.create(testbed.pod("foreign", cpu=str(ROOM), schedulerName="none", nodeName=node))
    overcommitted = await testbed.overcommitted_cpus()
    assert node in overcommitted

    def metric() -> float:
        page = replica.get("/metrics")[1]
        return float(page.split("\ncpg_scheduler_overcommitted_nodes ")[1].split()[0])

    await testbed.wait_until(lambda: metric() == len(overcommitted))
    assert {line["node"] for line in replica.log_lines("node over-committed")} >= overcommitted.keys()
    await testbed.create(*(testbed.pod(f"late-{number}") for number in range(4)))
    await testbed.wait_for_message("late-3", "Insufficient cpu")
    assert await testbed.overcommitted_cpus() == overcommitted
    reported = {
        one["regarding"]["name"]
        for one in await testbed.list_objects(EVENTS, everywhere=True)
        if one["reason"] == "OverCommitted"
    }
    assert reported >= overcommitted.keys()
    for name, cpus in overcommitted.items():
        nodes = await testbed.pod_nodes()
        for pod in [pod for pod, on in nodes.items() if on == name and pod != "foreign"][:cpus]:
            await reject(testbed, pod)
    await testbed.wait_until(lambda: metric() == 0)
    assert replica.log_lines("attempt failed") == []


@pytest.mark.parametrize("release", [KINDS], indirect=True, ids=["kinds"])
async def test_a_gang_and_a_tree_are_completed_beside_kube_scheduler(testbed: "Testbed") -> None:
    """Kubelets reject pods of over-committed nodes, and a controller replaces them, until all pods have room."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    sizes = {"gang": 8, "left": 4, "right": 4}
    ours = [testbed.pod(f"{name}-{number}", group=name) for name, size in sizes.items() for number in range(size)]
    theirs = [testbed.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS // 4)]
    await testbed.create(
        testbed.composite("tree", 2),
        testbed.group("gang", 8),
        *(testbed.group(name, 4, parent="tree") for name in LEAVES),
    )
    async with bind_times(testbed) as seen:
        await asyncio.gather(testbed.create(*ours), testbed.create(*theirs))
        await replace_rejected_pods(testbed, seen)
        node = seen["gang-0"][1]
        await testbed.create(testbed.pod("foreign", cpu=str(ROOM), schedulerName="none", nodeName=node))
        assert await replace_rejected_pods(testbed, seen) >= 1
    alive = Counter(name.partition("-")[0] for name, where in (await testbed.pod_nodes()).items() if where)
    assert {name: alive[name] for name in sizes} == sizes
    assert (alive["theirs"], replica.log_lines("attempt failed")) == (len(theirs), [])


@contextlib.asynccontextmanager
async def bind_times(testbed: "Testbed") -> AsyncIterator[BindTimes]:
    """Return a mapping that the watch of pods fills from now on."""
    path, seen = PODS.path(testbed.namespace), BindTimes()
    since = (await list_all(testbed.connection, path)).resource_version

    async def follow() -> None:
        async with contextlib.aclosing(watch(testbed.connection, path, since)) as events:
            async for event in events:
                one = msgspec.json.decode(event.object)
                if node := one["spec"].get("nodeName"):
                    seen.setdefault(one["metadata"]["name"], (time.monotonic(), node))

    following = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


def overcommitted_by_us(seen: BindTimes) -> list[str]:
    """Return the nodes that our pods alone over-commit."""
    ours = Counter(node for name, (_, node) in seen.items() if name.startswith("ours"))
    return [node for node, number in ours.items() if number > ROOM]


def bound_to_full_nodes(seen: BindTimes) -> list[str]:
    """Return our pods that were bound after our scheduler must have seen that the node was full."""
    arrivals: dict[str, list[tuple[float, str]]] = {}
    for name, (when, node) in seen.items():
        arrivals.setdefault(node, []).append((when, name))
    found = []
    for binds in map(sorted, arrivals.values()):
        seen_full = binds[ROOM - 1][0] + MAX_WATCH_SECONDS if len(binds) > ROOM else 0
        found += [name for when, name in binds[ROOM:] if name.startswith("ours") and when > seen_full]
    return found


async def replace_rejected_pods(testbed: "Testbed", seen: BindTimes) -> int:
    """Act as kubelets and controllers until no node is over-committed; return the number of rejected pods."""
    deadline, rejected = time.monotonic() + 30, 0
    while violations := await testbed.violations():
        assert time.monotonic() < deadline, violations
        nodes = await testbed.pod_nodes()
        for node, cpus in (await testbed.overcommitted_cpus()).items():
            there = [name for name, on in nodes.items() if on == node and name != "foreign" and name in seen]
            for name in sorted(there, key=lambda name: seen[name])[-cpus:]:
                await reject(testbed, name)
                await replace(testbed, name)
                rejected += 1
        await asyncio.sleep(0.1)
    return rejected


async def reject(testbed: "Testbed", name: str) -> None:
    """Reject a pod of an over-committed node, as a kubelet does."""
    failed = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}}
    await testbed.connection.patch(PODS.path(testbed.namespace, name, "status"), failed, MERGE_PATCH)


async def replace(testbed: "Testbed", name: str) -> None:
    """Replace a failed pod, as a controller does."""
    failed = next(one for one in await testbed.list_objects(PODS) if one["metadata"]["name"] == name)
    group = failed["metadata"].get("labels", {}).get(POD_GROUP_LABEL, "")
    await testbed.delete(PODS, name)
    await testbed.create(testbed.pod(f"{name}x", group=group, schedulerName=failed["spec"]["schedulerName"]))
