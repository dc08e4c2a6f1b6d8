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
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web

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
DROPPED = frozenset({"host", "content-length", "transfer-encoding", "content-encoding", "connection", "authorization"})
"""Headers that belong to one of the two connections alone."""

Refuse = Callable[[web.Request], int]


def _refuse_nothing(_: web.Request) -> int:
    return 0


class ApiProxy:
    """The way of one operator to the API server, with the token of the chart's account."""

    def __init__(self, server: str, token: str, session: aiohttp.ClientSession) -> None:
        """Forward nothing yet."""
        self.refuse: Refuse = _refuse_nothing
        """Returns a status for a request that is refused, and 0 otherwise."""
        self.writes = 0
        """The number of writes, without those of the lease."""
        self.url = ""
        self._at: dict[int, Callable[[], None]] = {}
        self._server, self._token, self._session = server, token, session
        self._watches: dict[web.StreamResponse, web.Request] = {}
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{tail:.*}", self._carry)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def open(self) -> None:
        """Start forwarding."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, 0)
        await site.start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop forwarding."""
        self.cut()
        await self._runner.cleanup()

    def at(self, number: int, act: Callable[[], None]) -> None:
        """Act at the write with this number from now on, before it is forwarded."""
        self._at[self.writes + number] = act

    def cut(self) -> None:
        """Abort all watches; the clients start new ones."""
        for request in self._watches.values():
            if request.transport is not None:
                request.transport.abort()

    async def say(self, event: Mapping[str, Any]) -> None:
        """Send an event to all watches, as if it came from the API server."""
        for response in list(self._watches):
            with contextlib.suppress(OSError):
                await response.write(msgspec.json.encode(event) + b"\n")

    async def _carry(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method != "GET" and f"/{LEASES.plural}" not in request.path:
            self.writes += 1
            self._at.pop(self.writes, lambda: None)()
        if status := self.refuse(request):
            return web.json_response({"kind": "Status", "code": status, "message": "refused by a test"}, status=status)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in DROPPED}
        headers["Authorization"] = f"Bearer {self._token}"
        try:
            async with self._session.request(
                request.method, self._server + request.raw_path, data=body or None, headers=headers
            ) as answer:
                return await self._answered(request, answer)
        except (aiohttp.ClientError, OSError):
            return web.json_response({"kind": "Status", "code": 502, "message": "no API server"}, status=502)

    async def _answered(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {key: value for key, value in answer.headers.items() if key.lower() not in DROPPED}
        if request.query.get("watch") != "true":
            return web.Response(body=await answer.read(), status=answer.status, headers=headers)
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        self._watches[response] = request
        try:
            async for piece in answer.content.iter_any():
                await response.write(piece)
        finally:
            del self._watches[response]
        return response


class Replica:
    """A process of the operator with its own proxy."""

    def __init__(
        self, proxy: ApiProxy, folder: Path, name: str, settings: Mapping[str, object], *, program: str = ""
    ) -> None:
        """Start it; ``program`` is Python code that runs instead of the operator's main, to inject a fault."""
        self.proxy = proxy
        self.url = f"http://{LOOPBACK}:{free_port()}"
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": proxy.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        config = {**settings, "listen": self.url.removeprefix("http://")}
        files = {"kubeconfig": access, "settings": config}
        for kind, content in files.items():
            (folder / f"{name}.{kind}").write_text(yaml.safe_dump(content))
        runs = ["-c", program] if program else ["-m", "cpg_operator"]
        options = [f"--kubeconfig={folder / name}.kubeconfig", f"--config={folder / name}.settings"]
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
        deadline = time.monotonic() + patience
        while not await holds():
            logs = "\n".join(replica.process.tail(5) for replica in self.replicas[-2:])
            assert time.monotonic() < deadline, f"not within {patience:g} s: {what}\n{logs}"
            await asyncio.sleep(0.05)

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
    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        found = Operators(testbed, cluster=cluster, folder=tmp_path, session=session)
        yield found
        await found.end()
        with contextlib.suppress(Exception):
            await testbed.connection.delete(LEASES.path(ACCOUNT[1], ACCOUNT[0]))
