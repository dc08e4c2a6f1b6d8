"""Measure the operator with 1,000 trees of 30 pods each on a real API server.

    .venv/bin/python bench/operating.py [--trees 1000]

The trees are created while the operator runs, then their pods are created and run, then nothing happens for a while,
then all is deleted. The results are the time until every status was right, CPU and memory of the operator, its
reconciles and writes, and its CPU at rest. The run fails where a status is wrong, something is left in the queue, or
the operator needs more than the limits below. It is not part of ``make bench``: it takes some minutes, most of them the
API server's.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from result_files import load_average, measured_code, write_result

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import FINALIZER, POD_GROUP_LABEL
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain
from cpg_client.bulk_create import create_all
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.listing import list_all
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, NODES, PODS, STATUS
from cpg_lab import probing
from cpg_lab.clusters import Cluster
from cpg_lab.ports import free_port
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[1]
NAMESPACE = "default"
SIZES = (8, 7, 8, 7)
"""Pods of the four gangs of a tree."""
TICKS = os.sysconf("SC_CLK_TCK")
IDLE_SECONDS = 30.0
PODS_PER_DELETION = 2000
MAX_WAIT_SECONDS = 1800.0
Created = Iterator[tuple[str, object]]
MAX_IDLE_PER_CENT = 1.0
"""Of a CPU, while nothing happens."""
MAX_MEMORY_MB = 1000.0
RECONCILES, WRITES = "cpg_operator_reconcile_seconds_count", "cpg_operator_writes_total"
WAITING = ("cpg_operator_queue_length", "cpg_operator_writes_pending")
COUNTED = (RECONCILES, WRITES, *WAITING)


class Process:
    """The operator as a process."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        """Start it; return when it is ready, so that its start is not measured."""
        listen = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "cpg_operator", "--kubeconfig", str(kubeconfig)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603  # our own operator
                [*command, "--no-leader-elect", "--listen", listen], stderr=output
            )
        self._folder = Path("/proc") / str(self._process.pid)
        self._url = f"http://{listen}"
        while probing.get_plain(f"{self._url}/readyz")[0] != 200:
            time.sleep(0.1)

    def counted(self) -> dict[str, float]:
        """Return its reconciles and writes so far, and what is waiting."""
        page = probing.get_plain(f"{self._url}/metrics")[1]
        found: dict[str, float] = dict.fromkeys(COUNTED, 0.0)
        for name, number in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", page, re.MULTILINE):
            if name in found:
                found[name] += float(number)
        return found

    def cpu(self) -> float:
        """Return its CPU seconds so far."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> float:
        """Return its peak memory in megabytes."""
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(30)


def group_bodies(trees: int) -> Created:
    """Yield the groups of the trees, parents first."""
    reference = {"workloadName": "w", "templateName": "t"}
    gang: dict[str, Any] = {"gang": {"minGroupCount": 2}}
    for tree in range(trees):
        spec = {"workloadRef": reference, "schedulingPolicy": gang}
        inner = CPG_COMPOSITE_POD_GROUPS.path(NAMESPACE)
        block = {"schedulingConstraints": {"topology": [{"key": "block"}]}}
        yield inner, {**_head(CPG_COMPOSITE_POD_GROUPS, f"t{tree}"), "spec": spec | block}
        for side in range(2):
            parent = {"parentCompositePodGroupName": f"t{tree}"}
            yield inner, {**_head(CPG_COMPOSITE_POD_GROUPS, f"t{tree}-{side}"), "spec": spec | parent}
        for leaf, size in enumerate(SIZES):
            policy = {"schedulingPolicy": {"gang": {"minCount": size}}, "workloadRef": reference}
            parent = {"parentCompositePodGroupName": f"t{tree}-{leaf // 2}"}
            yield CPG_POD_GROUPS.path(NAMESPACE), {**_head(CPG_POD_GROUPS, f"t{tree}-l{leaf}"), "spec": policy | parent}


