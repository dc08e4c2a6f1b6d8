"""Ours and kube-scheduler, side by side on one real API server: from the scheduler's start to the last bind.

For each case a backlog is created first, for one scheduler; then that scheduler is started from nothing and timed
until every pod has a node. Then the same for the other, in the same cluster. Both read the native API and talk to the
API server as an ordinary user. Compare ratios, never seconds: machines are shared. Run by `make bench-peer`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cpg_api.core.pod import Pod
from cpg_client.connection import Connection
from cpg_client.creating import create_all
from cpg_client.informers import Informers
from cpg_client.reflecting import Reflector, Source
from cpg_client.resources import NATIVE_COMPOSITE_POD_GROUPS, NATIVE_POD_GROUPS, PODS, Resource
from cpg_client.stores import Change, whole
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

OURS, PEER = "cpg-scheduler", "default-scheduler"
NAMESPACE = "default"
RESULTS = Path(__file__).parent / "results"
Body = dict[str, Any]
Item = tuple[str, Body]
BLOCK, RACK = "topology.cpg.dev/block", "topology.cpg.dev/rack"


@dataclass(frozen=True)
class Case:
    """A backlog and the ratio to reach."""

    name: str
    wanted: float
    backlog: Callable[[str], Iterator[Item]]


def pod(name: str, scheduler: str, group: str | None) -> Item:
    """Return a small pod."""
    spec: Body = {
        "schedulerName": scheduler,
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
    }
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    return PODS.path(NAMESPACE), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def group(resource: Resource, name: str, minimum: int, *, key: str | None = None, parent: str | None = None) -> Item:
    """Return a gang of pods or of groups."""
    field = "minCount" if resource is NATIVE_POD_GROUPS else "minGroupCount"
    spec: Body = {"schedulingPolicy": {"gang": {field: minimum}}}
    if key is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if parent is not None:
        spec["parentCompositePodGroupName"] = parent
    if parent is not None or resource is NATIVE_COMPOSITE_POD_GROUPS:
        spec["workloadRef"] = {"workloadName": "bench", "templateName": "t"}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    return resource.path(NAMESPACE), body


def plain(number: int) -> Callable[[str], Iterator[Item]]:
    """Return a backlog of single pods."""

    def backlog(scheduler: str) -> Iterator[Item]:
        return (pod(f"pod-{index}", scheduler, None) for index in range(number))

    return backlog


def gangs(number: int, size: int, key: str | None = None) -> Callable[[str], Iterator[Item]]:
    """Return a backlog of flat gangs."""

    def backlog(scheduler: str) -> Iterator[Item]:
        for gang in range(number):
            yield group(NATIVE_POD_GROUPS, f"gang-{gang}", size, key=key)
        for gang in range(number):
            yield from (pod(f"gang-{gang}-{index}", scheduler, f"gang-{gang}") for index in range(size))

    return backlog


def trees(number: int, size: int) -> Callable[[str], Iterator[Item]]:
    """Return a backlog of trees: a root in one block, two composites, two gangs in one rack each below either."""

    def backlog(scheduler: str) -> Iterator[Item]:
        leaves = []
        for tree in range(number):
            yield group(NATIVE_COMPOSITE_POD_GROUPS, f"root-{tree}", 2, key=BLOCK)
            for branch in ("a", "b"):
                inner = f"root-{tree}-{branch}"
                yield group(NATIVE_COMPOSITE_POD_GROUPS, inner, 2, parent=f"root-{tree}")
                for leaf in ("a", "b"):
                    leaves.append(f"{inner}-{leaf}")
                    yield group(NATIVE_POD_GROUPS, leaves[-1], size, key=RACK, parent=inner)
        for leaf in leaves:
            yield from (pod(f"{leaf}-{index}", scheduler, leaf) for index in range(size))

    return backlog


CASES = (
    Case("3,000 plain pods", 1.3, plain(3000)),
    Case("1,000 gangs x 3", 4, gangs(1000, 3)),
    Case("3 gangs x 1,000", 20, gangs(3, 1000)),
    Case("750 gangs x 4, rack", 15, gangs(750, 4, RACK)),
    Case("3 gangs x 1,000, rack", 40, gangs(3, 1000, RACK)),
    Case("48 trees x 64", 20, trees(48, 16)),
)


@dataclass(frozen=True)
class Outcome:
    """Seconds from the start to the last bind, or to giving up, and how many pods had a node then."""

    seconds: float
    bound: int
    pods: int

    @property
    def whole(self) -> bool:
        """Tell whether every pod was bound."""
        return self.bound == self.pods


async def measure(cluster: Cluster, case: Case, scheduler: str, kubeconfig: Path, patience: float) -> Outcome:
    """Time one scheduler on one case, and clear up."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        items = list(case.backlog(scheduler))
        for kinds in ([NATIVE_COMPOSITE_POD_GROUPS, NATIVE_POD_GROUPS], [PODS]):
            paths = {kind.path(NAMESPACE) for kind in kinds}
            made = await create_all(connection, [item for item in items if item[0] in paths])
            if made.failures:
                raise made.failures[0].error
        pods = sum(path == PODS.path(NAMESPACE) for path, _ in items)
        bound: set[str] = set()
        complete = asyncio.Event()

        def on_change(change: Change[Pod]) -> None:
            new = getattr(change, "new", None)
            if new is not None and new.spec.node_name:
                bound.add(new.metadata.uid)
                if len(bound) == pods:
                    complete.set()

        source = Source[Pod, Pod](resource=PODS, kind=Pod, project=whole)
        async with Informers(Reflector(connection, source, on_change)) as informers:
            await informers.wait_synced()
            began = time.monotonic()
            async with running(cluster, scheduler, kubeconfig):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await complete.wait()
                seconds = time.monotonic() - began
        await clear(connection)
        return Outcome(seconds, len(bound), pods)


