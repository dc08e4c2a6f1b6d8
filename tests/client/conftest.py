"""A fake API server on loopback, with and without TLS, and fixtures to talk to it.

Tests use real HTTP and real certificates, because they are about the wire. Only the responses are scripted.
"""

import asyncio
import datetime as dt
import heapq
import ipaddress
import itertools
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cpg_client.connection import Connection
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.timing import Timing

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it reached the server."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: str
    """The common name in the client's certificate, or empty."""


@dataclass
class FakeServer:
    """Sends scripted responses in order, repeats the last, and answers 404 to everything else."""

    url: str = ""
    seen: list[RecordedRequest] = field(default_factory=list)
    script: dict[tuple[str, str], list[Handler]] = field(default_factory=lambda: defaultdict(list))

    def answers(
        self,
        method: str,
        path: str,
        body: object = b"",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add a response: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)

        async def handle(_: web.Request) -> web.Response:
            return web.Response(status=status, body=data, headers=headers)

        self.handles(method, path, handle)

    def handles(self, method: str, path: str, handler: Handler) -> None:
        """Add a response that needs code."""
        self.script[method, path].append(handler)

    def answer_all(self, body: bytes, *, status: int = 200) -> None:
        """Give this answer to every request, whatever it asks for."""

        async def handle(_: web.Request) -> web.Response:
            return web.Response(status=status, body=body)

        self.script = defaultdict(lambda: [handle])

    def streams(self, path: str, *pieces: bytes, end: Literal["close", "cut", "hold"] = "close") -> None:
        """Add the response to a watch: chunks, then a proper end, a broken connection, or silence."""

        async def handle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
                await asyncio.sleep(0.001)
            if end == "cut" and request.transport is not None:
                request.transport.abort()
            if end == "hold":
                await asyncio.Event().wait()
            return response

        self.handles("GET", path, handle)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Record the request and answer it."""
        self.seen.append(
            RecordedRequest(
                method=request.method,
                path=request.raw_path.partition("?")[0],
                query=dict(request.query),
                headers=dict(request.headers),
                body=await request.read(),
                peer=_common_name(request.get_extra_info("peercert")),
            )
        )
        handlers = self.script[request.method, request.path]
        if not handlers:
            return web.Response(status=404, text="404 page not found")
        return await (handlers.pop(0) if len(handlers) > 1 else handlers[0])(request)


def _common_name(certificate: dict[str, tuple[tuple[tuple[str, str], ...], ...]] | None) -> str:
    return dict(pair for part in (certificate or {}).get("subject", ()) for pair in part).get("commonName", "")


@dataclass(frozen=True)
class CertificatePair:
    """A certificate and its key, as PEM text."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Pki:
    """An authority, a server known as 127.0.0.1 and as api.test, and a client named alice."""

    ca: bytes
    server: CertificatePair
    client: CertificatePair


@dataclass
class FakeSleep:
    """A sleep that takes no time and records its durations."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        """Return at once."""
        self.seconds.append(seconds)


class VirtualTime:
    """Time that passes only when a test advances it, for code with a ``timing``."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self.timing = Timing(sleep=self.sleep, clock=lambda: self.now, wall=lambda: 1_800_000_000 + self.now)

    async def sleep(self, seconds: float) -> None:
        """Sleep until the time has been advanced so far."""
        waking = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), waking))
        await waking

    async def advance(self, seconds: float) -> None:
        """Advance the time; every sleeper wakes at its exact moment."""
        until = self.now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, waking = heapq.heappop(self._sleepers)
            if not waking.done():
                waking.set_result(None)
                await self._settle()
        self.now = until

    async def _settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
def virtual() -> VirtualTime:
    """Return a time that a test advances."""
    return VirtualTime()


@pytest.fixture(scope="session")
def pki() -> Pki:
    """Make the certificates once; they are valid for a day around the time of the tests."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("authority", authority_key, "authority", authority_key, authority=True)

    def issue(name: str) -> CertificatePair:
        key = ec.generate_private_key(ec.SECP256R1())
        return CertificatePair(_pem(_certificate(name, key, "authority", authority_key)), _key_pem(key))

    return Pki(_pem(authority), issue("api.test"), issue("alice"))


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  # OpenSSL reads the clock, so the certificate must too
    names = [x509.DNSName("api.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


async def _serving(context: ssl.SSLContext | None) -> AsyncIterator[FakeServer]:
    server = FakeServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """Serve plain HTTP."""
    async for server in _serving(None):
        yield server


@pytest.fixture
async def tls_server(pki: Pki, tmp_path: Path) -> AsyncIterator[FakeServer]:
    """Serve TLS, and accept client certificates without requiring them."""
    for name, pem in {"tls.crt": pki.server.certificate, "tls.key": pki.server.key}.items():
        tmp_path.joinpath(name).write_bytes(pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=pki.ca.decode())
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    async for server in _serving(context):
        yield server


@pytest.fixture
def tls_endpoint(tls_server: FakeServer, pki: Pki) -> Endpoint:
    """Return an endpoint for the TLS server, with its authority and a token."""
    return Endpoint(server=tls_server.url, ca=pki.ca, credentials=Credentials(token="sesame"))  # noqa: S106


@pytest.fixture
def fake_sleep() -> FakeSleep:
    """Return a sleep that takes no time."""
    return FakeSleep()


@pytest.fixture
async def connection(server: FakeServer, fake_sleep: FakeSleep) -> AsyncIterator[Connection]:
    """Connect to the plain server, without real waiting."""
    async with Connection(Endpoint(server=server.url), timing=Timing(sleep=fake_sleep)) as connection:
        yield connection
