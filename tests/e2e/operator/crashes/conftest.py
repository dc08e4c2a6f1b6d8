"""Operators that end badly: a line to the API server that counts their writes, and can break at any of them."""

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
    from tests.e2e.operator.conftest import Stage

ACCOUNT = ("kube-cpg-operator", "kube-cpg")
PATIENCE = 30.0
DROPPED = frozenset({"host", "content-length", "transfer-encoding", "content-encoding", "connection", "authorization"})
"""Headers that belong to one of the two halves of a line alone."""

Refuse = Callable[[web.Request], int]


def _refuse_nothing(_: web.Request) -> int:
    return 0


class Line:
    """Where one operator reaches the API server, by the chart's account for it."""

    def __init__(self, server: str, token: str, session: aiohttp.ClientSession) -> None:
        """Carry nothing yet."""
        self.refuse: Refuse = _refuse_nothing
        """Gives a status for what is not to be passed on, and else 0."""
        self.writes = 0
        """How many requests have come that would change something, but for the lease."""
        self.url = ""
        self._at: dict[int, Callable[[], None]] = {}
        self._server, self._token, self._session = server, token, session
        self._watches: dict[web.StreamResponse, web.Request] = {}
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{tail:.*}", self._carry)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def open(self) -> None:
        """Carry what comes."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, 0)
        await site.start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Carry nothing any more."""
        self.cut()
        await self._runner.cleanup()

    def at(self, number: int, act: Callable[[], None]) -> None:
        """Do something once that many more writes have come, before the last of them is passed on."""
        self._at[self.writes + number] = act

    def cut(self) -> None:
        """Break all watches; who watches asks anew."""
        for request in self._watches.values():
            if request.transport is not None:
                request.transport.abort()

    async def say(self, event: Mapping[str, Any]) -> None:
        """Put an event into all watches, as if the API server had sent it."""
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
    """A process of the operator, at the end of a line of its own."""

    def __init__(self, line: Line, folder: Path, name: str, settings: Mapping[str, object]) -> None:
        """Start it."""
        self.line = line
        self.url = f"http://{LOOPBACK}:{free_port()}"
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": line.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        config = {**settings, "listen": self.url.removeprefix("http://")}
        files = {"kubeconfig": access, "settings": config}
        for kind, content in files.items():
            (folder / f"{name}.{kind}").write_text(yaml.safe_dump(content))
        options = [f"--kubeconfig={folder / name}.kubeconfig", f"--config={folder / name}.settings"]
        self.process = Process(name, [sys.executable, "-m", "cpg_operator", *options], log=folder / f"{name}.log")

    def ask(self, path: str) -> tuple[int, str]:
        """Return what a probe is answered: the status and the body, or 0 and why there is none."""
        return probing.get_plain(self.url + path)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def leads(self) -> bool:
        """Tell whether it works, and does not stand by."""
        return self.ask("/readyz") == (200, "ok\n")


class Ring:
    """A namespace, and operators that are started and ended for it."""

    def __init__(self, stage: "Stage", *, cluster: Cluster, folder: Path, session: aiohttp.ClientSession) -> None:
        """Start none yet."""
        self.stage = stage
        self.cluster = cluster
        self.replicas: list[Replica] = []
        self._folder, self._session = folder, session
        self._token = cluster.token_for(*ACCOUNT)
        self._names = itertools.count()

    async def start(self, *, elected: bool = False, **further: object) -> Replica:
        """Start an operator for our own flavour, by default without a lease."""
        line = Line(self.cluster.url, self._token, self._session)
        await line.open()
        settings = {
            "api": "crd",
            "leaderElect": elected,
            "leaseNamespace": ACCOUNT[1],
            "leaseName": ACCOUNT[0],
            "leaderElection": SHORT_LEASE,
            "longestDelay": 0.5,
            **further,
        }
        replica = Replica(line, self._folder, f"operator-{next(self._names)}", settings)
        self.replicas.append(replica)
        return replica

    async def until(self, what: str, holds: Callable[[], Awaitable[object]], patience: float = PATIENCE) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + patience
        while not await holds():
            told = "\n".join(replica.process.tail(5) for replica in self.replicas[-2:])
            assert time.monotonic() < deadline, f"not within {patience:g} s: {what}\n{told}"
            await asyncio.sleep(0.05)

    async def until_leading(self, replica: Replica) -> None:
        """Wait until an operator works."""

        async def leads() -> bool:
            return await asyncio.to_thread(replica.leads)

        await self.until("it leads", leads)

    async def end(self) -> None:
        """End all of them; none may have been refused anything, or have made a mistake."""
        for replica in self.replicas:
            if replica.process.is_running:
                replica.signal(signal.SIGCONT)
                replica.process.kill()
            await replica.line.close()
        for replica in self.replicas:
            assert "forbidden: User" not in replica.process.output()
            assert "reconcile failed" not in replica.process.output()


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with its garbage collector, and no node."""
    with Cluster(ClusterSpec(components=("controller-manager",))) as running:
        yield running


@pytest.fixture(scope="package")
def release(cluster: Cluster, install: "Installer") -> ChartRelease:
    """Return the chart in the cluster, with our kinds."""
    return install(cluster, {"api": "crd", "scheduler": {"enabled": False}})


@pytest.fixture
def operator(release: ChartRelease) -> ChartRelease:
    """Run no operator but those that a test starts; what they need is there."""
    return release


@pytest.fixture
async def ring(stage: "Stage", cluster: Cluster, tmp_path: Path) -> AsyncIterator[Ring]:
    """Return a ring without any operator."""
    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        found = Ring(stage, cluster=cluster, folder=tmp_path, session=session)
        yield found
        await found.end()
        with contextlib.suppress(Exception):
            await stage.connection.delete(LEASES.path(ACCOUNT[1], ACCOUNT[0]))
