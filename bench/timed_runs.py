"""One timed run: a new cluster, a backlog, and the time from the start of a scheduler to the last bind.

Every run has a cluster of its own, so that leftovers of one scheduler (events, watch caches, groups with finalizers
that no controller manager removes) do not affect the next. A watch of bound pods measures the end in the same way for
all.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import msgspec
from backlogs import FILLER_SCHEDULER, NAMESPACE, CaseSize, Item
from installation import environment, install
from phases import phases_of
from result_files import cpu_seconds, load_average, peak_mb

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import RULES
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
"""Both schedulers by their schedulerName, and bare binds without a scheduler, which measure the API server's limit."""

SPEC = ClusterSpec(
    gates="native", components=("scheduler",), max_requests_inflight=3000, max_mutating_requests_inflight=1500
)
CLAIMS_SPEC = replace(SPEC, components=("scheduler", "controller-manager"), controllers=("resourceclaim-controller",))
"""The same with the controller that makes claims from templates."""
SECONDS_BETWEEN_POLLS, MAX_POLLS_FOR_CLAIMS = 1.0, 120
SETTLING_SECONDS = 1.0
"""Seconds of rest for the API server after the backlog is created."""
BINDS_IN_FLIGHT = 64
"""Concurrent bare binds: as many as our scheduler sends."""
PATH = PODS.path(NAMESPACE)


@dataclass
class RunResult:
    """The figures of a run; if it was stopped, ``bound`` is less than ``pods`` and ``seconds`` is the patience.

    ``phases`` are seconds from the start of our scheduler until each phase.
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
    load_before: float = field(default_factory=load_average)
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Binds per second."""
        return self.bound / self.seconds


Show = Callable[[int, int], None]
"""Is called with the number of bound pods and of all pods."""


def run_contender(contender: str, size: CaseSize, *, patience: float, show: Show) -> RunResult:
    """Run one contender on a case, in a new cluster."""
    with Cluster(CLAIMS_SPEC if size.has_claims else SPEC) as cluster:
        commands = _commands(cluster)
        cluster.stop_component("scheduler")  # the cluster started it; the run starts it again later
        cluster.add_nodes(size.nodes)
        if contender == BARE:
            return asyncio.run(_run_bare_binds(cluster, size, show))
        return asyncio.run(
            _run_scheduler(cluster, size, contender, command=commands[contender], patience=patience, show=show)
        )


def _commands(cluster: Cluster) -> dict[str, list[str]]:
    """Return the command of each scheduler; both get the same rights, as users subject to flow control."""
    cluster.kubectl("create", "serviceaccount", "bench", "-n", "kube-system")
    for name, subject in (("ours", "--serviceaccount=kube-system:bench"), ("peer", "--user=system:kube-scheduler")):
        cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", subject)
    kubeconfig = cluster.kubeconfig.with_name("bench.kubeconfig")
    token = cluster.token_for("bench", "kube-system")
    write_kubeconfig(kubeconfig, url=cluster.url, ca_file=cluster.ca_file, token=token)
    program = str(install() / "cpg-scheduler")
    settings = kubeconfig.with_name("bench.yaml")
    settings.write_text(msgspec.json.encode({"integrations": [*RULES]}).decode(), encoding="utf-8")
    options = ["--kubeconfig", str(kubeconfig), "--config", str(settings), "--no-leader-elect"]
    ours = [program, *options, "--api", "native", "--listen", ""]
    subprocess.run([program, "--version"], env=environment(), stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # compiles it
    started = Path(f"/proc/{cluster.processes['scheduler'].pid}/cmdline").read_text("utf-8")
    return {OURS: ours, PEER: started.rstrip("\0").split("\0")}


async def _create(connection: Connection, items: Iterable[Item]) -> int:
    """Create a backlog, kind by kind; return the number of its pending pods."""
    waiting = 0
    for _, stage in groupby(items, key=lambda item: item[0]):
        objects = list(stage)
        waiting += sum(path == PATH and body["spec"]["schedulerName"] != FILLER_SCHEDULER for path, body in objects)
        made = await create_all(connection, objects)
        if made.failures:
            raise made.failures[0].error
    return waiting


async def _prepare(cluster: Cluster, connection: Connection, size: CaseSize, contender: str) -> int:
    """Create a backlog with its claims; return the number of its pending pods.

    The controller of claims stops before the measured time, in which it would compete for CPU with the scheduler.
    """
    waiting = await _create(connection, size.backlog(contender))
    if size.has_claims:
        await _await_claims(connection)
        await asyncio.to_thread(cluster.stop_component, "controller-manager")
    await asyncio.sleep(SETTLING_SECONDS)
    return waiting


async def _await_claims(connection: Connection) -> None:
    """Wait until the claims of all pods are made."""
    for _ in range(MAX_POLLS_FOR_CLAIMS):
        pods = [msgspec.json.decode(item, type=Pod) for item in (await list_all(connection, PATH)).items]
        if all(len(pod.spec.resource_claims or ()) == len(pod.status.resource_claim_statuses or ()) for pod in pods):
            return
        await asyncio.sleep(SECONDS_BETWEEN_POLLS)
    raise LabError(f"some claims were not made after {MAX_POLLS_FOR_CLAIMS * SECONDS_BETWEEN_POLLS:.0f} s")


async def _run_scheduler(
    cluster: Cluster, size: CaseSize, contender: str, *, command: list[str], patience: float, show: Show
) -> RunResult:
    """Start a scheduler on its backlog, and wait until all pods have a node, or for ``patience`` seconds."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        outcome = RunResult(contender, await _prepare(cluster, connection, size, contender))
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

        async with watching_binds(connection, contender, on_bind):
            began, at = time.monotonic(), time.time()
            log = cluster.kubeconfig.with_name(f"{contender}.log")
            process = await asyncio.to_thread(Process, contender, command, log=log, env=environment())
            while not complete.is_set() and process.is_running and time.monotonic() < began + patience:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await complete.wait()
        if not process.is_running:
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
async def watching_binds(connection: Connection, scheduler: str, on_bind: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``on_bind`` for each pod that gets a node: the watch selects only these, and decodes none of them."""
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


async def _run_bare_binds(cluster: Cluster, size: CaseSize, show: Show) -> RunResult:
    """Bind the pods to the nodes in turn, as fast as the client can, without any watch."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        outcome = RunResult(BARE, await _prepare(cluster, connection, size, BARE))
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
            for _ in range(BINDS_IN_FLIGHT):
                crew.create_task(work())
        outcome.seconds = time.monotonic() - began
        return outcome
