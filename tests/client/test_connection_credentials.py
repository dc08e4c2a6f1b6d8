"""TLS, tokens and certificates of a connection."""

import asyncio
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client.connection import (
    Connection,
    ConnectionSettings,
)
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import RetryPolicy
from cpg_client.timing import Timing

if TYPE_CHECKING:
    from tests.client.conftest import CertificatePair, FakeServer, Pki

NO_RETRIES = ConnectionSettings(retries=RetryPolicy(attempts=1))


async def test_tls_connections_are_small(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """Both ends are in this process, and the server's end takes 256 KiB, as asyncio does."""
    number, beginning = 16, asyncio.Event()

    async def together(_: web.Request) -> web.Response:
        if len(tls_server.seen) == number:
            beginning.set()
        await beginning.wait()
        return web.Response()

    tls_server.handles("GET", "/x", together)
    tracemalloc.start()
    async with Connection(tls_endpoint) as connection:
        before, _ = tracemalloc.get_traced_memory()
        await asyncio.gather(*(connection.get("/x") for _ in range(number)))
        after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / number < (256 + 32) * 1024


async def test_a_token_is_sent_over_tls(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """To a server with a verified certificate."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(tls_endpoint) as connection:
        assert await connection.get("/x") == b"hello"
    assert tls_server.seen[0].headers["Authorization"] == "Bearer sesame"


async def test_a_rotated_token_is_sent(tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path) -> None:
    """Requests use the content of the token file as of the last minute."""
    now, file = [0.0], tmp_path / "token"
    file.write_text("first")
    tls_server.answers("GET", "/x")
    endpoint = replace(tls_endpoint, credentials=Credentials(token_file=file))
    async with Connection(endpoint, timing=Timing(clock=lambda: now[0])) as connection:
        await connection.get("/x")
        file.write_text("second")
        now[0] = 61.0
        await connection.get("/x")
    assert [seen.headers["Authorization"] for seen in tls_server.seen] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refused_token_is_read_again(
    tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path, *, streaming: bool
) -> None:
    """After a 401 the file is read at once. With another token the request is repeated."""
    file = tmp_path / "token"
    file.write_text("first")
    tls_server.answers("GET", "/x", status=401)
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, credentials=Credentials(token_file=file))) as connection:
        assert connection._tokens.current() == "first"
        file.write_text("second")
        if streaming:
            with pytest.raises(ApiError, match="401 Unauthorized"):
                await anext(connection.stream("/x", silence=5))
        assert await connection.get("/x") == b"hello"
    assert [seen.headers["Authorization"] for seen in tls_server.seen] == ["Bearer first", "Bearer second"]


async def test_a_token_that_stays_refused_raises(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """Without another token there is no retry."""
    tls_server.answers("GET", "/x", status=401)
    async with Connection(tls_endpoint) as connection:
        with pytest.raises(ApiError, match="401 Unauthorized"):
            await connection.get("/x")
    assert len(tls_server.seen) == 1


async def test_a_token_is_not_sent_over_plain_http(server: "FakeServer") -> None:
    """Such as to a local proxy."""
    server.answers("GET", "/x")
    endpoint = Endpoint(server=server.url, credentials=Credentials(token="sesame"))  # noqa: S106
    async with Connection(endpoint) as connection:
        await connection.get("/x")
    assert "Authorization" not in server.seen[0].headers


async def test_a_rotated_client_certificate_is_used(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path
) -> None:
    """On connections opened afterwards, and at once when the old certificate is refused."""
    certificate, key = tmp_path / "mine.crt", tmp_path / "mine.key"

    def become(pair: "CertificatePair") -> None:
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    become(pki.client)
    for status in (200, 200, 401, 200, 401):
        tls_server.answers("GET", "/x", status=status)
    mine = replace(tls_endpoint, credentials=Credentials(certificate=certificate, key=key))
    async with Connection(mine, NO_RETRIES) as connection:
        await connection.get("/x")
        become(pki.server)
        await connection.get("/x")
        await connection.get("/x")
        with pytest.raises(ApiError, match="401"):
            await connection.get("/x")
    assert [seen.peer for seen in tls_server.seen] == ["alice", "alice", "alice", "api.test", "api.test"]


async def test_a_rotated_authority_is_trusted(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path
) -> None:
    """As soon as its file has changed, and at the latest after a failed handshake. The old one is no longer trusted."""
    tls_server.answers("GET", "/x", b"hello")
    file = tmp_path / "ca.crt"
    file.write_bytes(pki.server.certificate.ljust(4096, b"\n"))  # it has signed no certificate
    async with Connection(replace(tls_endpoint, ca=file), NO_RETRIES) as connection:
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            await connection.get("/x")
        before = file.stat()
        file.write_bytes(pki.ca.ljust(4096, b"\n"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert await connection.get("/x") == b"hello"


@pytest.mark.parametrize("kind", ["bytes", "file"])
async def test_a_client_certificate_is_sent(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path, kind: str
) -> None:
    """The server reads its name, whether the certificate is inlined or in files."""
    tls_server.answers("GET", "/x")
    certificate, key = tmp_path / "alice.crt", tmp_path / "alice.key"
    certificate.write_bytes(pki.client.certificate)
    key.write_bytes(pki.client.key)
    credentials = {
        "bytes": Credentials(certificate=pki.client.certificate, key=pki.client.key),
        "file": Credentials(certificate=certificate, key=key),
    }[kind]
    async with Connection(replace(tls_endpoint, credentials=credentials)) as connection:
        await connection.get("/x")
    assert tls_server.seen[0].peer == "alice"


async def test_a_server_of_another_authority_is_not_trusted(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """It gets no request."""
    async with Connection(replace(tls_endpoint, ca=None)) as connection:
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            await connection.get("/x")
    assert tls_server.seen == []


async def test_verification_can_be_disabled(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """Any certificate is accepted then."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, ca=None, verify=False)) as connection:
        assert await connection.get("/x") == b"hello"


@pytest.mark.parametrize(("name", "trusted"), [("api.test", True), ("other.test", False)])
async def test_the_name_to_verify_can_be_set(
    tls_server: "FakeServer", tls_endpoint: Endpoint, name: str, *, trusted: bool
) -> None:
    """tls-server-name is verified in place of the host in the address."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, tls_server_name=name)) as connection:
        if trusted:
            assert await connection.get("/x") == b"hello"
        else:
            with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
                await connection.get("/x")


async def test_a_kubeconfig_opens_a_connection(server: "FakeServer", tmp_path: Path) -> None:
    """From a file to a response in one expression."""
    server.answers("GET", "/version", b"1")
    file = tmp_path / "config"
    file.write_text(
        "contexts: [{name: lab, context: {cluster: lab}}]\n"
        f"clusters: [{{name: lab, cluster: {{server: '{server.url}'}}}}]\n"
    )
    async with Connection.from_kubeconfig(file, "lab") as connection:
        assert await connection.get("/version") == b"1"
    assert connection.endpoint.context == "lab"