def _head(resource: Any, name: str) -> dict[str, Any]:  # noqa: ANN401  # any resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def pod_names(trees: int) -> Iterator[tuple[str, str]]:
    """Yield the pods of the trees and the groups that they are in."""
    for tree in range(trees):
        for leaf, size in enumerate(SIZES):
            for number in range(size):
                yield f"t{tree}-l{leaf}-{number}", f"t{tree}-l{leaf}"


def pod_bodies(trees: int) -> Created:
    """Yield the pods, each with a node already."""
    for number, (name, group) in enumerate(pod_names(trees)):
        spec = {"nodeName": f"n{number % 100}", "containers": [{"name": "main", "image": "none"}]}
        yield PODS.path(NAMESPACE), {"metadata": {"name": name, "labels": {POD_GROUP_LABEL: group}}, "spec": spec}


async def create(connection: Connection, bodies: Created) -> float:
    """Create objects; return how long that took."""
    began = time.monotonic()
    result = await create_all(connection, bodies, in_flight=64)
    if result.failures:
        raise RuntimeError(f"{len(result.failures)} were not created, the first: {result.failures[0]}")
    return time.monotonic() - began


async def run_pods(connection: Connection, trees: int) -> float:
    """Set the phase of all pods to Running; return how long that took."""
    began = time.monotonic()
    names = pod_names(trees)

    async def work() -> None:
        for name, _ in names:
            path = PODS.path(NAMESPACE, name, STATUS)
            await connection.patch(path, {"status": {"phase": "Running"}}, MERGE_PATCH)

    await asyncio.gather(*(work() for _ in range(64)))
    return time.monotonic() - began


async def settled(connection: Connection, reason: str) -> float:
    """Return how long it took until all groups had this reason in ``Healthy``."""

    async def wrong() -> int:
        found = 0
        for group in await groups(connection):
            conditions = group.status.conditions or ()
            found += not any(one.type == "Healthy" and one.reason == reason for one in conditions)
        return found

    return await none_left(wrong, f"groups are not {reason}")


async def groups(connection: Connection) -> list[Group]:
    """Return all groups."""
    inner = (await list_all(connection, CPG_COMPOSITE_POD_GROUPS.path(NAMESPACE))).items
    leaves = (await list_all(connection, CPG_POD_GROUPS.path(NAMESPACE))).items
    return [
        *(msgspec.json.decode(item, type=CompositePodGroup) for item in inner),
        *(msgspec.json.decode(item, type=PodGroup) for item in leaves),
    ]


async def wrong_groups(connection: Connection) -> list[str]:
    """Return the groups with a wrong status, now that all pods run, or without our finalizer."""
    return [
        f"{group.metadata.name}: {group.status}"
        for group in await groups(connection)
        if not _is_right(group) or FINALIZER not in (group.metadata.finalizers or ())
    ]


def _is_right(group: Group) -> bool:
    name = group.metadata.name
    if isinstance(group, PodGroup):
        size = SIZES[int(name.rpartition("l")[2])]
        return group.status.pods == PodCounts(size, size, size)
    side = name.partition("-")[2]
    size = sum(SIZES[2 * int(side) :][:2]) if side else sum(SIZES)
    domain = None if side else TopologyDomain("block", "b")
    counts = (PodCounts(size, size, size), GroupCounts(2, 2), domain)
    return (group.status.pods, group.status.groups, group.status.domain) == counts


async def delete_all(connection: Connection, trees: int) -> float:
    """Delete all groups and pods, as many as one request can; return how long that took."""
    began = time.monotonic()
    for resource in (CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS):
        await connection.delete(resource.path(NAMESPACE))
    for _ in range(0, sum(SIZES) * trees, PODS_PER_DELETION):
        await connection.delete(PODS.path(NAMESPACE), {"gracePeriodSeconds": 0}, params={"limit": PODS_PER_DELETION})
    return time.monotonic() - began


async def gone(connection: Connection) -> float:
    """Return how long it took until all groups were deleted."""

    async def left() -> int:
        kinds = (CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS)
        return sum([len((await list_all(connection, one.path(NAMESPACE))).items) for one in kinds])

    return await none_left(left, "groups are left")


