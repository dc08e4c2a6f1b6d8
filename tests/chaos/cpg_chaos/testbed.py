"""The control plane with our replicas, and the handles by which faults reach them."""

import asyncio
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from cpg_chaos.programs import Program, defects
from cpg_chaos.record import RunRecord
from cpg_chaos.relays import Relay
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
POOL = NodePool.parse("2 blocks x 2 racks x 4 nodes, cpu=8")
SPEC = ClusterSpec(components=("controller-manager", "scheduler", "kwok"), nodes=(POOL,), audit=True)
PARTS = ("scheduler", "operator")
REPLICAS = 2
SECONDS_BETWEEN_CHECKS = 0.2
WATCHING = ("controller-manager", "scheduler", "kwok")
"""Components that have to be restarted after a restore of etcd, because their watches are of another history."""


class Testbed:
    """A cluster, and two replicas each of the scheduler and the operator, each behind a relay."""

    def __init__(self, cluster: Cluster, record: RunRecord, folder: Path) -> None:
        """Start nothing yet."""
        self.cluster, self.record, self.folder = cluster, record, folder
        self.programs: list[Program] = []
        self.plane = asyncio.Lock()
        """Held by faults of etcd and the API server, of which there is one at a time."""
        self.snapshot = folder / "snapshot"
        self._settings: dict[str, Mapping[str, object]] = {}
        self._read: dict[str, int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Install the chart and run all replicas during the block."""
        release = await asyncio.to_thread(ChartRelease, self.cluster.access, CHART, {"api": "crd"})
        for one in release.of_kind("ConfigMap"):
            settings = yaml.safe_load(one["data"]["settings.yaml"])
            part = one["metadata"]["name"].removeprefix("kube-cpg-")
            self._settings[part] = {**settings, **({"debugPort": 0} if part == "scheduler" else {"leaderElect": True})}
        try:
            for part in PARTS:
                for number in range(REPLICAS):
                    relay = Relay(urlsplit(self.cluster.url).port or 0)
                    await relay.open()
                    program = await asyncio.to_thread(Program, part, number, self.cluster.access, relay, self.folder)
                    self.programs.append(program)
            supervising = asyncio.create_task(self._supervise())
            yield
            supervising.cancel()
            with suppress(asyncio.CancelledError):
                await supervising
        finally:
            for program in self.programs:
                program.send(signal.SIGKILL)
                program.relay.close()

    def choose(self, part: str, leader: str, rng: random.Random) -> Program:
        """Return a replica that runs; more often the one with this identity, which leads."""
        running = [one for one in self.programs if one.part == part and one.is_running]
        leading = [one for one in running if one.process is not None and f"-{one.process.pid}-" in leader]
        return rng.choice(leading if leading and rng.random() < 0.7 else running or self.programs)

    def signal_component(self, name: str, number: signal.Signals) -> None:
        """Signal a component of the control plane."""
        process = self.cluster.processes[name]
        if process.is_running:
            os.killpg(process.pid, number)

    async def restart(self, *names: str, down: float) -> None:
        """Kill components of the control plane, and start them again in the opposite order after some seconds."""
        for name in names:
            await asyncio.to_thread(self.cluster.kill_component, name)
        await asyncio.sleep(down)
        for name in reversed(names):
            await self.start_component(name)

    async def start_component(self, name: str) -> None:
        """Start a component, and once more if it ends because another one is not there yet."""
        try:
            await asyncio.to_thread(self.cluster.start_component, name)
        except LabError:
            self.record.counts["components started twice"] += 1
            await asyncio.to_thread(self.cluster.start_component, name)

    async def save_etcd(self) -> None:
        """Copy the data of etcd while it is stopped, as a snapshot of its disk does."""
        data = self.cluster.audit_log.parent / "etcd"
        self.signal_component("etcd", signal.SIGSTOP)
        try:
            shutil.rmtree(self.snapshot, ignore_errors=True)
            await asyncio.to_thread(shutil.copytree, data, self.snapshot)
        finally:
            self.signal_component("etcd", signal.SIGCONT)

    async def restore_etcd(self) -> None:
        """Replace the data of etcd by the copy, and restart what Kubernetes says has to be: all but our replicas."""
        data = self.cluster.audit_log.parent / "etcd"
        for name in (*WATCHING, "apiserver", "etcd"):
            await asyncio.to_thread(self.cluster.kill_component, name)
        shutil.rmtree(data)
        await asyncio.to_thread(shutil.copytree, self.snapshot, data)
        for name in ("etcd", "apiserver", *WATCHING):
            await self.start_component(name)

    def check_logs(self) -> None:
        """Report what our replicas have logged of defects since the last call."""
        for program in self.programs:
            if program.log.exists():
                for line in defects(program.log, self._read.get(program.name, 0)):
                    self.record.violate("no defect is logged", f"{program.name}: {line}")
                self._read[program.name] = program.log.stat().st_size

    async def _supervise(self) -> None:
        """Start what has ended, as kubelets do."""
        while True:
            for program in self.programs:
                program.supervise(self._settings[program.part], self.record)
            if not self.plane.locked() and (dead := self.cluster.dead()):
                async with self.plane:
                    for name in dead:
                        self.record.counts[f"{name} ended by itself"] += 1
                        await self.start_component(name)
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)


def topology() -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """Return millicores and labels of each node."""
    cpu = int(dict(POOL.capacity)["cpu"]) * 1000
    labels = {POOL.name(place): POOL.labels_at(place) for place in POOL.positions()}
    return dict.fromkeys(labels, cpu), labels
