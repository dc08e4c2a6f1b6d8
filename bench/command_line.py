"""How long ``kubectl cpg`` takes in a large cluster, fetching included. Run by hand.

A real API server has 5,000 nodes and 50,000 running pods, and a tree of 64 pods that waits for a rack. Each command is
a process of its own, as a user starts it. Fails if one takes longer than five seconds.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from backlogs import LARGE, Item, pod
from gang_arrival import create
from large_cluster import PODS, PODS_PER_BATCH, running_pods
from result_files import cpu_seconds, load_average, measured_code, write_result

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.resources import CPG_POD_GROUPS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import TOPOLOGY
from cpg_lab.specs import ClusterSpec

MAX_SECONDS = 5.0
GANG = 64
COMMANDS = {
    "help": ["--help"],
    "tree": ["tree"],
    "tree_of_gang": ["tree", "waiting"],
    "explain": ["explain", "waiting"],
    "explain_unchecked": ["explain", "waiting", "--check-seconds", "0"],
    "explain_from_status": ["explain", "waiting", "--source", "status"],
}
PROGRAM = Path(sys.executable).with_name("kubectl-cpg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=PODS, help="running pods (default: 50,000)")
    given = parser.parse_args(arguments)
    measured = measured_code()
    with Cluster(ClusterSpec(max_requests_inflight=3000, max_mutating_requests_inflight=1500)) as cluster:
        cluster.add_nodes(LARGE)
        asyncio.run(fill(cluster, given.pods))
        figures = {"load_before": load_average()}
        for name, command in COMMANDS.items():
            figures |= timed(name, command, cluster)
    write_result("command-line", {"nodes": len(LARGE), "pods": given.pods, "figures": figures}, measured=measured)
    slow = {name: figures[name] for name in COMMANDS if figures[name] > MAX_SECONDS}
    for name, seconds in slow.items():
        print(f"FAILED: {name} took {seconds:.1f} s, more than {MAX_SECONDS:g}")
    return int(bool(slow))


async def fill(cluster: Cluster, pods: int) -> None:
    """Create the running pods, and a gang that no rack has room for."""
    cluster.kubectl("apply", "-f", str(Path(__file__).parents[1] / "manifests" / "crds"))
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        items = list(chain(running_pods(pods), waiting_gang()))
        for start in range(0, len(items), PODS_PER_BATCH):
            await create(connection, items[start : start + PODS_PER_BATCH])
            sys.stderr.write(f"{min(start + PODS_PER_BATCH, len(items))}/{len(items)} objects created\n")


def waiting_gang() -> Iterator[Item]:
    """Yield a gang that is larger than a rack."""
    spec = {
        "schedulingPolicy": {"gang": {"minCount": GANG}},
        "schedulingConstraints": {"topology": [{"key": f"{TOPOLOGY}/rack"}]},
    }
    body = {"apiVersion": CPG_POD_GROUPS.api_version, "kind": CPG_POD_GROUPS.kind, "metadata": {"name": "waiting"}}
    yield CPG_POD_GROUPS.path("default"), {**body, "spec": spec}
    for index in range(GANG):
        path, made = pod(f"waiting-{index}", SCHEDULER_NAME, {"cpu": "3900m"})
        made["metadata"]["labels"] = {POD_GROUP_LABEL: "waiting"}
        yield path, made


def timed(name: str, command: list[str], cluster: Cluster) -> dict[str, float]:
    """Run a command, print its answer, and return its seconds, and the CPU seconds of it and of the API server."""
    options = [] if name == "help" else ["--kubeconfig", str(cluster.kubeconfig)]
    server = cluster.processes["apiserver"].pid
    before, server_before, began = os.times(), cpu_seconds(server), time.monotonic()
    done = subprocess.run([PROGRAM, *command, *options], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    seconds, after, server_cpu = time.monotonic() - began, os.times(), cpu_seconds(server) - server_before
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{name}: {seconds:.2f} s, {cpu:.2f} s of CPU, {server_cpu:.2f} s of the API server's, {done.returncode}")
    print("\n".join(done.stdout.splitlines()[:20]), done.stderr)
    return {name: seconds, f"{name}_cpu": cpu, f"{name}_server_cpu": server_cpu}


if __name__ == "__main__":
    sys.exit(main())
