"""A rolling upgrade of the chart's processes while gangs are created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import CPG_POD_GROUPS, PODS
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

SIZE = 2
Plain = dict[str, Any]


def values(**settings: object) -> Plain:
    """Return the values: two schedulers, without the operator."""
    return {"api": "crd", "operator": {"enabled": False}, "scheduler": {"settings": settings}}


def gang(name: str) -> list[tuple[str, Plain]]:
    """Return a gang of two pods."""
    spec = {"schedulingPolicy": {"gang": {"minCount": SIZE}}}
    group = {"apiVersion": CPG_POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    labels = {"scheduling.cpg.dev/pod-group": name}
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": "10m"}}}
    pods = [
        {
            "metadata": {"name": f"{name}-{index}", "labels": labels},
            "spec": {"schedulerName": "cpg-scheduler", "containers": [container]},
        }
        for index in range(SIZE)
    ]
    return [(CPG_POD_GROUPS.path("default"), group), *((PODS.path("default"), one) for one in pods)]


async def test_gangs_created_during_an_upgrade_are_placed_as_a_whole(
    install: Installer, older: Path, tmp_path: Path
) -> None:
    """Old pods end when new ones are ready, and no gang is lost or partially bound."""
    with Cluster(ClusterSpec(nodes=(NodePool.parse("4 nodes, cpu=4"),))) as cluster:
        release = ChartRelease(cluster.access, older, values())
        async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
            with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
                old = [pod for pods in running.pods.values() for pod in pods]
                newer = install(cluster, values(bindsInFlight=2))
                # The first request waits for the API server, which has just updated the kinds.
                names = ["gang-0"]
                assert not (await create_all(connection, gang(names[0]))).failures
                rolling = asyncio.create_task(asyncio.to_thread(running.roll, newer.deployments))
                while not rolling.done():
                    names.append(f"gang-{len(names)}")
                    assert not (await create_all(connection, gang(names[-1]))).failures
                    await asyncio.sleep(0.1)
                await rolling
                new = [pod for pods in running.pods.values() for pod in pods]
                assert [pod.process.exit_code for pod in (*old, *new)] == [0, 0, None, None]
                await asyncio.to_thread(
                    cluster.wait, lambda: logged_binds([*old, *new]) >= SIZE * len(names), what="all binds"
                )
                found = (await list_all(connection, PODS.path("default"))).items
    assert len(names) >= 3
    assert len(found) == sum(b'"nodeName"' in item for item in map(bytes, found)) == SIZE * len(names)
    assert logged_binds([*old, *new]) == SIZE * len(names)


def logged_binds(pods: list[Any]) -> int:
    """Return the number of binds in the logs of all pods."""
    said = [line for pod in pods for line in pod.process.log.read_text().splitlines() if '"event": "bound"' in line]
    return sum(int(line.partition('"binds": ')[2].partition(",")[0]) for line in said)
