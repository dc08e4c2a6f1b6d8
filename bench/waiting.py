"""What it costs a gang that fits that ten thousand pods wait that fit nowhere. Run by hand.

Two clusters of the same nodes stand side by side, each with a scheduler of its own: in one nobody waits, in the other
10,000 pods do that no node could ever hold, and each of them has been told so. When all is at rest a gang of 100 pods
arrives at the one, then at the other, and so on. Fails where the median beside the crowd is more than 1.1 times the
other.
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
from arriving import SPEC, Arrival, arrive, create, rest, started
from backlogs import NAMESPACE, pod
from keeping import code, cpu_seconds, keep, load

from cpg_api.core.pod import Pod
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica

CROWD, KINDS, GANG = 10_000, 10, 100
NODES = NodePool.parse("10 blocks x 10 racks x 10 nodes, cpu=4, memory=16Gi, pods=110")
MOST = 1.10
"""How many times as long a gang may take beside the crowd."""
PATIENCE = 600.0
"""Seconds for the crowd to be told."""
ALONE, CROWDED = "alone", "crowded"


class Turn(msgspec.Struct, frozen=True):
    """One gang: where it arrived, how long it took, what it cost the scheduler, and how busy the machine was."""

    where: str
    arrival: Arrival
    cpu_seconds: float
    load_before: float


class Site(msgspec.Struct, frozen=True):
    """A cluster with a scheduler."""

    connection: Connection
    replica: Replica


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="gangs in each cluster, in turns (default: 5)")
    parser.add_argument("--crowd", type=int, default=CROWD, help="pods that fit nowhere (default: 10,000)")
    given = parser.parse_args(arguments)
    measured = code()
    with contextlib.ExitStack() as stack:
        clusters = {where: stack.enter_context(Cluster(SPEC)) for where in (ALONE, CROWDED)}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        turns = asyncio.run(measure(clusters, folder, given.rounds, given.crowd))
    medians = {
        where: median(turn.arrival.since_created for turn in turns if turn.where == where) for where in (ALONE, CROWDED)
    }
    cpu = {where: median(turn.cpu_seconds for turn in turns if turn.where == where) for where in (ALONE, CROWDED)}
    ratio = medians[CROWDED] / medians[ALONE]
    print(
        f"a gang of {GANG}: {medians[ALONE]:.3f} s alone, {medians[CROWDED]:.3f} s beside {given.crowd:,} that wait,"
        f" {ratio:.2f} times as long (load {min(turn.load_before for turn in turns):g}"
        f" to {max(turn.load_before for turn in turns):g}); {cpu[ALONE]:.2f} and {cpu[CROWDED]:.2f} s of CPU"
    )
    size = {"nodes": len(NODES), "crowd": given.crowd, "gang": GANG}
    outcome = {"medians": medians, "ratio": ratio, "cpu_medians": cpu, "turns": msgspec.to_builtins(turns)}
    keep("waiting", {**size, **outcome}, measured=measured)
    if ratio > MOST:
        print(f"FAILED: {ratio:.2f} is more than {MOST:.2f}")
    return int(ratio > MOST)


async def measure(clusters: dict[str, Cluster], folder: Path, rounds: int, crowd: int) -> list[Turn]:
    """Have gangs arrive in turns."""
    async with contextlib.AsyncExitStack() as stack:
        sites = {}
        for where, cluster in clusters.items():
            await asyncio.to_thread(cluster.add_nodes, NODES)
            (own := folder / where).mkdir()
            connection = await stack.enter_async_context(Connection.from_kubeconfig(cluster.kubeconfig))
            sites[where] = Site(connection, started(cluster, own))
            await asyncio.to_thread(sites[where].replica.await_log_line, "ready", PATIENCE)
        await gather_crowd(sites[CROWDED], crowd)
        for where, site in sites.items():
            await arrive(site.connection, "first", GANG)
            sys.stderr.write(f"{where}: one gang to warm up\n")
        turns = []
        for number in range(rounds):
            for where, site in sites.items():
                for each in sites.values():
                    await rest(each.replica)
                before, pid = load(), site.replica.process.pid
                used = cpu_seconds(pid)
                arrival = await arrive(site.connection, f"gang-{number}", GANG)
                await rest(site.replica)
                turns.append(Turn(where, arrival, cpu_seconds(pid) - used, before))
                sys.stderr.write(f"{where}: {turns[-1].arrival.since_created:.3f} s\n")
        for site in sites.values():
            await asyncio.to_thread(site.replica.process.stop, 20.0)
        return turns


async def gather_crowd(site: Site, number: int) -> None:
    """Have pods come that fit nowhere, of some kinds, and wait until each has been told."""
    await create(
        site.connection,
        [pod(f"hopeless-{index}", SCHEDULER_NAME, {"cpu": str(64 + index % KINDS)}) for index in range(number)],
    )
    deadline = time.monotonic() + PATIENCE
    while (left := await untold(site.connection)) and time.monotonic() < deadline:
        sys.stderr.write(f"{left} of {number} have not been told\n")
        await asyncio.sleep(5.0)
    if left:
        raise LabError(f"{left} pods were not told in {PATIENCE:g} s")
    await rest(site.replica, PATIENCE)


async def untold(connection: Connection) -> int:
    """Return how many pods wait and do not know why."""
    waiting = await list_all(connection, PODS.path(NAMESPACE), {"fieldSelector": "spec.nodeName="})
    pods = (msgspec.json.decode(item, type=Pod) for item in waiting.items)
    return sum(not any(one.type == "PodScheduled" for one in pod.status.conditions or ()) for pod in pods)


if __name__ == "__main__":
    sys.exit(main())
