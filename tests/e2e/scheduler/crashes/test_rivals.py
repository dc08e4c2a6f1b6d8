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
    from tests.e2e.scheduler.crashes.conftest import Arena

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
def ring() -> Iterator[Cluster]:
    """Run a cluster with a rival in it."""
    nodes = NodePool.parse(f"{CPUS // ROOM} nodes, cpu={ROOM}")
    with Cluster(ClusterSpec(components=("scheduler",), nodes=(nodes,))) as cluster:
        yield cluster


@pytest.fixture
def release(ring: Cluster, install: "Installer", request: pytest.FixtureRequest) -> "ChartRelease":
    """Return the chart in the ring, without our kinds unless they are asked for."""
    return install(ring, getattr(request, "param", NO_KINDS))


async def test_a_race_that_was_lost_is_told_and_repaired(arena: "Arena") -> None:
    """What neither could have seen in time is said of each node; nothing is added to it, and a kubelet mends it."""
    replica = arena.start("--no-leader-elect", api="auto")
    await arena.until_said(replica, "ready")
    ours = [arena.pod(f"ours-{number}") for number in range(CPUS)]
    theirs = [arena.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS)]
    async with seeing(arena) as seen:
        await asyncio.gather(arena.create(*ours), arena.create(*theirs))
        await arena.until_bound(CPUS)
        await arena.until_nobody_is_silent(20)
        await arena.until(lambda: len(seen) >= CPUS)
    assert (greedy(seen), late(seen)) == ([], [])
    node = next(where for name, (_, where) in seen.items() if name.startswith("ours"))
    await arena.create(arena.pod("intruder", cpu=str(ROOM), schedulerName="nobody", nodeName=node))
    crowded = await arena.overcommitted()
    assert node in crowded

    def metric() -> float:
        page = replica.get("/metrics")[1]
        return float(page.split("\ncpg_scheduler_overcommitted_nodes ")[1].split()[0])

    await arena.until(lambda: metric() == len(crowded))
    assert {line["node"] for line in replica.log_lines("node over-committed")} >= crowded.keys()
    await arena.create(*(arena.pod(f"late-{number}") for number in range(4)))
    await arena.until_told("late-3", "Insufficient cpu")
    assert await arena.overcommitted() == crowded
    told = {
        one["regarding"]["name"] for one in await arena.all(EVENTS, everywhere=True) if one["reason"] == "OverCommitted"
    }
    assert told >= crowded.keys()
    for name, cpus in crowded.items():
        places = await arena.places()
        for pod in [pod for pod, where in places.items() if where == name and pod != "intruder"][:cpus]:
            await turn_away(arena, pod)
    await arena.until(lambda: metric() == 0)
    assert replica.log_lines("attempt failed") == []


@pytest.mark.parametrize("release", [KINDS], indirect=True, ids=["kinds"])
async def test_a_gang_and_a_tree_end_whole_beside_a_rival(arena: "Arena") -> None:
    """However many of their pods are turned away by kubelets, as long as somebody makes others in their place."""
    replica = arena.start("--no-leader-elect")
    await arena.until_said(replica, "ready")
    sizes = {"gang": 8, "left": 4, "right": 4}
    ours = [arena.pod(f"{name}-{number}", group=name) for name, size in sizes.items() for number in range(size)]
    theirs = [arena.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS // 4)]
    await arena.create(
        arena.composite("tree", 2), arena.group("gang", 8), *(arena.group(name, 4, parent="tree") for name in LEAVES)
    )
    async with seeing(arena) as seen:
        await asyncio.gather(arena.create(*ours), arena.create(*theirs))
        await until_calm(arena, seen)
        node = seen["gang-0"][1]
        await arena.create(arena.pod("intruder", cpu=str(ROOM), schedulerName="nobody", nodeName=node))
        assert await until_calm(arena, seen) >= 1
    alive = Counter(name.partition("-")[0] for name, where in (await arena.places()).items() if where)
    assert {name: alive[name] for name in sizes} == sizes
    assert (alive["theirs"], replica.log_lines("attempt failed")) == (len(theirs), [])


@contextlib.asynccontextmanager
async def seeing(arena: "Arena") -> AsyncIterator[Seen]:
    """Give who has got which node and when, as the API server tells it, from now on."""
    path, seen = PODS.path(arena.namespace), Seen()
    since = (await list_all(arena.connection, path)).resource_version

    async def follow() -> None:
        async with contextlib.aclosing(watch(arena.connection, path, since)) as events:
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


async def until_calm(arena: "Arena", seen: Seen) -> int:
    """Play kubelets and controllers until everybody has room; return how many had to go for that."""
    deadline, turned = time.monotonic() + 30, 0
    while complaints := await arena.complaints():
        assert time.monotonic() < deadline, complaints
        places = await arena.places()
        for node, cpus in (await arena.overcommitted()).items():
            there = [name for name, where in places.items() if where == node and name != "intruder" and name in seen]
            for name in sorted(there, key=lambda name: seen[name])[-cpus:]:
                await turn_away(arena, name)
                await replace(arena, name)
                turned += 1
        await asyncio.sleep(0.1)
    return turned


async def turn_away(arena: "Arena", name: str) -> None:
    """Refuse a pod that is too many, as a kubelet does."""
    failed = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}}
    await arena.connection.patch(PODS.path(arena.namespace, name, "status"), failed, MERGE_PATCH)


async def replace(arena: "Arena", name: str) -> None:
    """Make another pod in the place of one that failed, as a controller does."""
    failed = next(one for one in await arena.all(PODS) if one["metadata"]["name"] == name)
    group = failed["metadata"].get("labels", {}).get(POD_GROUP_LABEL, "")
    await arena.delete(PODS, name)
    await arena.create(arena.pod(f"{name}x", group=group, schedulerName=failed["spec"]["schedulerName"]))