@contextlib.asynccontextmanager
async def running(cluster: Cluster, scheduler: str, kubeconfig: Path) -> AsyncIterator[None]:
    """Run a scheduler while the block runs."""
    if scheduler == PEER:
        # The lab waits until it is ready; that wait must not keep us from seeing the binds.
        starting = asyncio.create_task(asyncio.to_thread(cluster.start_component, "scheduler"))
        yield
        await starting
        await asyncio.to_thread(cluster.stop_component, "scheduler")
        return
    command = [sys.executable, "-m", "cpg_scheduler", "--kubeconfig", str(kubeconfig)]
    options = ["--no-leader-elect", "--api", "native", "--listen", "", "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(*command, *options)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def clear(connection: Connection) -> None:
    """Delete all pods and groups, at once."""
    now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for resource in (PODS, NATIVE_POD_GROUPS, NATIVE_COMPOSITE_POD_GROUPS):
        await connection.delete(resource.path(NAMESPACE), now)
    while True:
        page = msgspec.json.decode(await connection.get(PODS.path(NAMESPACE), {"limit": 1}))
        if not page["items"]:
            return
        await asyncio.sleep(0.5)


def user_kubeconfig(cluster: Cluster) -> Path:
    """Return the kubeconfig of a user who may do everything, but whom the API server does not exempt from fairness."""
    cluster.kubectl("create", "serviceaccount", "bench", "-n", "kube-system")
    cluster.kubectl(
        "create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin", "--serviceaccount=kube-system:bench"
    )
    token = cluster.token_for("bench", "kube-system")
    path = cluster.kubeconfig.parent / "bench.kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [
            {"name": "bench", "cluster": {"server": cluster.url, "certificate-authority": str(cluster.ca_file)}}
        ],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def main() -> int:
    """Measure, print the table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="words of the cases to run; all by default")
    parser.add_argument("--nodes", default="10 blocks x 5 racks x 100 nodes, cpu=4, memory=16Gi, pods=110")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds after which a scheduler is given up")
    parser.add_argument("--only", choices=(OURS, PEER), help="measure one of the two")
    given = parser.parse_args()
    chosen = [case for case in CASES if not given.cases or any(word in case.name for word in given.cases)]
    spec = ClusterSpec(
        gates="native",
        components=("scheduler",),
        nodes=(NodePool.parse(given.nodes),),
        max_requests_inflight=3000,
        max_mutating_requests_inflight=1500,
    )
    rows = []
    with Cluster(spec) as cluster:
        cluster.stop_component("scheduler")
        kubeconfig = user_kubeconfig(cluster)
        for case in chosen:
            row: dict[str, Any] = {"case": case.name, "wanted": case.wanted}
            for scheduler in (OURS, PEER):
                if given.only in {None, scheduler}:
                    outcome = asyncio.run(measure(cluster, case, scheduler, kubeconfig, given.patience))
                    row[scheduler] = {"seconds": round(outcome.seconds, 2), "bound": outcome.bound, "of": outcome.pods}
            rows.append(row)
            print(described(row), flush=True)
    keep(rows, given.nodes)
    return 0


def described(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    ours, peer = row.get(OURS), row.get(PEER)
    told = [f"{row['case']:<24}"]
    for found in (ours, peer):
        if found is None:
            told.append(f"{'-':>20}")
        else:
            short = "" if found["bound"] == found["of"] else f" ({found['bound']}/{found['of']})"
            told.append(f"{found['seconds']:>8.2f} s{short:<10}")
    if ours is not None:
        told.append(f"{ours['bound'] / ours['seconds']:>7.0f} binds/s")
    if ours is not None and peer is not None:
        sign = ">" if peer["bound"] < peer["of"] else " "
        told.append(f"{sign}{peer['seconds'] / ours['seconds']:>6.1f}x, wanted {row['wanted']:g}x")
    return "  ".join(told)


def keep(rows: list[dict[str, Any]], nodes: str) -> None:
    """Write the raw results with what is known of the machine."""
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    record = {"when": stamp, "nodes": nodes, "machine": machine, "load": os.getloadavg(), "rows": rows}
    (RESULTS / f"peer-{stamp}.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
