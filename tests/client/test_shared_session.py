"""A session for other libraries, with our credentials."""

import asyncio
import json
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest

from cpg_api.nesting import MAX_NESTING
from cpg_client import shared_session, tls
from cpg_client.endpoint import Credentials, Endpoint, ExecPlugin
from cpg_client.errors import EndpointError
from cpg_client.shared_session import current_token, open_shared_session

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, Pki


async def test_requests_have_the_current_token(
    tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path
) -> None:
    """Each new session reads it from its file, so a rotated token is used after a 401."""
    tls_server.answers("GET", "/version")
    file = tmp_path / "token"
    endpoint = replace(tls_endpoint, credentials=replace(tls_endpoint.credentials, token_file=file))
    for token in ("old", "new"):
        file.write_text(token)
        async with open_shared_session(endpoint) as session, session.get(f"{endpoint.server}/version") as answer:
            assert answer.status == 200
        assert tls_server.seen[-1].headers["Authorization"] == f"Bearer {token}"


@pytest.mark.parametrize("token", ["secret", None])
async def test_no_token_is_sent_over_plain_http(server: "FakeServer", token: str | None) -> None:
    """As in our own connections."""
    server.answers("GET", "/version")
    endpoint = Endpoint(server=server.url, credentials=Credentials(token=token))
    async with open_shared_session(endpoint) as session, session.get(f"{server.url}/version") as answer:
        assert answer.status == 200
    assert "Authorization" not in server.seen[0].headers


async def test_without_a_token_none_is_sent(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """A certificate may be the only credential."""
    tls_server.answers("GET", "/version")
    endpoint = replace(tls_endpoint, credentials=Credentials())
    async with open_shared_session(endpoint) as session, session.get(f"{endpoint.server}/version") as answer:
        assert answer.status == 200
    assert "Authorization" not in tls_server.seen[0].headers


async def test_the_current_token_comes_from_any_source(tmp_path: Path) -> None:
    """From the kubeconfig, from a file, from a plugin, or there is none."""
    file, program = tmp_path / "token", tmp_path / "program"
    file.write_text("filed")
    status = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}'
    program.write_text(f"#!/bin/sh\necho '{status}'\n")
    program.chmod(0o755)
    plugin = ExecPlugin(api_version="client.authentication.k8s.io/v1", command=str(program))
    sources = (Credentials(token="given"), Credentials(token_file=file), Credentials(plugin=plugin), Credentials())  # noqa: S106  # none of them opens anything
    found = [await current_token(Endpoint(server="https://server", credentials=one)) for one in sources]
    assert found == ["given", "filed", "made", None]


async def test_an_open_session_loads_rotated_files(
    tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path, pki: "Pki"
) -> None:
    """A new authority after a failed handshake, and a certificate from a plugin before the first request."""
    tls_server.answers("GET", "/version")
    ca, program = tmp_path / "ca.crt", tmp_path / "program"
    ca.write_bytes(pki.server.certificate)  # it has signed no certificate
    status = {"clientCertificateData": pki.client.certificate.decode(), "clientKeyData": pki.client.key.decode()}
    api = "client.authentication.k8s.io/v1"
    (tmp_path / "answer").write_bytes(
        msgspec.json.encode({"apiVersion": api, "kind": "ExecCredential", "status": status})
    )
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    program.chmod(0o755)
    plugin = ExecPlugin(api_version=api, command=str(program))
    endpoint = replace(tls_endpoint, ca=ca, credentials=Credentials(plugin=plugin))
    async with open_shared_session(endpoint) as session:
        with pytest.raises(aiohttp.ClientSSLError):
            await session.get(f"{endpoint.server}/version")
        ca.write_bytes(pki.ca)
        with pytest.raises(aiohttp.ClientSSLError):
            await session.get(f"{endpoint.server}/version")
        async with session.get(f"{endpoint.server}/version") as answer:
            assert answer.status == 200
    assert [seen.peer for seen in tls_server.seen] == ["alice"]
    with pytest.raises(EndpointError, match="a certificate alone"):
        await current_token(endpoint)
    with pytest.raises(EndpointError, match="certificates cannot be used"):
        tls.reload_context(ssl.create_default_context(), replace(endpoint, ca=tmp_path / "none"))


def deep(levels: int) -> bytes:
    """Return a group with deeply nested managedFields, as the API server accepts it."""
    fields = b'{"f:a":' * levels + b"{}" + b"}" * levels
    return b'{"metadata":{"name":"deep","managedFields":[{"fieldsV1":%s}]},"spec":{"priority":5}}' % fields


