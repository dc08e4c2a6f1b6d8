"""One contender on one case: a cluster of its own, a backlog, and the time from the start to the last bind.

A cluster of its own, because nothing that one contender leaves behind (events, watch caches, groups that keep their
protection where no controller manager runs) may be in the way of the next. The end is what a watch of the bound pods
tells, the same for all.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import msgspec
from backlogs import FILLER, NAMESPACE, Item, Size
from installing import environment, installed
from keeping import cpu_seconds, load, peak_mb
from phases import phases_of

from cpg_api.core.pod import Pod
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.patching import bind
from cpg_client.resources import PODS
from cpg_client.watching import WatchHooks, watch
from cpg_lab.access import write_kubeconfig
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.processes import Process
from cpg_lab.specs import ClusterSpec

OURS, PEER, BARE = "cpg-scheduler", "default-scheduler", "bare"
"""The two by their schedulerName, and binding with nothing decided: what the API server can take."""

SPEC = ClusterSpec(
    gates="native", components=("scheduler",), max_requests_inflight=3000, max_mutating_requests_inflight=1500
)
SETTLING = 1.0
"""Seconds that the API server is left alone after the backlog."""
CREW = 64
"""Bare binds in flight: as many as ours has."""
PATH = PODS.path(NAMESPACE)


@dataclass
class Outcome:
    """What was measured; of one that was given up, ``bound`` is less than ``pods`` and ``seconds`` is the patience.

    ``phases`` are seconds from the start of ours until something was so.
    """

    contender: str
    pods: int
    bound: int = 0
    seconds: float = 0.0
    first_bind: float = 0.0
    peak_mb: float = 0.0
    cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    etcd_cpu_seconds: float = 0.0
    load_before: float = field(default_factory=load)
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Binds a second."""
        return self.bound / self.seconds


Show = Callable[[int, int], None]
"""Is told how many pods are bound, of how many."""


def race(contender: str, size: Size, *, patience: float, show: Show) -> Outcome:
    """Measure a contender on a case of a size, in a cluster that is made for it."""
    with Cluster(SPEC) as cluster:
        commands = _commands(cluster)
        cluster.stop_component("scheduler")  # it was started with the rest; its time comes later
        cluster.add_nodes(size.nodes)
        if contender == BARE:
            return asyncio.run(_bare(cluster, size, show))
        return asyncio.run(_timed(cluster, size, contender, command=commands[contender], patience=patience, show=show))


def _commands(cluster: Cluster) -> dict[str, list[str]]:
    """Return how either is started, and give both the same rights, as users whom the API server does not exempt."""
    cluster.kubectl("create", "serviceaccount", "bench", "-n", "kube-system")
    for name, subject in (("ours", "--serviceaccount=kube-system:bench"), ("peer", "--user=system:kube-scheduler")):
        cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", subject)
    kubeconfig = cluster.kubeconfig.with_name("bench.kubeconfig")
    token = cluster.token_for("bench", "kube-system")
    write_kubeconfig(kubeconfig, url=cluster.url, ca_file=cluster.ca_file, token=token)
    program = str(installed() / "cpg-scheduler")
    ours = [program, "--kubeconfig", str(kubeconfig), "--no-leader-elect", "--api", "native", "--listen", ""]
    subprocess.run([program, "--version"], env=environment(), stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # compiles it
    started = Path(f"/proc/{cluster.processes['scheduler'].pid}/cmdline").read_text("utf-8")
    return {OURS: ours, PEER: started.rstrip("\0").split("\0")}


async def _create(connection: Connection, items: Iterable[Item]) -> int:
    """Create a backlog, kind by kind, and return how many pods of it wait."""
    waiting = 0
    for _, stage in groupby(items, key=lambda item: item[0]):
        objects = list(stage)
        waiting += sum(path == PATH and body["spec"]["schedulerName"] != FILLER for path, body in objects)
        made = await create_all(connection, objects)
        if made.failures:
            raise made.failures[0].error
    await asyncio.sleep(SETTLING)
    return waiting


async def _timed(
    cluster: Cluster, size: Size, contender: str, *, command: list[str], patience: float, show: Show
) -> Outcome:
    """Start a scheduler on its backlog, and wait until all pods have a node, or patience is at its end."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        outcome = Outcome(contender, await _create(connection, size.backlog(contender)))
        server, etcd = (cluster.processes[name].pid for name in ("apiserver", "etcd"))
        used = cpu_seconds(server), cpu_seconds(etcd)
        complete = asyncio.Event()
        began = 0.0

        def on_bind() -> None:
            outcome.bound += 1
            outcome.seconds = time.monotonic() - began
            outcome.first_bind = outcome.first_bind or outcome.seconds
            show(outcome.bound, outcome.pods)
            if outcome.bound == outcome.pods:
                complete.set()

        async with watching(connection, contender, on_bind):
            began, at = time.monotonic(), time.time()
            log = cluster.kubeconfig.with_name(f"{contender}.log")
            process = await asyncio.to_thread(Process, contender, command, log=log, env=environment())
            while not complete.is_set() and process.alive and time.monotonic() < began + patience:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await complete.wait()
        if not process.alive:
            raise LabError(f"{contender} ended with {process.exit_code}:\n{process.tail()}")
        if not complete.is_set():
            outcome.seconds = time.monotonic() - began
        outcome.server_cpu_seconds = cpu_seconds(server) - used[0]
        outcome.etcd_cpu_seconds = cpu_seconds(etcd) - used[1]
        outcome.cpu_seconds = cpu_seconds(process.pid)
        outcome.peak_mb = peak_mb(process.pid)
        if contender == OURS:
            binds = {"first_bind": outcome.first_bind, "last_bind": outcome.seconds}
            outcome.phases = {**phases_of(process.output(), at), **binds}
        await asyncio.to_thread(process.stop, 5.0)
        return outcome


@contextlib.asynccontextmanager
async def watching(connection: Connection, scheduler: str, on_bind: Callable[[], None]) -> AsyncIterator[None]:
    """Tell of pods that come to have a node: only these cross the wire, and nothing of them is decoded."""
    selected = {"fieldSelector": f"spec.schedulerName={scheduler},spec.nodeName!="}
    version = (await list_all(connection, PATH, selected)).resource_version
    accepted = asyncio.Event()

    async def read() -> None:
        hooks = WatchHooks(on_accepted=accepted.set)
        async with aclosing(watch(connection, PATH, version, params=selected, hooks=hooks)) as events:
            async for event in events:
                if event.type == "ADDED":
                    on_bind()

    reading = asyncio.create_task(read())
    try:
        await accepted.wait()
        yield
    finally:
        reading.cancel()


async def _bare(cluster: Cluster, size: Size, show: Show) -> Outcome:
    """Bind the pods in turn to the nodes, as fast as the client can, with nobody looking."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        outcome = Outcome(BARE, await _create(connection, size.backlog(BARE)))
        pods = [msgspec.json.decode(item, type=Pod) for item in (await list_all(connection, PATH)).items]
        names = size.nodes.names()
        todo = iter([(pod.metadata, names[index % len(names)]) for index, pod in enumerate(pods)])

        async def work() -> None:
            for pod, node in todo:
                await bind(connection, pod, node)
                outcome.bound += 1
                show(outcome.bound, outcome.pods)

        began = time.monotonic()
        async with asyncio.TaskGroup() as crew:
            for _ in range(CREW):
                crew.create_task(work())
        outcome.seconds = time.monotonic() - began
        return outcome
