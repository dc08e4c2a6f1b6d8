"""Hostile answers through every door of the client: each is read, or is an error of the client's own.

An answer may come from any user with write access, from a proxy, or from a server that is broken.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_client import discovery
from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import ApiError, ClientError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.flavours import served_flavours
from cpg_client.leader_election import ApiLeaseStore, LeaseRecord
from cpg_client.listing import list_all
from cpg_client.patching import Event, bind, record_event
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import PODS
from cpg_client.session_health import SessionHealth
from cpg_client.shared_session import open_shared_session
from cpg_client.stores import keep_whole
from cpg_client.timing import Timing, cancel_and_wait
from cpg_client.watching import read_event, watch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.conftest import FakeServer, Handler

POD = ObjectMeta(name="web", namespace="ns", uid="u-1", resource_version="7")
EVENT = Event(type="Normal", reason="r", action="a", note="n", controller="c", instance="i")
DEPTH = 20_000

VALUES = {
    "deep arrays": b"[" * DEPTH + b"]" * DEPTH,
    "deep objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    "bad UTF-8": b'"\xff\xfe"',
    "a lone surrogate": b'"\\ud800"',
    "a control character": b'"\x01"',
    "a NUL": b'"\\u0000"',
    "a huge integer": b"9" * 5_000,
    "a large integer": b"1" + b"0" * 300,
    "a huge float": b"1e999",
    "a negative number": b"-1",
    "null": b"null",
    "a number": b"1.5",
    "true": b"true",
    "an array": b"[[]]",
    "an object": b'{"": {}}',
    "an empty text": b'""',
    "a long text": b'"' + b"x" * 100_000 + b'"',
}
FIELDS = [
    "kind",
    "reason",
    "message",
    "code",
    "status",
    "details",
    "metadata",
    "items",
    "resourceVersion",
    "continue",
    "type",
    "object",
    "spec",
    "name",
    "namespace",
    "uid",
    "holderIdentity",
    "leaseTransitions",
    "series",
    "count",
    "major",
    "groups",
    "versions",
    "groupVersion",
    "resources",
    "retryAfterSeconds",
    "causes",
    "labels",
    "ownerReferences",
    "containers",
    "token",
    "clientCertificateData",
    "expirationTimestamp",
]


def shapes(value: bytes) -> list[bytes]:
    """Return answers in which a value is everything, or is in all fields of one to four levels."""
    found = [value, b"[" + value + b"]", b'{"kind": "Status", "details": {"retryAfterSeconds": %s}}' % value]
    for _ in range(4):
        value = (
            b"{" + b",".join(b'"%s":%s' % (field.encode(), value) for field in FIELDS) + b"}"
            if len(value) < 9_000
            else value
        )
        found += [value, b'{"kind": "Status", "details": %s, "items": [%s], "metadata": {}}' % (value, value)]
        found += [
            b'{"metadata": {"name": "a", "uid": "u", "resourceVersion": "8"}, "spec": %s, "status": %s}'
            % (value, value)
        ]
        if len(value) > 9_000:
            break
    return found


TEXTS = {
    "HTML": [b"<html>"],
    "nothing": [b""],
    "half": [b'{"kind": "Sta'],
    "NULs": [b"\0" * 99],
    "UTF-16": ["{}".encode("utf-16")],
}
HOSTILE = {name: shapes(value) for name, value in VALUES.items()} | TEXTS
Door = Callable[[Connection], Awaitable[object]]


async def take_events(connection: Connection) -> None:
    """Read a watch until it fails."""
    async with aclosing(watch(connection, "/watch", "7")) as events:
        async for _ in events:
            pass


DOORS: dict[str, Door] = {
    "version": discovery.server_version,
    "groups": discovery.group_versions,
    "resources": lambda connection: discovery.served_resources(connection, "", "v1"),
    "flavours": lambda connection: served_flavours(connection, "auto"),
    "list": lambda connection: list_all(connection, "/x"),
    "lease": lambda connection: ApiLeaseStore(connection, "ns", "cpg").read(),
    "new lease": lambda connection: ApiLeaseStore(connection, "ns", "cpg").create(LeaseRecord("me")),
    "renewed lease": lambda connection: ApiLeaseStore(connection, "ns", "cpg").replace("6", LeaseRecord("me")),
    "bind": lambda connection: bind(connection, POD, "node"),
    "event": lambda connection: record_event(connection, PODS, POD, EVENT, counted=True),
    "watch": take_events,
}


@pytest.mark.parametrize("status", [200, 409, 429, 503])
async def test_every_door_takes_hostile_answers(server: "FakeServer", status: int) -> None:
    """As a success, a conflict, throttling and an outage."""

    async def stop_waiting(_: float) -> None:
        raise ClientError("it would wait")

    for body in chain.from_iterable(HOSTILE.values()):
        server.answer_all(body, status=status)
        async with Connection(Endpoint(server=server.url), timing=Timing(sleep=stop_waiting)) as connection:
            for ask in DOORS.values():
                with suppress(ClientError):
                    await ask(connection)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_line_of_a_watch_is_an_event_or_an_error(name: str) -> None:
    """As a whole, and as the object of an event of each type."""
    for body in HOSTILE[name]:
        lines = [body, *(b'{"type": "%s", "object": %s}' % (kind, body) for kind in (b"ADDED", b"BOOKMARK", b"ERROR"))]
        for line in lines:
            with suppress(ClientError):
                read_event(line)


GOOD = b'{"metadata": {"name": "good", "namespace": "a", "uid": "g", "resourceVersion": "7"}, "spec": {}}'


def hostile_collection(body: bytes, watched: asyncio.Event) -> "Handler":
    """Return a handler with a body in its first list and in its first watch; later ones are good and silent."""
    lists = iter([b"%s, %s" % (body, GOOD)])
    streams = iter([[b'{"type": "%s", "object": %s}\n' % (kind, body) for kind in (b"ADDED", b"MODIFIED", b"DELETED")]])

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = next(lists, GOOD)
            return web.Response(body=b'{"metadata": {"resourceVersion": "7"}, "items": [%s]}' % items)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in next(streams, ()):
            await response.write(line)
        watched.set()
        await asyncio.Event().wait()
        return response

    return handle


async def test_a_reflector_survives_hostile_objects(server: "FakeServer") -> None:
    """In a list and in a watch; the objects beside them are read."""
    for body in chain.from_iterable(HOSTILE.values()):
        server.script.clear()
        watched = asyncio.Event()
        server.handles("GET", "/api/v1/pods", hostile_collection(body, watched))
        timing = Timing(sleep=lambda _: asyncio.sleep(0))
        async with Connection(Endpoint(server=server.url), timing=timing) as connection:
            reflector = Reflector(connection, Source(resource=PODS, kind=Pod, project=keep_whole), lambda _: None)
            running = asyncio.create_task(reflector.run())
            async with asyncio.timeout(10):
                await watched.wait()
            await asyncio.sleep(0.01)
            assert not running.done()
            assert "a/good" in reflector.objects
            await cancel_and_wait(running)


async def test_kopf_gets_shallow_answers(server: "FakeServer") -> None:
    """The shared session hands on answers of any kind, as a whole and as lines."""
    async with open_shared_session(
        Endpoint(server=server.url), session_health=SessionHealth((), lambda: 0.0)
    ) as session:
        for body in chain.from_iterable(HOSTILE.values()):
            server.answer_all(body)
            async with session.get(f"{server.url}/x") as answer:
                await answer.content.read()
            async with session.get(f"{server.url}/x") as answer:
                _ = [line async for line in answer.content.iter_chunked(1_000)]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("status", [200, 403, 410, 429, 504])
def test_every_refusal_has_a_text(status: int, name: str) -> None:
    """Its reason and its wait have their types, whatever the body says."""
    for body in HOSTILE[name]:
        error = ApiError.from_response(status, body, retry_after="x" * 99)
        assert len(str(error)) <= 600
        assert error.retry_after is None or 0 <= error.retry_after <= 60


@pytest.mark.parametrize("name", ["deep arrays", "bad UTF-8", "a huge integer", "null", "HTML"])
async def test_a_plugin_may_print_anything(name: str, tmp_path: "Path") -> None:
    """Its output is a token or an error."""
    version = "client.authentication.k8s.io/v1"
    file = tmp_path / "output"
    code = "import pathlib, sys; sys.stdout.buffer.write(pathlib.Path(sys.argv[1]).read_bytes())"
    for body in HOSTILE[name][:4]:
        file.write_bytes(b'{"apiVersion": "%s", "kind": "ExecCredential", "status": %s}' % (version.encode(), body))
        plugin = ExecPlugin(api_version=version, command=sys.executable, arguments=("-c", code, str(file)))
        credentials = Credentials(plugin=plugin)
        tokens = PluginCredentials.of(Endpoint(server="https://api.test", credentials=credentials), Timing())
        assert tokens is not None
        with suppress(ClientError):
            await tokens.current()
