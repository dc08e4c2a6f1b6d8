"""Operators that fail: a proxy to the API server that counts their writes, and can act at any of them."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yaml
from tests.e2e.api_proxy import ApiProxy, open_session
from tests.e2e.polling import growing_pauses

from cpg_client.resources import LEASES
from cpg_lab import probing
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process
from cpg_lab.replicas import SHORT_LEASE
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.operator.conftest import Testbed

ACCOUNT = ("kube-cpg-operator", "kube-cpg")
PATIENCE = 30.0


class Replica:
    """A process of the operator with its own proxy."""

    def __init__(
        self, proxy: ApiProxy, folder: Path, name: str, settings: Mapping[str, object], *, program: str = ""
    ) -> None:
        """Start it; ``program`` is Python code that runs instead of the operator's main, to inject a fault."""
        self.proxy = proxy
        self.url = f"http://{LOOPBACK}:{free_port()}"
        config = {**settings, "listen": self.url.removeprefix("http://")}
        kubeconfig = proxy.write_kubeconfig(folder / f"{name}.kubeconfig")
        (folder / f"{name}.settings").write_text(yaml.safe_dump(config))
        runs = ["-c", program] if program else ["-m", "cpg_operator"]
        options = [f"--kubeconfig={kubeconfig}", f"--config={folder / name}.settings"]
        self.process = Process(name, [sys.executable, *runs, *options], log=folder / f"{name}.log")

    def ask(self, path: str) -> tuple[int, str]:
        """Return status and body of a probe, or 0 and the error."""
        return probing.get_plain(self.url + path)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def leads(self) -> bool:
        """Return whether it leads and is ready."""
        return self.ask("/readyz") == (200, "ok\n")


class Operators:
    """A namespace, and the operators of a test."""

    def __init__(self, testbed: "Testbed", *, cluster: Cluster, folder: Path, session: aiohttp.ClientSession) -> None:
        """Start no operator yet."""
        self.testbed = testbed
        self.cluster = cluster
        self.replicas: list[Replica] = []
        self._folder, self._session = folder, session
        self._token = cluster.token_for(*ACCOUNT)
        self._names = itertools.count()

    async def start(self, *, elected: bool = False, program: str = "", **further: object) -> Replica:
        """Start an operator for our own flavour, by default without a lease."""
        proxy = ApiProxy(self.cluster.url, self._token, self._session)
        await proxy.open()
        settings = {
            "api": "crd",
            "leaderElect": elected,
            "leaseNamespace": ACCOUNT[1],
            "leaseName": ACCOUNT[0],
            "leaderElection": SHORT_LEASE,
            "longestDelay": 0.5,
            **further,
        }
        replica = Replica(proxy, self._folder, f"operator-{next(self._names)}", settings, program=program)
        self.replicas.append(replica)
        return replica

    async def until(self, what: str, holds: Callable[[], Awaitable[object]], patience: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline, pauses = time.monotonic() + patience, growing_pauses()
        while not await holds():
            assert time.monotonic() < deadline, f"not within {patience:g} s: {what}\n{self._log_ends()}"
            await asyncio.sleep(next(pauses))

    def _log_ends(self) -> str:
        return "\n".join(replica.process.tail(5) for replica in self.replicas[-2:])

    async def until_leading(self, replica: Replica) -> None:
        """Wait until an operator leads."""

        async def leads() -> bool:
            return await asyncio.to_thread(replica.leads)

        await self.until("it leads", leads)

    async def end(self) -> None:
        """End all operators; no request may have been forbidden, and no reconcile have failed."""
        for replica in self.replicas:
            if replica.process.is_running:
                replica.signal(signal.SIGCONT)
                replica.process.kill()
            await replica.proxy.close()
        for replica in self.replicas:
            assert "forbidden: User" not in replica.process.output()
            assert "reconcile failed" not in replica.process.output()


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with the garbage collector and without nodes."""
    with Cluster(ClusterSpec(components=("controller-manager",))) as running:
        yield running


@pytest.fixture(scope="package")
def release(cluster: Cluster, install: "Installer") -> ChartRelease:
    """Install the chart, with our kinds."""
    return install(cluster, {"api": "crd", "scheduler": {"enabled": False}})


@pytest.fixture
def operator(release: ChartRelease) -> ChartRelease:
    """Run only the operators that a test starts; the chart has what they need."""
    return release


@pytest.fixture
async def operators(testbed: "Testbed", cluster: Cluster, tmp_path: Path) -> AsyncIterator[Operators]:
    """Return a namespace without operators."""
    async with open_session() as session:
        found = Operators(testbed, cluster=cluster, folder=tmp_path, session=session)
        yield found
        await found.end()
        with contextlib.suppress(Exception):
            await testbed.connection.delete(LEASES.path(ACCOUNT[1], ACCOUNT[0]))
