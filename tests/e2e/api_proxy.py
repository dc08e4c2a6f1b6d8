"""A proxy to an API server that counts writes, refuses requests, and acts at any write."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from aiohttp import web

from cpg_client.resources import LEASES
from cpg_lab.ports import LOOPBACK

DROPPED = frozenset({"host", "content-length", "transfer-encoding", "content-encoding", "connection", "authorization"})
"""Headers that belong to one of the two connections alone."""

Refuse = Callable[[web.Request], int]


def _refuse_nothing(_: web.Request) -> int:
    return 0


def open_session() -> aiohttp.ClientSession:
    """Return a session for proxies, without limits."""
    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))


class ApiProxy:
    """The way of one process to the API server, with the token of an account of the chart."""

    def __init__(self, server: str, token: str, session: aiohttp.ClientSession) -> None:
        """Forward nothing yet."""
        self.refuse: Refuse = _refuse_nothing
        """Returns a status for a request that is refused, and 0 otherwise."""
        self.retry_after = ""
        """The ``Retry-After`` of a refusal, if any."""
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

    def write_kubeconfig(self, path: Path) -> Path:
        """Write and return a kubeconfig of this proxy."""
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(access))
        return path

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
        data = await request.read()
        if request.method != "GET" and f"/{LEASES.plural}" not in request.path:
            self.writes += 1
            self._at.pop(self.writes, lambda: None)()
        if status := self.refuse(request):
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            body = {"kind": "Status", "code": status, "message": "refused by a test"}
            return web.json_response(body, status=status, headers=headers)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in DROPPED}
        headers["Authorization"] = f"Bearer {self._token}"
        try:
            async with self._session.request(
                request.method, self._server + request.raw_path, data=data or None, headers=headers
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
