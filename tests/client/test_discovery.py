"""Discovery of a server's version, resources and readiness."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client import discovery
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, NotReadyError
from cpg_client.resources import CPG_POD_GROUPS, NODES, PODS

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep


async def raise_timeout(_: float) -> None:
    """Raise ``TimeoutError`` in place of sleeping."""
    raise TimeoutError


async def test_version(server: "FakeServer", connection: Connection) -> None:
    """Unknown fields are skipped."""
    server.answers("GET", "/version", {"major": "1", "minor": "37", "gitVersion": "v1.37.0", "compiler": "gc"})
    assert await discovery.server_version(connection) == discovery.ServerVersion("1", "37", "v1.37.0")


async def test_group_versions(server: "FakeServer", connection: Connection) -> None:
    """Every version of every group is listed, preferred or not."""
    versions = [{"groupVersion": f"scheduling.k8s.io/{one}", "version": one} for one in ("v1", "v1alpha3")]
    server.answers("GET", "/apis", {"groups": [{"name": "scheduling.k8s.io", "versions": versions}]})
    assert await discovery.group_versions(connection) == {"scheduling.k8s.io/v1", "scheduling.k8s.io/v1alpha3"}


async def test_resources_of_the_core_group(server: "FakeServer", connection: Connection) -> None:
    """They equal our constants, and subresources are left out."""
    found = [
        {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": ["get"]},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "pods/binding", "kind": "Binding", "namespaced": True},
    ]
    server.answers("GET", "/api/v1", {"resources": found})
    assert await discovery.served_resources(connection, "", "v1") == {NODES, PODS}


async def test_resources_of_a_named_group(server: "FakeServer", connection: Connection) -> None:
    """They are read from the group's own path."""
    found = [{"name": "podgroups", "kind": "PodGroup", "namespaced": True}]
    server.answers("GET", "/apis/scheduling.cpg.dev/v1alpha3", {"resources": found})
    assert await discovery.served_resources(connection, "scheduling.cpg.dev", "v1alpha3") == {CPG_POD_GROUPS}


async def test_a_group_version_may_be_empty(server: "FakeServer", connection: Connection) -> None:
    """A served group-version without resources is not an error."""
    server.answers("GET", "/apis/a/v1", {"resources": None})
    assert await discovery.served_resources(connection, "a", "v1") == frozenset()


async def test_a_group_version_that_is_not_served_is_empty(connection: Connection) -> None:
    """A cluster without our CRDs has none of our resources."""
    assert await discovery.served_resources(connection, "scheduling.cpg.dev", "v1alpha3") == frozenset()


async def test_a_refused_discovery_is_raised(server: "FakeServer", connection: Connection) -> None:
    """A 403 is not the same as "not served"."""
    server.answers("GET", "/apis/a/v1", status=403)
    with pytest.raises(ApiError, match="403"):
        await discovery.served_resources(connection, "a", "v1")


async def test_waiting_ends_when_the_server_is_ready(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """Refusals before that are retried."""
    server.answers("GET", "/readyz", status=500)
    server.answers("GET", "/readyz", status=403)
    server.answers("GET", "/readyz", b"ok")
    await discovery.wait_ready(connection, 30, sleep=fake_sleep)
    assert fake_sleep.seconds == [0.2, 0.2]


async def test_a_timeout_names_the_failed_checks(server: "FakeServer", connection: Connection) -> None:
    """Of all the checks that a server lists."""
    server.answers("GET", "/readyz", b"[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n", status=500)
    with pytest.raises(NotReadyError) as caught:
        await discovery.wait_ready(connection, 30, sleep=raise_timeout)
    assert str(caught.value) == f"{server.url}: not ready within 30 s: [-]etcd failed: reason withheld"


@pytest.mark.parametrize("body", [b"", b"overloaded"])
async def test_a_timeout_quotes_any_other_refusal(server: "FakeServer", connection: Connection, body: bytes) -> None:
    """Where the answer has no list of checks."""
    server.answers("GET", "/readyz", body, status=500)
    with pytest.raises(NotReadyError, match="GET /readyz: 500 InternalServerError"):
        await discovery.wait_ready(connection, 30, sleep=raise_timeout)


async def test_a_timeout_without_a_server_names_the_refused_connection() -> None:
    """Where nothing listens."""
    async with Connection(Endpoint(server="http://127.0.0.1:1")) as connection:
        with pytest.raises(NotReadyError, match="Cannot connect: "):
            await discovery.wait_ready(connection, 30, sleep=raise_timeout)


async def test_the_timeout_ends_a_pending_request(server: "FakeServer", connection: Connection) -> None:
    """A silent server does not extend the wait."""
    done = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await done.wait()
        return web.Response()

    server.handles("GET", "/readyz", handle)
    with pytest.raises(NotReadyError, match=r"not ready within 0\.05 s: no answer"):
        await discovery.wait_ready(connection, 0.05)
    done.set()
