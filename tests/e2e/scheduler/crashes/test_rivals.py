"""Kubernetes' own scheduler fills the same nodes at the same time."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import MERGE_PATCH
from cpg_client.resources import EVENTS, PODS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.scheduler.crashes.conftest import Arena

    from cpg_lab.charts import Release

pytestmark = pytest.mark.e2e
CPUS = 32


@pytest.fixture(scope="module")
def ring() -> Iterator[Cluster]:
    """Run a cluster with a rival in it; both decide about pods of no group."""
    with Cluster(
        ClusterSpec(components=("scheduler",), nodes=(NodePool.parse(f"{CPUS // 4} nodes, cpu=4"),))
    ) as cluster:
        yield cluster


@pytest.fixture
def release(ring: Cluster, install: "Installer") -> "Release":
    """Return the chart in the ring, without our kinds."""
    return install(ring, {"crds": {"install": False}, "operator": {"enabled": False}})


async def test_a_race_that_was_lost_is_told_and_repaired(arena: "Arena") -> None:
    """What neither could have seen in time is said of each node; nothing is added to it, and a kubelet mends it."""
    replica = arena.start("--no-leader-elect", api="auto")
    await arena.until_said(replica, "ready")
    ours = [arena.pod(f"ours-{number}") for number in range(CPUS)]
    theirs = [arena.pod(f"theirs-{number}", schedulerName="default-scheduler") for number in range(CPUS)]
    await asyncio.gather(arena.create(*ours), arena.create(*theirs))
    await arena.until_bound(CPUS)
    await arena.until_nobody_is_silent(20)
    crowded = await arena.overcommitted()

    def metric() -> float:
        page = replica.ask("/metrics")[1]
        return float(page.split("\ncpg_scheduler_overcommitted_nodes ")[1].split()[0])

    await arena.until(lambda: metric() == len(crowded))
    assert {line["node"] for line in replica.said("node over-committed")} >= crowded.keys()
    await arena.create(*(arena.pod(f"late-{number}") for number in range(4)))
    await arena.until_told("late-3", "Insufficient cpu")
    assert await arena.overcommitted() == crowded
    told = {
        one["regarding"]["name"] for one in await arena.all(EVENTS, everywhere=True) if one["reason"] == "OverCommitted"
    }
    assert told >= crowded.keys()
    for node, cpus in crowded.items():
        await turn_away(arena, node, cpus)
    await arena.until(lambda: metric() == 0)
    assert replica.said("attempt failed") == []


async def turn_away(arena: "Arena", node: str, number: int) -> None:
    """Refuse pods that are too many, as a kubelet does."""
    places = await arena.places()
    failed = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}}
    for name in [name for name, where in places.items() if where == node][:number]:
        await arena.connection.patch(PODS.path(arena.namespace, name, "status"), failed, MERGE_PATCH)
