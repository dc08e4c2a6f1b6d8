"""Send requests to one API server: bytes in and out, failures as the exceptions of ``errors``.

Responses stay bytes, since callers decode them into typed structs. We use HTTP/1.1 with keep-alive and many connections
rather than HTTP/2: at our rates the server's side costs more than the sockets.

Three features are left out on purpose. An API server sends no redirects, and following one would send our credentials
to another host. Proxies are not supported. Compression costs more CPU time next to an API server than it saves, as in
kube-scheduler.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib.metadata import version
from os import PathLike
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from cpg_client import kubeconfig, tls
from cpg_client.connection_pool import (
    BrokenConnectionError,
    ConnectionPool,
    ConnectionPools,
    HttpConnection,
    OversizedResponseError,
    PoolLimits,
    ServerAddress,
)
from cpg_client.endpoint import ClientCertificate, Endpoint
from cpg_client.errors import AnswerTooLargeError, ApiError, ConnectionFailedError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.http1 import ResponseHead
from cpg_client.http1 import encode_request as request_of
from cpg_client.loop_pauses import LoopPauses
from cpg_client.observer import RequestObserver
from cpg_client.retrying import RetryPolicy
from cpg_client.server_clock import ServerClock
from cpg_client.timing import REAL_TIME, Timing
from cpg_client.tokens import TokenSource

Params = Mapping[str, str | int]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_YAML = "application/apply-patch+yaml"

FIELD_MANAGER = "kube-cpg"
"""The field manager of writes that name none: the API server takes it from the user agent."""

_MAX_REFUSAL_BYTES = 1 << 20
"""Bytes of a refused stream that are read. A refusal has a sentence, or a page of a proxy."""

_UNQUOTED = "/:@!$&'()*+,;=%"
"""Characters that need no quoting in a path. Existing escapes are kept and not doubled."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Limits and time-outs of a connection.

    ``limit`` is the number of sockets, hence of concurrent requests; more requests queue. Streams have sockets of their
    own, up to ``stream_limit``: a watch holds its socket, and hundreds of them would leave none for binds and lists.
    ``total_timeout`` covers one attempt, from the queue to the last byte. ``connect_timeout`` covers a new socket.
    ``idle_timeout`` is below the 90 seconds after which a Go server closes an idle connection, so that both sides do
    not race. A longer answer than ``max_answer_bytes`` is an error: no object and no page of a list is that long. The
    part of ``user_agent`` before the slash is the field manager of requests that name none.
    """

    limit: int = 512
    stream_limit: int = 8192
    total_timeout: float = 60.0
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0
    max_answer_bytes: int = 32 << 20
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    user_agent: str = f"{FIELD_MANAGER}/{version('kube-cpg')}"


def _allow_all() -> None:
    """Let every request pass: the default fence."""


class Connection:
    """A connection to one API server, used as ``async with Connection(endpoint) as connection``.

    Paths begin with a slash and come from ``resources``. Bodies are bytes, or anything that ``msgspec.json.encode``
    takes. Every method returns the body of the response. It raises ``ApiError`` where the server refuses, and
    ``ConnectionFailedError`` where no complete response arrives. ``retrying`` defines which refusals are retried.
    Client certificates and tokens are sent over TLS only, as in kubectl. ``fence`` is called immediately before each
    request that may write, and may raise to stop it. The ``wall`` of ``timing`` is the time of day of the server.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ConnectionSettings = ConnectionSettings(),
        *,
        timing: Timing = REAL_TIME,
        fence: Callable[[], None] = _allow_all,
    ) -> None:
        self.endpoint = endpoint
        self._server_clock = ServerClock(clock=timing.clock, wall=timing.wall)
        self.timing = replace(timing, wall=self._server_clock)
        self.observer = RequestObserver()
        self.pauses = LoopPauses(timing.elapsed)
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
        self._pools: ConnectionPools | None = None

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | PathLike[str] | None = None,
        context: str | None = None,
        settings: ConnectionSettings = ConnectionSettings(),
    ) -> Self:
        """Connect to the server of a kubeconfig: this file, else $KUBECONFIG, else ``~/.kube/config``."""
        return cls(kubeconfig.load(path, context), settings)

    async def __aenter__(self) -> Self:
        address = ServerAddress(
            host=self._url.hostname or "",
            port=self._url.port or (443 if self._secure else 80),
            tls=(lambda: self._contexts.current(self._identity)) if self._secure else None,
            name=self.endpoint.tls_server_name,
        )
        settings = self._settings
        limits = PoolLimits(settings.connect_timeout, settings.idle_timeout, settings.max_answer_bytes)
        self._pools = ConnectionPools(
            ConnectionPool(address, limits, settings.limit), ConnectionPool(address, limits, settings.stream_limit)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pools, self._pools = self._pools, None
        if pools is not None:
            pools.close()
            await asyncio.sleep(0)  # the transports close their sockets in this turn; the loop may end after it

    def longest_wait(self) -> float:
        """Return the seconds for which the oldest request or stream has been waiting for a socket; 0 if none waits."""
        return self._pools.longest_wait() if self._pools is not None else 0.0

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
        """Change an object. The content type selects one of the four kinds of patch."""
        return await self._request("PATCH", path, body=body, content_type=content_type, params=params)

    async def delete(self, path: str, body: object = None, params: Params | None = None) -> bytes:
        """Delete an object or a whole collection; the body may be ``DeleteOptions``."""
        return await self._request("DELETE", path, body=body, params=params)

    async def stream(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Yield a response's body in chunks of any size as they arrive, until the server ends it.

        The first chunk is empty: the server has accepted the request. Nothing is retried, and no time-out covers the
        whole. After ``silence`` seconds without a byte the server counts as lost. A stream occupies one of the
        ``stream_limit`` sockets. Close it with ``aclosing``, because a generator that is only dropped ends when the
        garbage collector finds it.
        """
        pool = self._open_pools().streams
        request, timeout = f"GET {path}", self._settings.total_timeout
        message = await self._encode("GET", path, data=None, headers={}, params=params)
        with self._translate_errors(request, f"no complete response within {timeout:g} s"):
            async with asyncio.timeout(timeout):
                connection, head = await self._send_and_wait("GET", message, streaming=True)
        try:
            chunks = self._chunks(connection, request, silence)
            if not 200 <= head.status < 300:
                _raise_for_status(head, await _beginning(chunks), request)
            yield b""
            async for chunk in chunks:
                yield chunk
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                await self._renew()
            raise
        finally:
            pool.release(connection)

    async def _chunks(self, connection: HttpConnection, request: str, silence: float) -> AsyncIterator[bytes]:
        while True:
            with self._translate_errors(request, f"no data for {silence:g} s"):
                async with asyncio.timeout(silence):
                    chunk = await connection.read_chunk()
            if not chunk:
                return
            yield chunk

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        params: Params | None = None,
    ) -> bytes:
        """Send a request, and retry as ``retrying`` allows; the body is encoded once.

        After a 401 one other token or certificate is tried. A plugin could make new ones for ever.
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
        message = await self._encode(method, path, data=data, headers=headers, params=params)
        request, timeout = f"{method} {path}", self._settings.total_timeout
        with self._translate_errors(request, f"no complete response within {timeout:g} s"):
            async with asyncio.timeout(timeout):
                connection, head = await self._send_and_wait(method, message)
        body = connection.take_body()
        self._open_pools().requests.release(connection)
        _raise_for_status(head, body, request)
        return body

    async def _send_and_wait(
        self, method: str, message: bytes, *, streaming: bool = False
    ) -> tuple[HttpConnection, ResponseHead]:
        began, status = self.timing.clock(), 0
        try:
            connection, head = await self._exchange(method, message, streaming=streaming)
            status = head.status
            self._server_clock.observe(head.headers.get(b"date"))
        finally:
            self.observer.on_response(method, status, self.timing.clock() - began)
        return connection, head

    async def _exchange(self, method: str, message: bytes, *, streaming: bool) -> tuple[HttpConnection, ResponseHead]:
        """Send a request and wait for the head of the response; the caller releases the connection.

        The server may have closed an idle connection. A GET is then sent once more on a new one.
        """
        pools = self._open_pools()
        pool = pools.streams if streaming else pools.requests
        fence = _allow_all if method == "GET" else self._fence
        connection = await pool.acquire()
        while True:
            try:
                connection.send_request(message, fence=fence, streaming=streaming)
                return connection, await connection.read_head()
            except BaseException as error:
                pool.release(connection)
                if not (isinstance(error, BrokenConnectionError) and connection.is_stale and method == "GET"):
                    raise
            connection = await pool.acquire(fresh=True)

    async def _encode(
        self, method: str, path: str, *, data: bytes | None, headers: Mapping[str, str], params: Params | None
    ) -> bytes:
        target = quote(f"{self._url.path}{path}", safe=_UNQUOTED)
        if params:
            target += f"?{urlencode(params, quote_via=quote)}"
        own = (*self._headers, *headers.items(), *(await self._authorization()).items())
        return request_of(method, target, own, data)

    @contextmanager
    def _translate_errors(self, request: str, silence: str) -> Iterator[None]:
        """Translate failures of an HTTP connection to ``ConnectionFailedError``."""
        server = self.endpoint.server.rstrip("/")
        try:
            yield
        except TimeoutError as error:
            raise ConnectionFailedError(server, request, silence) from error
        except OversizedResponseError as error:
            raise AnswerTooLargeError(server, request, str(error)) from error
        except BrokenConnectionError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                self._contexts.invalidate()
            raise ConnectionFailedError(server, request, str(error)) from error

    def _open_pools(self) -> ConnectionPools:
        if self._pools is None:
            raise RuntimeError("the connection is not open: use it within `async with`")
        return self._pools

    async def _authorization(self) -> dict[str, str]:
        if not self._secure:
            return {}
        if self._plugin is None:
            token = self._tokens.current()
        else:
            token = await self._plugin.current()
            self._use_certificate(self._plugin.certificate)
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _renew(self) -> bool:
        """Look for a newer token or certificate after a 401; return whether there is one."""
        if self._plugin is not None:
            return await self._plugin.renew()
        has_token = self._tokens.renew()
        return self._open_pools().refresh() or has_token

    def _use_certificate(self, identity: ClientCertificate | None) -> None:
        """Use the certificate of a plugin on connections opened from now on."""
        if identity != self._identity:
            self._identity = identity
            self._open_pools().refresh()


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """Return the body of a refusal, or as much of it as a message needs."""
    found = b""
    async for chunk in chunks:
        found += chunk
        if len(found) > _MAX_REFUSAL_BYTES:
            break
    return found


def _raise_for_status(head: ResponseHead, body: bytes, request: str) -> None:
    """Raise ``ApiError`` unless the status is a success."""
    if not 200 <= head.status < 300:
        raise ApiError.from_response(head.status, body, retry_after=head.header("retry-after"), request=request)
