"""Requests to one API server: bytes out, bytes in, errors as values of ``errors``.

Answers stay bytes because the callers decode them straight into typed structs, and so that nothing is
parsed twice. HTTP/1.1 with keep-alive and many connections rather than HTTP/2: it is what aiohttp
speaks, and at our rates the server's side costs more than the sockets.

Deliberately absent: redirects (an API server sends none, and following one would hand our credentials
to another host) and proxies.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from os import PathLike
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from cpg_client import kubeconfig, tls
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.plugins import PluginTokens
from cpg_client.retrying import Retries
from cpg_client.sockets import probing_socket
from cpg_client.timing import REAL, Timing
from cpg_client.tokens import TokenSource

Params = Mapping[str, str | int]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_YAML = "application/apply-patch+yaml"


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """How hard we may push the server and how long we bear with it.

    ``limit`` is the number of sockets, hence of requests in flight; those above it wait their turn.
    ``total_timeout`` covers one attempt from that waiting to the last byte of the answer,
    ``connect_timeout`` the TCP connect. ``idle_timeout`` is below the 90 seconds after which a Go server
    closes an idle connection, so that the two sides do not race. The part of
    ``user_agent`` before the slash is the field manager the server assumes where a request names none.
    """

    limit: int = 512
    total_timeout: float = 60.0
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0
    retries: Retries = field(default_factory=Retries)
    user_agent: str = f"kube-cpg/{version('kube-cpg')}"


def _open() -> None:
    """Let every request through: what a connection without a fence does."""


class Connection:
    """An open line to one API server, used as ``async with Connection(endpoint) as connection``.

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
        timing: Timing = REAL,
        fence: Callable[[], None] = _open,
    ) -> None:
        self.endpoint = endpoint
        self.timing = timing
        self._fence = fence
        self._settings = settings
        self._tokens = TokenSource(endpoint.credentials, timing.clock)
        self._plugin = PluginTokens.of(endpoint, timing)
        self._base = endpoint.server.rstrip("/")
        self._secure = self._base.startswith("https://")
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(total=settings.total_timeout, sock_connect=settings.connect_timeout)

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
        settings = self._settings
        connector = aiohttp.TCPConnector(
            limit=settings.limit,
            keepalive_timeout=settings.idle_timeout,
            ssl=tls.context_for(self.endpoint) if self._secure else True,
            socket_factory=probing_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": settings.user_agent, "Accept": JSON},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

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
        settings = self._settings
        timeout = aiohttp.ClientTimeout(
            total=None, connect=settings.total_timeout, sock_connect=settings.connect_timeout, sock_read=silence
        )
        try:
            async with self._answer("GET", path, headers={}, params=params, timeout=timeout) as response:
                yield b""
                async for piece in response.content.iter_any():
                    yield piece
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                await self._renew_token()
            raise

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        params: Params | None = None,
    ) -> bytes:
        """Send, and send again as long as ``retrying`` allows; the body is encoded once."""
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        sent, waited = 0, 0.0
        while True:
            try:
                sent += 1
                return await self._send(method, path, data=data, headers=headers, params=params)
            except ApiError as error:
                if error.status == HTTPStatus.UNAUTHORIZED and await self._renew_token():
                    continue
                wait = self._settings.retries.wait_before_next(method, error, sent=sent, waited=waited)
                if wait is None:
                    raise
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
        if method != "GET":
            self._fence()
        async with self._answer(method, path, data=data, headers=headers, params=params) as response:
            return await response.read()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str],
        params: Params | None,
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109  # aiohttp's own
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give a successful answer whose body is still to be read; turn all else into our errors."""
        request = f"{method} {path}"
        try:
            async with self._open_session().request(
                method,
                self._base + path,
                params=params,
                data=data,
                headers={**headers, **await self._authorization()},
                allow_redirects=False,
                server_hostname=self.endpoint.tls_server_name,
                timeout=timeout or self._timeout,
            ) as response:
                if not 200 <= response.status < 300:
                    retry_after = response.headers.get("Retry-After")
                    body = await response.read()
                    raise ApiError.from_response(response.status, body, retry_after=retry_after, request=request)
                yield response
        except TimeoutError as error:
            why = str(error) or f"no complete answer within {self._settings.total_timeout:g} s"
            raise ConnectionFailedError(self._base, request, why) from error
        except aiohttp.ClientError as error:
            raise ConnectionFailedError(self._base, request, str(error) or type(error).__name__) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the connection is not open: use it within `async with`")
        return self._session

    async def _authorization(self) -> dict[str, str]:
        if not self._secure:
            return {}
        token = await self._plugin.current() if self._plugin else self._tokens.current()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _renew_token(self) -> bool:
        """Look for another token, because the one in use was refused; tell whether there is one."""
        return await self._plugin.renew() if self._plugin else self._tokens.renew()
