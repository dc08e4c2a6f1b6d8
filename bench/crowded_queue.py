"""The cost of ten thousand unschedulable pods for a gang that fits. Run by hand.

Two clusters with equal nodes run side by side, each with a scheduler. One queue is empty; the other has 10,000 pods
that fit on no node, each with its condition. Once both are idle a gang of 100 pods is created in one cluster, then in
the other, and so on. Fails if the median beside the unschedulable pods is more than 1.1 times the other.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from backlogs import NAMESPACE, pod
from gang_arrival import SPEC, BindTimes, await_idle, create, create_and_time_gang, start_scheduler
from result_files import cpu_seconds, load_average, measured_code, write_result

from cpg_api.core.pod import Pod
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica

CROWD, CLASSES, GANG = 10_000, 10, 100
NODES = NodePool.parse("10 blocks x 10 racks x 10 nodes, cpu=4, memory=16Gi, pods=110")
MAX_RATIO = 1.10
"""The largest ratio of the medians."""
TIMEOUT_SECONDS = 600.0
"""Seconds until all unschedulable pods must have their condition."""
ALONE, CROWDED = "alone", "crowded"


class GangRun(msgspec.Struct, frozen=True):
    """One gang: its cluster, its bind times, the scheduler's CPU time, and the load before."""

    where: str
    arrival: BindTimes
    cpu_seconds: float
    load_before: float


class Site(msgspec.Struct, frozen=True):
    """A cluster with a scheduler."""

    connection: Connection
    replica: Replica


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="gangs in each cluster, alternating (default: 5)")
    parser.add_argument("--crowd", type=int, default=CROWD, help="unschedulable pods (default: 10,000)")
    given = parser.parse_args(arguments)
    measured = measured_code()
    with contextlib.ExitStack() as stack:
        clusters = {where: stack.enter_context(Cluster(SPEC)) for where in (ALONE, CROWDED)}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs = asyncio.run(measure(clusters, folder, given.rounds, given.crowd))
    medians = {
        where: median(run.arrival.since_created for run in runs if run.where == where) for where in (ALONE, CROWDED)
    }
    cpu = {where: median(run.cpu_seconds for run in runs if run.where == where) for where in (ALONE, CROWDED)}
    ratio = medians[CROWDED] / medians[ALONE]
    print(
        f"a gang of {GANG}: {medians[ALONE]:.3f} s alone, {medians[CROWDED]:.3f} s beside {given.crowd:,} pending pods,"
        f" {ratio:.2f} times as long (load {min(run.load_before for run in runs):g}"
        f" to {max(run.load_before for run in runs):g}); {cpu[ALONE]:.2f} and {cpu[CROWDED]:.2f} s of CPU"
    )
    size = {"nodes": len(NODES), "crowd": given.crowd, "gang": GANG}
    outcome = {"medians": medians, "ratio": ratio, "cpu_medians": cpu, "turns": msgspec.to_builtins(runs)}
    write_result("crowded-queue", {**size, **outcome}, measured=measured)
    if ratio > MAX_RATIO:
        print(f"FAILED: {ratio:.2f} is more than {MAX_RATIO:.2f}")
    return int(ratio > MAX_RATIO)


async def measure(clusters: dict[str, Cluster], folder: Path, rounds: int, crowd: int) -> list[GangRun]:
    """Create and time gangs in both clusters in run."""
    async with contextlib.AsyncExitStack() as stack:
        sites = {}
        for where, cluster in clusters.items():
            await asyncio.to_thread(cluster.add_nodes, NODES)
            (own := folder / where).mkdir()
            connection = await stack.enter_async_context(Connection.from_kubeconfig(cluster.kubeconfig))
            sites[where] = Site(connection, start_scheduler(cluster, own))
            await asyncio.to_thread(sites[where].replica.await_log_line, "ready", TIMEOUT_SECONDS)
        await create_crowd(sites[CROWDED], crowd)
        for where, site in sites.items():
            await create_and_time_gang(site.connection, "first", GANG)
            sys.stderr.write(f"{where}: one gang to warm up\n")
        runs = []
        for number in range(rounds):
            for where, site in sites.items():
                for each in sites.values():
                    await await_idle(each.replica)
                before, pid = load_average(), site.replica.process.pid
                used = cpu_seconds(pid)
                arrival = await create_and_time_gang(site.connection, f"gang-{number}", GANG)
                await await_idle(site.replica)
                runs.append(GangRun(where, arrival, cpu_seconds(pid) - used, before))
                sys.stderr.write(f"{where}: {runs[-1].arrival.since_created:.3f} s\n")
        for site in sites.values():
            await asyncio.to_thread(site.replica.process.stop, 20.0)
        return runs


async def create_crowd(site: Site, number: int) -> None:
    """Create unschedulable pods of some classes, and wait until each has its condition."""
    await create(
        site.connection,
        [pod(f"hopeless-{index}", SCHEDULER_NAME, {"cpu": str(64 + index % CLASSES)}) for index in range(number)],
    )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (left := await count_without_condition(site.connection)) and time.monotonic() < deadline:
        sys.stderr.write(f"{left} of {number} have no condition\n")
        await asyncio.sleep(5.0)
    if left:
        raise LabError(f"{left} pods had no condition after {TIMEOUT_SECONDS:g} s")
    await await_idle(site.replica, TIMEOUT_SECONDS)


async def count_without_condition(connection: Connection) -> int:
    """Return how many pending pods have no condition PodScheduled."""
    waiting = await list_all(connection, PODS.path(NAMESPACE), {"fieldSelector": "spec.nodeName="})
    pods = (msgspec.json.decode(item, type=Pod) for item in waiting.items)
    return sum(not any(one.type == "PodScheduled" for one in pod.status.conditions or ()) for pod in pods)


if __name__ == "__main__":
    sys.exit(main())