def is_shallow(plain: object) -> bool:
    """Return whether nothing is nested by the hundred."""
    layer, levels = [plain], 0
    while layer and levels <= MAX_NESTING:
        levels += 1
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return not layer


@pytest.mark.parametrize("levels", [MAX_NESTING + 50, 100_000])
async def test_deep_nesting_is_cut(server: "FakeServer", levels: int) -> None:
    """The rest of the list and of the object is unchanged."""
    good = {"metadata": {"name": "good", "labels": {"a": "}]" * 300 + '\\"'}}, "spec": {}}
    items = b",".join((json.dumps(good).encode(), deep(levels)))
    server.answers(
        "GET", "/groups", b'{"metadata":{},"items":[%s]}' % items, headers={"Content-Type": "application/json"}
    )
    async with (
        open_shared_session(Endpoint(server=server.url)) as session,
        session.get(f"{server.url}/groups") as answer,
    ):
        found = await answer.json()
    assert is_shallow(found)
    first, second = found["items"]
    assert first == good
    assert (second["metadata"]["name"], second["spec"]) == ("deep", {"priority": 5})


async def test_shallow_responses_are_unchanged(server: "FakeServer") -> None:
    """Such as a long list, an object with many brackets, and bytes that are no JSON."""
    item = json.dumps({"metadata": {"name": "\\"}, "spec": [{"a": ['{"']}] * MAX_NESTING}).encode()
    for body in (b'{"items":[%s]}' % b",".join([item] * 9), item, b'{"items":[]}', b"[" * 9, b"{" * 9 + b"\xff"):
        server.script.clear()
        server.answers("GET", "/groups", body)
        async with (
            open_shared_session(Endpoint(server=server.url)) as session,
            session.get(f"{server.url}/groups") as answer,
        ):
            assert await answer.read() == body


@pytest.mark.parametrize("size", [7, 1 << 20])
async def test_deep_nesting_is_cut_in_a_watch(server: "FakeServer", size: int) -> None:
    """Lines may arrive in any chunks, and the last without an end."""
    event = b'{"type":"ADDED","object":%s}'
    lines = [event % b'{"metadata":{"name":"a"}}', event % deep(5000), event % deep(3), event % b'{"metadata":{}}']
    stream = b"\n".join(lines)
    server.streams("/groups", *(stream[at : at + 9000] for at in range(0, len(stream), 9000)))
    url = f"{server.url}/groups?watch=true"
    async with open_shared_session(Endpoint(server=server.url)) as session, session.get(url) as answer:
        heard = b"".join([piece async for piece in answer.content.iter_chunked(size)]).split(b"\n")
    assert (heard[0], *heard[2:]) == (lines[0], *lines[2:])
    assert is_shallow(cut := json.loads(heard[1]))
    assert cut["object"]["spec"] == {"priority": 5}


async def test_many_watches_leave_a_session_usable(server: "FakeServer") -> None:
    """Kopf holds a stream for each kind in each namespace: 34 namespaces have more than aiohttp's default limit."""
    server.streams("/watch", b"one", end="hold")
    server.answers("GET", "/list", b"{}")
    async with open_shared_session(Endpoint(server=server.url)) as session, AsyncExitStack() as watches:
        async with asyncio.timeout(10):
            for _ in range(120):
                await watches.enter_async_context(session.get(f"{server.url}/watch"))
            async with session.get(f"{server.url}/list") as answer:
                assert answer.status == 200


async def test_an_endless_line_is_cut_off(server: "FakeServer", monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf takes it for a broken connection, and watches again."""
    monkeypatch.setattr(shared_session, "MAX_LINE_BYTES", 100_000)
    server.streams("/watch", *[b"x" * 50_000] * 4, end="hold")
    async with (
        open_shared_session(Endpoint(server=server.url)) as session,
        session.get(f"{server.url}/watch") as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError, match="longer than 100000 bytes"):
            _ = [piece async for piece in answer.content.iter_chunked(1 << 20)]


@pytest.mark.parametrize(("query", "is_broken"), [("limit=20&continue=x", True), ("limit=20", False)])
async def test_expired_pages_are_a_broken_connection(server: "FakeServer", query: str, *, is_broken: bool) -> None:
    """Kopf lists again then; any other answer to the page would end it."""
    server.answers("GET", "/groups", b"{}", status=410)
    async with open_shared_session(Endpoint(server=server.url)) as session:
        if is_broken:
            with pytest.raises(aiohttp.ClientPayloadError, match="expired"):
                await session.get(f"{server.url}/groups?{query}")
            return
        async with session.get(f"{server.url}/groups?{query}") as answer:
            assert answer.status == 410
