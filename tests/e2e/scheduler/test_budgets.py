"""Thousands of PodDisruptionBudgets over the pods that preemptors want, on a real API server."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.connection import Connection
from cpg_client.resources import POD_DISRUPTION_BUDGETS, PODS
from cpg_engine.testing.api_manifests import pod_manifest
from cpg_engine.testing.builders import metadata, node, pod
from cpg_lab.deployments import PodProcess

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.scheduler.conftest import LiveCluster

    from cpg_lab.clusters import Cluster

NAME = "budgeted"
BUDGETS = 5000
SECONDS_TO_CREATE_BUDGETS = 20.0
FULL_NODES, PODS_PER_NODE, FREE_NODES = 99, 10, 1
MOST_CPU_SECONDS = 2.0
"""CPU time of the scheduler for all ten preemptions; it was 5 s when budgets were counted pod by pod."""
MOST_STALLED_SECONDS = 1.0
"""A stall is a few hundredths of a second; the machine may be busy with other tests."""
PATIENCE_SECONDS = 30.0
Plain = dict[str, Any]

pytestmark = [pytest.mark.e2e, pytest.mark.parametrize("flavour", ["crd"], indirect=True)]


def budget(number: int) -> Plain:
    """Return a budget that allows no eviction of any covered pod but one; no two have the same selector."""
    expressions = [
        {"key": "app", "operator": "Exists"},
        {"key": "number", "operator": "NotIn", "values": [f"n{number}"]},
    ]
    spec = {"minAvailable": "100%", "selector": {"matchExpressions": expressions}}
    return {"metadata": {"name": f"b{number}"}, "spec": spec}


async def create(cluster: "Cluster", path: str, objects: Iterable[Plain], seconds: float = PATIENCE_SECONDS) -> int:
    """Create objects, some at a time, for so long; return how many there are."""
    deadline, created = time.monotonic() + seconds, 0

    async def work(source: Iterator[Plain]) -> None:
        nonlocal created
        for one in source:
            if time.monotonic() > deadline:
                return
            await connection.post(path, one)
            created += 1

    source = iter(objects)
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        await asyncio.gather(*(work(source) for _ in range(16)))
    return created


def running_pods(namespace: str) -> Iterator[Plain]:
    """Yield pods that fill the nodes: on the last node pods of higher priority, which no budget covers."""
    for number in range((FULL_NODES + FREE_NODES) * PODS_PER_NODE):
        where, name = number // PODS_PER_NODE, f"p{number}"
        is_free = where >= FULL_NODES
        labels = {} if is_free else {"app": "web", "number": f"n{number}"}
        one = pod(name, cpu=1, node_name=f"n{where}", meta=metadata(name, namespace=namespace, **labels))
        plain = pod_manifest(one, native=False)
        plain["spec"] |= {"priorityClassName": "p20" if is_free else "p10", "terminationGracePeriodSeconds": 0}
        plain["spec"].pop("priority", None)
        yield plain


def metric(process: PodProcess, name: str) -> float:
    """Return a metric of the scheduler, which computes them once a second."""
    time.sleep(1.0)
    return float(process.get("/metrics")[1].split(f"\n{name} ")[1].split()[0])


def names(live: "LiveCluster") -> set[str]:
    """Return the names of the pods."""
    return {one["metadata"]["name"] for one in live.client.get(live.path("Pod"))["items"]}


def test_thousands_of_budgets_stall_no_preemption(
    live: "LiveCluster", cluster: "Cluster", install: "Installer", tmp_path: Path
) -> None:
    """Ten preemptors evict the pods that no budget covers, although those are more important than the others."""
    another = {"schedulerName": NAME, "replicas": 1, "settings": {"leaderElect": False}}
    chart = install(cluster, {"api": "crd", "scheduler": another, "operator": {"enabled": False}}, NAME)
    live.scheduler_name = NAME
    for value in (10, 20):
        live.client.create(live.path("PriorityClass"), {"metadata": {"name": f"p{value}"}, "value": value})
    for number in range(FULL_NODES + FREE_NODES):
        live.put_node(node(f"n{number}", cpu=PODS_PER_NODE))
    live.flush()
    asyncio.run(create(cluster, PODS.path(live.namespace), list(running_pods(live.namespace))))
    budgets, before = POD_DISRUPTION_BUDGETS.path(live.namespace), names(live)
    created = asyncio.run(create(cluster, budgets, map(budget, range(BUDGETS)), SECONDS_TO_CREATE_BUDGETS))
    assert created > BUDGETS // 5
    scheduler = PodProcess(cluster.access, chart.deployments[0], tmp_path)
    try:
        scheduler.await_ready()
        began = metric(scheduler, "process_cpu_seconds_total")
        wanted = {f"high-{number}" for number in range(PODS_PER_NODE)}
        for name in sorted(wanted):
            live.put_pod(pod(name, cpu=1, priority=100))
        live.flush()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(not live.client.get(live.path("Pod", name))["spec"].get("nodeName") for name in wanted):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        free = {f"p{FULL_NODES * PODS_PER_NODE + number}" for number in range(PODS_PER_NODE)}
        assert before - names(live) == free
        assert metric(scheduler, "process_cpu_seconds_total") - began < MOST_CPU_SECONDS
        assert metric(scheduler, "cpg_scheduler_longest_stall_seconds") < MOST_STALLED_SECONDS
    finally:
        scheduler.stop()
