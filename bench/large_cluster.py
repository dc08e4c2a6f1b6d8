"""Memory of the scheduler in a large cluster, and the time until a gang is bound in it. Run by hand.

A real API server has 5,000 nodes and 50,000 running pods of 500 classes. The scheduler starts, and once it is idle a
gang of 100 pods is created. Fails if the process has ever held more than 1,000 MB.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from backlogs import FILLER_SCHEDULER, LARGE, Item, pod
from gang_arrival import SPEC, await_idle, create, create_and_time_gang, start_scheduler
from phases import phases_of
from result_files import MeasuredCode, cpu_seconds, load_average, measured_code, peak_mb, resident_mb, write_result

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster

PODS, CLASSES, GANG = 50_000, 500, 100
MAX_MB = 1000.0
"""MB of memory that the process may use."""
PODS_PER_BATCH = 5000
TIMEOUT_SECONDS = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=PODS, help="running pods (default: 50,000)")
    given = parser.parse_args(arguments)
    measured = measured_code()
    with Cluster(SPEC) as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.add_nodes(LARGE)
        figures = asyncio.run(measure(cluster, Path(folder), given.pods))
    return report(figures, given.pods, measured)


async def measure(cluster: Cluster, folder: Path, pods: int) -> dict[str, float]:
    """Fill the cluster, start a scheduler, and time a gang; return the figures."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        items = list(running_pods(pods))
        for start in range(0, pods, PODS_PER_BATCH):
            await create(connection, items[start : start + PODS_PER_BATCH])
            sys.stderr.write(f"{min(start + PODS_PER_BATCH, pods)}/{pods} pods created\n")
        figures, at = {"load_before": load_average()}, time.time()
        replica = start_scheduler(cluster, folder)
        await asyncio.to_thread(replica.await_log_line, "ready", TIMEOUT_SECONDS)
        pid = replica.process.pid
        figures |= {**phases_of(replica.process.output(), at), "lists_cpu_seconds": cpu_seconds(pid)}
        await await_idle(replica, TIMEOUT_SECONDS)
        figures |= {"resident_mb": resident_mb(pid), "peak_mb": peak_mb(pid)}
        arrival = await create_and_time_gang(connection, "late", GANG)
        await await_idle(replica, TIMEOUT_SECONDS)
        figures |= {"gang_seconds": arrival.since_first_request, "gang_seconds_since_created": arrival.since_created}
        figures |= {"resident_mb_after": resident_mb(pid), "peak_mb_after": peak_mb(pid), "load_after": load_average()}
        await asyncio.to_thread(replica.process.stop, 20.0)
        return figures


def running_pods(number: int) -> Iterator[Item]:
    """Yield running pods, as of Deployments with many different templates."""
    names = LARGE.names()
    for index in range(number):
        kind = index % CLASSES
        share = {"cpu": f"{100 + kind % 50 * 5}m", "memory": f"{64 + kind // 50 * 16}Mi"}
        path, body = pod(f"app-{kind}-{index}", FILLER_SCHEDULER, share, nodeName=names[index % len(names)])
        body["metadata"]["labels"] = {"app": f"app-{kind}", "pod-template-hash": f"{kind:08x}"}
        yield path, body


def report(figures: dict[str, float], pods: int, measured: MeasuredCode) -> int:
    """Print the figures and write them to a file; return the exit code."""
    peak = figures["peak_mb_after"]
    print(
        f"{len(LARGE):,} nodes, {pods:,} pods: ready after {figures['lists_done']:.1f} s,"
        f" {figures['lists_cpu_seconds']:.1f} s of CPU,"
        f" {figures['resident_mb']:.0f} MB idle, {peak:.0f} MB at most;"
        f" a gang of {GANG} bound in {figures['gang_seconds']:.2f} s"
        f" (load {figures['load_before']:g} to {figures['load_after']:g})"
    )
    size = {"nodes": len(LARGE), "pods": pods, "kinds": CLASSES, "gang": GANG}
    write_result("large-cluster", {**size, "figures": figures}, measured=measured)
    if peak > MAX_MB:
        print(f"FAILED: {peak:.0f} MB are more than {MAX_MB:.0f}")
    return int(peak > MAX_MB)


if __name__ == "__main__":
    sys.exit(main())