async def none_left(count: Callable[[], Awaitable[int]], what: str) -> float:
    """Return how long it took until the count was zero."""
    began = time.monotonic()
    while found := await count():
        if time.monotonic() - began > MAX_WAIT_SECONDS:
            raise RuntimeError(f"{found} {what}")
        await asyncio.sleep(1)
    return time.monotonic() - began


async def measure(cluster: Cluster, trees: int, log: Path) -> tuple[dict[str, object], list[str]]:
    """Run all phases; return the figures, and the problems."""
    figures: dict[str, object] = {"trees": trees}
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        nodes = ((NODES.path(), {"metadata": {"name": f"n{n}", "labels": {"block": "b"}}}) for n in range(100))
        await create(connection, nodes)
        await connection.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        operator = Process(cluster.kubeconfig, log)
        try:
            for what, work, reached in (
                ("groups created", create(connection, group_bodies(trees)), settled(connection, "Pending")),
                ("pods created, with nodes", create(connection, pod_bodies(trees)), settled(connection, "Starting")),
                ("pods run", run_pods(connection, trees), settled(connection, "MinimumMet")),
            ):
                figures[what] = await phase(operator, 7 * trees, what, work, reached)
            problems = [f"the status is wrong of {one}" for one in (await wrong_groups(connection))[:5]]
            figures["idle per cent"] = idle = await measure_idle(operator)
            what = "all deleted"
            figures[what] = await phase(operator, 7 * trees, what, delete_all(connection, trees), gone(connection))
            await asyncio.sleep(5)
            left = sum(operator.counted()[name] for name in WAITING)
            figures["peak MB"] = memory = operator.memory()
            print(f"left in the queue or pending: {left:.0f}; peak memory {memory:.0f} MB")
        finally:
            operator.end()
    problems += [f"{left:.0f} trees or writes are left"] if left else []
    problems += [f"{idle:.2f} % of a CPU while nothing happens"] if idle > MAX_IDLE_PER_CENT else []
    problems += [f"{memory:.0f} MB"] if memory > MAX_MEMORY_MB else []
    return figures, problems


async def measure_idle(operator: Process) -> float:
    """Return the operator's share of a CPU while nothing happens, in per cent."""
    await asyncio.sleep(10)
    before = operator.cpu()
    await asyncio.sleep(IDLE_SECONDS)
    idle = (operator.cpu() - before) / IDLE_SECONDS * 100
    print(f"idle: {idle:.2f} % of a CPU; {operator.memory():.0f} MB")
    return idle


async def phase(
    operator: Process, number: int, what: str, work: Awaitable[float], reached: Awaitable[float]
) -> dict[str, float]:
    """Do some work, wait until every status is right, and return the cost for the operator, with so many groups."""
    cpu, counted = operator.cpu(), operator.counted()
    took, after = await work, await reached
    spent, now = operator.cpu() - cpu, operator.counted()
    reconciles, writes = (now[name] - counted[name] for name in (RECONCILES, WRITES))
    print(
        f"{what}: {took:.1f} s, every status right {after:.1f} s later; "
        f"CPU {spent:.1f} s, {spent / number * 1000:.1f} ms per group; "
        f"{reconciles:.0f} reconciles, {writes:.0f} writes",
        flush=True,
    )
    return {"seconds": took, "settled_after": after, "cpu_seconds": spent, "reconciles": reconciles, "writes": writes}


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=1000)
    trees, measured, busy = parser.parse_args().trees, measured_code(), load_average()
    print(f"{trees} trees: {7 * trees} groups, {sum(SIZES) * trees} pods", flush=True)
    with tempfile.TemporaryDirectory() as folder, Cluster(ClusterSpec()) as cluster:
        crds = str(ROOT / "manifests" / "crds")
        cluster.kubectl("apply", "-f", crds)
        cluster.access.wait_for_crds()
        log = Path(folder, "log")
        figures, problems = asyncio.run(measure(cluster, trees, log))
        for line in log.read_text().splitlines()[:5]:
            print(line[:300])
    write_result("operating", {**figures, "load_before": busy, "problems": problems}, measured=measured)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
