"""Kubernetes' own scheduler fills the same nodes at the same time.

What neither could have seen in time happens by luck here; that a decision is overtaken for certain, while its pods wait
for their volumes, is in ``test_volumes.py``.
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
MOMENT = 1.0
"""Seconds within which everybody has seen that a node is full."""
KINDS: dict[str, Any] = {"api": "crd", "operator": {"enabled": False}}
NO_KINDS: dict[str, Any] = {"crds": {"install": False}, "operator": {"enabled": False}}
LEAVES = ("left", "right")
Seen = dict[str, tuple[float, str]]
"""When a pod was seen to have a node, and which."""


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with a rival in it."""
    nodes = NodePool.parse(f"{CPUS // ROOM} nodes, cpu={ROOM}")
    with Cluster(ClusterSpec(components=("scheduler",), nodes=(nodes,))) as cluster:
        yield cluster


@pytest.fixture
def release(crash_cluster: Cluster, install: "Installer", request: pytest.FixtureRequest) -> "ChartRelease":
    """Return the chart in the crash_cluster, without our kinds unless they are asked for."""
    return install(crash_cluster, getattr(request, "param", NO_KINDS))


async def test_a_race_that_was_lost_is_told_and_repaired(testbed: "Testbed") -> None:
    """What neither could have seen in time is said of each node; nothing is added to it, and a kubelet mends it."""
    replica = testbed.start_replica("--no-leader-elect", api="auto")
    await testbed.wait_for_log(replica, "ready")
    ours = [testbed.pod(f"ours-{number}") for number in range(CPUS)]
    theirs = [testbed.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS)]
    async with seeing(testbed) as seen:
        await asyncio.gather(testbed.create(*ours), testbed.create(*theirs))
        await testbed.wait_until_bound(CPUS)
        await testbed.wait_for_pod_conditions(20)
        await testbed.wait_until(lambda: len(seen) >= CPUS)
    assert (greedy(seen), late(seen)) == ([], [])
    node = next(where for name, (_, where) in seen.items() if name.startswith("ours"))
    await testbed.create(testbed.pod("intruder", cpu=str(ROOM), schedulerName="nobody", nodeName=node))
    crowded = await testbed.overcommitted_cpus()
    assert node in crowded

    def metric() -> float:
        page = replica.get("/metrics")[1]
        return float(page.split("\ncpg_scheduler_overcommitted_nodes ")[1].split()[0])

    await testbed.wait_until(lambda: metric() == len(crowded))
    assert {line["node"] for line in replica.log_lines("node over-committed")} >= crowded.keys()
    await testbed.create(*(testbed.pod(f"late-{number}") for number in range(4)))
    await testbed.wait_for_message("late-3", "Insufficient cpu")
    assert await testbed.overcommitted_cpus() == crowded
    told = {
        one["regarding"]["name"]
        for one in await testbed.list_objects(EVENTS, everywhere=True)
        if one["reason"] == "OverCommitted"
    }
    assert told >= crowded.keys()
    for name, cpus in crowded.items():
        places = await testbed.pod_nodes()
        for pod in [pod for pod, where in places.items() if where == name and pod != "intruder"][:cpus]:
            await turn_away(testbed, pod)
    await testbed.wait_until(lambda: metric() == 0)
    assert replica.log_lines("attempt failed") == []


@pytest.mark.parametrize("release", [KINDS], indirect=True, ids=["kinds"])
async def test_a_gang_and_a_tree_end_whole_beside_a_rival(testbed: "Testbed") -> None:
    """However many of their pods are turned away by kubelets, as long as somebody makes others in their place."""
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
    async with seeing(testbed) as seen:
        await asyncio.gather(testbed.create(*ours), testbed.create(*theirs))
        await until_calm(testbed, seen)
        node = seen["gang-0"][1]
        await testbed.create(testbed.pod("intruder", cpu=str(ROOM), schedulerName="nobody", nodeName=node))
        assert await until_calm(testbed, seen) >= 1
    alive = Counter(name.partition("-")[0] for name, where in (await testbed.pod_nodes()).items() if where)
    assert {name: alive[name] for name in sizes} == sizes
    assert (alive["theirs"], replica.log_lines("attempt failed")) == (len(theirs), [])


@contextlib.asynccontextmanager
async def seeing(testbed: "Testbed") -> AsyncIterator[Seen]:
    """Give who has got which node and when, as the API server tells it, from now on."""
    path, seen = PODS.path(testbed.namespace), Seen()
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


def greedy(seen: Seen) -> list[str]:
    """Return the nodes that pods of ours alone are too many for."""
    held = Counter(node for name, (_, node) in seen.items() if name.startswith("ours"))
    return [node for node, number in held.items() if number > ROOM]


def late(seen: Seen) -> list[str]:
    """Return the pods of ours that came to a node when everybody had seen that it was full."""
    arrivals: dict[str, list[tuple[float, str]]] = {}
    for name, (when, node) in seen.items():
        arrivals.setdefault(node, []).append((when, name))
    found = []
    for some in map(sorted, arrivals.values()):
        found += [name for when, name in some[ROOM:] if name.startswith("ours") and when > some[ROOM - 1][0] + MOMENT]
    return found


async def until_calm(testbed: "Testbed", seen: Seen) -> int:
    """Play kubelets and controllers until everybody has room; return how many had to go for that."""
    deadline, turned = time.monotonic() + 30, 0
    while complaints := await testbed.violations():
        assert time.monotonic() < deadline, complaints
        places = await testbed.pod_nodes()
        for node, cpus in (await testbed.overcommitted_cpus()).items():
            there = [name for name, where in places.items() if where == node and name != "intruder" and name in seen]
            for name in sorted(there, key=lambda name: seen[name])[-cpus:]:
                await turn_away(testbed, name)
                await replace(testbed, name)
                turned += 1
        await asyncio.sleep(0.1)
    return turned


async def turn_away(testbed: "Testbed", name: str) -> None:
    """Refuse a pod that is too many, as a kubelet does."""
    failed = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}}
    await testbed.connection.patch(PODS.path(testbed.namespace, name, "status"), failed, MERGE_PATCH)


async def replace(testbed: "Testbed", name: str) -> None:
    """Make another pod in the place of one that failed, as a controller does."""
    failed = next(one for one in await testbed.list_objects(PODS) if one["metadata"]["name"] == name)
    group = failed["metadata"].get("labels", {}).get(POD_GROUP_LABEL, "")
    await testbed.delete(PODS, name)
    await testbed.create(testbed.pod(f"{name}x", group=group, schedulerName=failed["spec"]["schedulerName"]))
