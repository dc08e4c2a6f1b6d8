"""What it takes to know a large cluster: memory, and the time until a gang is bound in it. Run by hand.

A real API server holds 5,000 nodes and 50,000 pods of 500 kinds that have their nodes. The scheduler is started, and
when it is at rest a gang of 100 pods arrives. Fails where the process has ever held more than 1,000 MB.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from arriving import SPEC, arrive, create, rest, started
from backlogs import FILLER, LARGE, Item, pod
from keeping import Code, code, cpu_seconds, keep, load, peak_mb, resident_mb
from phases import phases_of

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster

PODS, KINDS, GANG = 50_000, 500, 100
LARGEST = 1000.0
"""MB that the process may have taken."""
BATCH = 5000
PATIENCE = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=PODS, help="how many have their nodes (default: 50,000)")
    given = parser.parse_args(arguments)
    measured = code()
    with Cluster(SPEC) as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.add_nodes(LARGE)
        figures = asyncio.run(hold(cluster, Path(folder), given.pods))
    return told(figures, given.pods, measured)


async def hold(cluster: Cluster, folder: Path, pods: int) -> dict[str, float]:
    """Fill the cluster, start a scheduler, have a gang arrive."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        items = list(running(pods))
        for start in range(0, pods, BATCH):
            await create(connection, items[start : start + BATCH])
            sys.stderr.write(f"{min(start + BATCH, pods)}/{pods} pods are there\n")
        figures, at = {"load_before": load()}, time.time()
        replica = started(cluster, folder)
        await asyncio.to_thread(replica.await_log_line, "ready", PATIENCE)
        pid = replica.process.pid
        figures |= {**phases_of(replica.process.output(), at), "lists_cpu_seconds": cpu_seconds(pid)}
        await rest(replica, PATIENCE)
        figures |= {"resident_mb": resident_mb(pid), "peak_mb": peak_mb(pid)}
        arrival = await arrive(connection, "late", GANG)
        await rest(replica, PATIENCE)
        figures |= {"gang_seconds": arrival.since_first_request, "gang_seconds_since_created": arrival.since_created}
        figures |= {"resident_mb_after": resident_mb(pid), "peak_mb_after": peak_mb(pid), "load_after": load()}
        await asyncio.to_thread(replica.process.stop, 20.0)
        return figures


def running(number: int) -> Iterator[Item]:
    """Yield pods that have their nodes, as Deployments of many kinds would have left them."""
    names = LARGE.names()
    for index in range(number):
        kind = index % KINDS
        share = {"cpu": f"{100 + kind % 50 * 5}m", "memory": f"{64 + kind // 50 * 16}Mi"}
        path, body = pod(f"app-{kind}-{index}", FILLER, share, nodeName=names[index % len(names)])
        body["metadata"]["labels"] = {"app": f"app-{kind}", "pod-template-hash": f"{kind:08x}"}
        yield path, body


def told(figures: dict[str, float], pods: int, measured: Code) -> int:
    """Print the figures and keep them; return the exit code."""
    peak = figures["peak_mb_after"]
    print(
        f"{len(LARGE):,} nodes, {pods:,} pods: ready after {figures['lists_done']:.1f} s,"
        f" {figures['lists_cpu_seconds']:.1f} s of CPU,"
        f" {figures['resident_mb']:.0f} MB at rest, {peak:.0f} MB at most;"
        f" a gang of {GANG} bound in {figures['gang_seconds']:.2f} s"
        f" (load {figures['load_before']:g} to {figures['load_after']:g})"
    )
    size = {"nodes": len(LARGE), "pods": pods, "kinds": KINDS, "gang": GANG}
    keep("holding", {**size, "figures": figures}, measured=measured)
    if peak > LARGEST:
        print(f"FAILED: {peak:.0f} MB are more than {LARGEST:.0f}")
    return int(peak > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
