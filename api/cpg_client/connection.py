"""Requests to one API server: bytes out, bytes in, errors as values of ``errors``.

Answers stay bytes because the callers decode them straight into typed structs, and so that nothing is
parsed twice. HTTP/1.1 with keep-alive and many connections rather than HTTP/2: at our rates the server's side costs
more than the sockets.

Deliberately absent: redirects (an API server sends none, and following one would hand our credentials
to another host), proxies, and compression: as for kube-scheduler, processor time beside an API server is dearer than
bytes.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from os import PathLike
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from cpg_client import kubeconfig, tls
from cpg_client.connection_pool import BrokenConnectionError, ConnectionPool, HttpConnection, ServerAddress
from cpg_client.endpoint import ClientCertificate, Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.http1 import ResponseHead
from cpg_client.http1 import encode_request as request_of
from cpg_client.observer import RequestObserver
from cpg_client.retrying import RetryPolicy
from cpg_client.timing import REAL_TIME, Timing
from cpg_client.tokens import TokenSource

Params = Mapping[str, str | int]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_YAML = "application/apply-patch+yaml"

_UNQUOTED = "/:@!$&'()*+,;=%"
"""What may stand in a path as it is; an escape in it is neither undone nor doubled."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """How hard we may push the server and how long we bear with it.

    ``limit`` is the number of sockets, hence of requests in flight; those above it wait their turn.
    ``total_timeout`` covers one attempt from that waiting to the last byte of the answer,
    ``connect_timeout`` the making of a new one. ``idle_timeout`` is below the 90 seconds after which a Go server
    closes an idle connection, so that the two sides do not race. The part of
    ``user_agent`` before the slash is the field manager the server assumes where a request names none.
    """

    limit: int = 512
    total_timeout: float = 60.0
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    user_agent: str = f"kube-cpg/{version('kube-cpg')}"


def _open() -> None:
    """Let every request through: what a connection without a fence does."""


class Connection:
    """An open channel to one API server, used as ``async with Connection(endpoint) as connection``.

    Paths begin with a slash and come from ``resources``. Bodies are bytes to send as they are or
    anything ``msgspec.json.encode`` takes. Every method returns the answer's body, raises ``ApiError``
    when the server refuses and ``ConnectionFailedError`` when it does not answer; ``retrying`` tells
    which refusals are waited out. Client certificates and tokens are sent over TLS only, as kubectl does.
    ``fence`` is called right before each request that may write, and may raise instead of letting it go.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ConnectionSettings = ConnectionSettings(),
        *,
        timing: Timing = REAL_TIME,
        fence: Callable[[], None] = _open,
    ) -> None:
        self.endpoint = endpoint
        self.timing = timing
        self.observer = RequestObserver()
        self._fence = fence
        self._settings = settings
        self._tokens = TokenSource(endpoint.credentials, timing.clock)
        self._plugin = PluginCredentials.of(endpoint, timing)
        self._contexts = tls.TlsContexts(endpoint)
        self._identity: ClientCertificate | None = None
        self._url = urlsplit(endpoint.server.rstrip("/"))
        self._secure = self._url.scheme == "https"
        self._headers = (
            ("Host", self._url.netloc.rpartition("@")[2]),
            ("User-Agent", settings.user_agent),
            ("Accept", JSON),
            ("Accept-Encoding", "identity"),
        )
        self._channels: ConnectionPool | None = None

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | PathLike[str] | None = None,
        context: str | None = None,
        settings: ConnectionSettings = ConnectionSettings(),
    ) -> Self:
        """Connect to where a kubeconfig points: this file, else $KUBECONFIG, else the one at home."""
        return cls(kubeconfig.load(path, context), settings)

    async def __aenter__(self) -> Self:
        settings, endpoint = self._settings, self.endpoint
        self._channels = ConnectionPool(
            ServerAddress(
                host=self._url.hostname or "",
                port=self._url.port or (443 if self._secure else 80),
                tls=(lambda: self._contexts.current(self._identity)) if self._secure else None,
                name=endpoint.tls_server_name,
            ),
            limit=settings.limit,
            connect_timeout=settings.connect_timeout,
            idle_timeout=settings.idle_timeout,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        channels, self._channels = self._channels, None
        if channels is not None:
            channels.close()
            await asyncio.sleep(0)  # in which the sockets are closed: the loop may end with us

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """Read an object or a list."""
        return await self._request("GET", path, params=params)

    async def post(self, path: str, body: object, params: Params | None = None) -> bytes:
        """Create an object, or call a subresource such as ``binding``."""
        return await self._request("POST", path, body=body, params=params)

    async def put(self, path: str, body: object, params: Params | None = None) -> bytes:
        """Replace an object."""
        return await self._request("PUT", path, body=body, params=params)

    async def patch(
        self, path: str, body: object, content_type: str = MERGE_PATCH, *, params: Params | None = None
    ) -> bytes:
        """Change an object; the content type says in which of the four ways the body does so."""
        return await self._request("PATCH", path, body=body, content_type=content_type, params=params)

    async def delete(self, path: str, body: object = None, params: Params | None = None) -> bytes:
        """Delete an object, or a whole collection; the body may hold ``DeleteOptions``."""
        return await self._request("DELETE", path, body=body, params=params)

    async def stream(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Yield an answer's body as it arrives, in pieces of any size, for as long as the server keeps sending.

        The first piece is empty: it says that the server has accepted the request. Nothing is retried, and
        no time-out covers the whole; ``silence`` is the number of seconds without a byte after which the
        server counts as lost. A stream occupies one of the ``limit`` sockets. Close it (``aclosing``):
        a generator that is merely dropped ends when the garbage collector finds it.
        """
        channels = self._open_channels()
        about, patience = f"GET {path}", self._settings.total_timeout
        message = await self._message("GET", path, data=None, headers={}, params=params)
        with self._telling(about, f"no complete answer within {patience:g} s"):
            async with asyncio.timeout(patience):
                channel, head = await self._ask("GET", message, streaming=True)
        try:
            pieces = self._pieces(channel, about, silence)
            if not 200 <= head.status < 300:
                _refuse(head, b"".join([piece async for piece in pieces]), about)
            yield b""
            async for piece in pieces:
                yield piece
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                await self._renew()
            raise
        finally:
            channels.release(channel)

    async def _pieces(self, channel: HttpConnection, about: str, silence: float) -> AsyncIterator[bytes]:
        while True:
            with self._telling(about, f"nothing was heard for {silence:g} s"):
                async with asyncio.timeout(silence):
                    piece = await channel.read_chunk()
            if not piece:
                return
            yield piece

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        params: Params | None = None,
    ) -> bytes:
        """Send, and send again as long as ``retrying`` allows; the body is encoded once.

        Who is refused tries one other token or certificate: a program that makes new ones has no last one.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        sent, waited, renewed = 0, 0.0, False
        while True:
            try:
                sent += 1
                return await self._send(method, path, data=data, headers=headers, params=params)
            except ApiError as error:
                if error.status == HTTPStatus.UNAUTHORIZED and not renewed:
                    renewed = await self._renew()
                    if renewed:
                        continue
                wait = self._settings.retries.wait_before_next(method, error, sent=sent, waited=waited)
                if wait is None:
                    raise
                self.observer.on_retry(method, error.status)
            waited += wait
            await self.timing.sleep(wait)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None,
        headers: dict[str, str],
        params: Params | None,
    ) -> bytes:
        message = await self._message(method, path, data=data, headers=headers, params=params)
        about, patience = f"{method} {path}", self._settings.total_timeout
        with self._telling(about, f"no complete answer within {patience:g} s"):
            async with asyncio.timeout(patience):
                channel, head = await self._ask(method, message)
        body = channel.take_body()
        self._open_channels().release(channel)
        _refuse(head, body, about)
        return body

    async def _ask(
        self, method: str, message: bytes, *, streaming: bool = False
    ) -> tuple[HttpConnection, ResponseHead]:
        began, status = self.timing.clock(), 0
        try:
            channel, head = await self._exchange(method, message, streaming=streaming)
            status = head.status
        finally:
            self.observer.on_response(method, status, self.timing.clock() - began)
        return channel, head

    async def _exchange(self, method: str, message: bytes, *, streaming: bool) -> tuple[HttpConnection, ResponseHead]:
        """Send a request and wait for the answer; the channel is to be given back.

        An idle channel may turn out to have been closed meanwhile: what only reads is then sent once more on a new one.
        """
        channels = self._open_channels()
        fence = _open if method == "GET" else self._fence
        channel = await channels.acquire()
        while True:
            try:
                channel.send_request(message, fence=fence, streaming=streaming)
                return channel, await channel.read_head()
            except BaseException as error:
                channels.release(channel)
                if not (isinstance(error, BrokenConnectionError) and channel.is_stale and method == "GET"):
                    raise
            channel = await channels.acquire(fresh=True)

    async def _message(
        self, method: str, path: str, *, data: bytes | None, headers: Mapping[str, str], params: Params | None
    ) -> bytes:
        target = quote(f"{self._url.path}{path}", safe=_UNQUOTED)
        if params:
            target += f"?{urlencode(params, quote_via=quote)}"
        own = (*self._headers, *headers.items(), *(await self._authorization()).items())
        return request_of(method, target, own, data)

    @contextmanager
    def _telling(self, about: str, silence: str) -> Iterator[None]:
        """Turn what may become of a channel into our errors."""
        server = self.endpoint.server.rstrip("/")
        try:
            yield
        except TimeoutError as error:
            raise ConnectionFailedError(server, about, silence) from error
        except BrokenConnectionError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                self._contexts.invalidate()
            raise ConnectionFailedError(server, about, str(error)) from error

    def _open_channels(self) -> ConnectionPool:
        if self._channels is None:
            raise RuntimeError("the connection is not open: use it within `async with`")
        return self._channels

    async def _authorization(self) -> dict[str, str]:
        if not self._secure:
            return {}
        if self._plugin is None:
            token = self._tokens.current()
        else:
            token = await self._plugin.current()
            self._show(self._plugin.certificate)
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _renew(self) -> bool:
        """Look for another token or certificate, because ours were refused; tell whether there are any."""
        if self._plugin is not None:
            return await self._plugin.renew()
        has_token = self._tokens.renew()
        return self._open_channels().refresh() or has_token

    def _show(self, identity: ClientCertificate | None) -> None:
        """Show the certificate that a program gave, on channels that are opened from now on."""
        if identity != self._identity:
            self._identity = identity
            self._open_channels().refresh()


def _refuse(head: ResponseHead, body: bytes, about: str) -> None:
    """Raise what the server says, unless it is yes."""
    if not 200 <= head.status < 300:
        raise ApiError.from_response(head.status, body, retry_after=head.header("retry-after"), request=about)
