"""Responses that are nested by the thousand: each is read, and none raises ``RecursionError``."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_api.meta import ObjectMeta
from cpg_client import discovery
from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import ApiError, ClientError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.leader_election import ApiLeaseStore, LeaseRecord
from cpg_client.listing import list_all
from cpg_client.patching import Event, record_event
from cpg_client.resources import PODS
from cpg_client.timing import Timing
from cpg_client.watching import read_event

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

DEEP = b'{"f:a":' * 5000 + b"1" + b"}" * 5000
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/ns/events"
POD = ObjectMeta(name="web", namespace="ns", uid="u-1", resource_version="7")
EVENT = Event(type="Normal", reason="r", action="a", note="n", controller="c", instance="i")
EXISTS = b'{"kind": "Status", "reason": "AlreadyExists", "details": {"x": %s}}' % DEEP


def deep(plain: object) -> bytes:
    """Return an object as JSON, with a field that is nested by the thousand."""
    return msgspec.json.encode({"x": msgspec.Raw(DEEP), **msgspec.convert(plain, dict[str, object])})


Ask = Callable[[Connection], Awaitable[object]]
ASKED: list[tuple[str, str, Ask, dict[str, object]]] = [
    ("GET", "/version", discovery.server_version, {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}),
    ("GET", "/apis", discovery.group_versions, {"groups": []}),
    ("GET", "/api/v1", lambda found: discovery.served_resources(found, "", "v1"), {"resources": []}),
    ("GET", "/x", lambda found: list_all(found, "/x"), {"metadata": {"resourceVersion": "7"}, "items": []}),
    (
        "GET",
        f"{LEASES}/cpg",
        lambda found: ApiLeaseStore(found, "ns", "cpg").read(),
        {"metadata": {"resourceVersion": "7"}},
    ),
    (
        "POST",
        LEASES,
        lambda found: ApiLeaseStore(found, "ns", "cpg").create(LeaseRecord("me")),
        {"metadata": {"resourceVersion": "7"}},
    ),
    (
        "PATCH",
        f"{LEASES}/cpg",
        lambda found: ApiLeaseStore(found, "ns", "cpg").replace("6", LeaseRecord("me")),
        {"metadata": {"resourceVersion": "7"}},
    ),
]


@pytest.mark.parametrize(("method", "path", "ask", "plain"), ASKED)
async def test_a_deep_answer_is_read(
    server: "FakeServer", connection: Connection, method: str, path: str, ask: Ask, plain: dict[str, object]
) -> None:
    """The result equals that without the deep field. HTML instead of JSON raises a ``ClientError``."""
    for body in (plain, deep(plain), b"<html>"):
        server.answers(method, path, body)
    assert await ask(connection) == await ask(connection)
    with pytest.raises(ClientError, match="the answer is not"):
        await ask(connection)


async def test_a_deep_event_is_counted(server: "FakeServer", connection: Connection) -> None:
    """An existing event is read before its count is written; the refusal may be deep as well."""
    server.answers("POST", EVENTS, b"{}")
    await record_event(connection, PODS, POD, EVENT, counted=True)
    name = msgspec.json.decode(server.seen[0].body)["metadata"]["name"]
    server.script["POST", EVENTS].clear()
    server.answers("POST", EVENTS, EXISTS, status=409)
    server.answers("GET", f"{EVENTS}/{name}", deep({"series": {"count": 7}}))
    server.answers("PATCH", f"{EVENTS}/{name}", DEEP)
    await record_event(connection, PODS, POD, EVENT, counted=True)
    assert msgspec.json.decode(server.seen[-1].body)["series"]["count"] == 8


def test_a_deep_refusal_keeps_its_reason() -> None:
    """The reason decides what the caller does next."""
    assert ApiError.from_response(409, EXISTS).is_already_exists


def test_a_deep_error_event_keeps_its_status() -> None:
    """A watch that reports 410 is listed again, however deep the report is."""
    with pytest.raises(ApiError) as caught:
        read_event(b'{"type": "ERROR", "object": {"code": 410, "x": %s}}' % DEEP)
    assert caught.value.is_gone


async def test_deep_output_of_a_plugin_is_read() -> None:
    """The token beside the deep field is used."""
    version = "client.authentication.k8s.io/v1"
    code = f"""print('{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{"token": "t"}}, "x": '
               + '[' * 5000 + ']' * 5000 + '}}')"""
    plugin = ExecPlugin(api_version=version, command=sys.executable, arguments=("-c", code))
    tokens = PluginCredentials.of(Endpoint(server="https://api.test", credentials=Credentials(plugin=plugin)), Timing())
    assert tokens is not None
    assert await tokens.current() == "t"
