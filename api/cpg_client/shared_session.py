"""A session for Kopf and a token for pykube-ng, which talk to the API server by themselves.

They use the same certificates, tokens, rotation and exec plugins as our own connections. So one place knows how to
reach a cluster, and no second configuration expires after an hour. Kopf handles a 401 by logging in again, but not a
failed TLS handshake. So a rotated authority is loaded into the context of an open session. Both libraries decode
recursively, and an object that is nested by the thousand would end them. So responses are handed on with their nesting
cut. Kopf does not expect that the pages of a list expire, so that is reported as a broken connection.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from cpg_api.nesting import cut_items, cut_nesting
from cpg_client import tls
from cpg_client.endpoint import ClientCertificate, Endpoint
from cpg_client.errors import EndpointError
from cpg_client.exec_plugins import PluginCredentials
from cpg_client.http1 import MAX_LINE_BYTES
from cpg_client.session_health import SessionHealth
from cpg_client.slim_answers import slim_event, slim_page
from cpg_client.timing import REAL_TIME, Timing
from cpg_client.tokens import TokenSource


def open_shared_session(
    endpoint: Endpoint, timing: Timing = REAL_TIME, session_health: SessionHealth | None = None
) -> aiohttp.ClientSession:
    """Return a session with our credentials; the caller closes it.

    The outcome of its requests is recorded in ``session_health``.
    """
    secure = endpoint.server.startswith("https://")
    tokens, plugin = TokenSource(endpoint.credentials, timing.clock), PluginCredentials.of(endpoint, timing)

    context = tls.build_context(endpoint) if secure else None
    shown: ClientCertificate | None = None

    async def identify(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        nonlocal shown
        if context is None:
            return await send(request)
        token = await plugin.current() if plugin else tokens.current()
        if plugin and plugin.certificate != shown:
            shown = plugin.certificate
            tls.reload_context(context, endpoint, shown)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        request.server_hostname = endpoint.tls_server_name
        try:
            return await send(request)
        except aiohttp.ClientSSLError:
            tls.reload_context(context, endpoint, shown)
            raise

    heard = SessionHealth((), timing.clock) if session_health is None else session_health
    return aiohttp.ClientSession(
        # Each watch of Kopf holds a socket. With a limit, more watches than that would wait for each other for ever.
        connector=aiohttp.TCPConnector(ssl=context or True, limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(_observe_requests(heard, urlsplit(endpoint.server).path), identify),
    )


def _observe_requests(session_health: SessionHealth, root: str) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that records the outcome of each request; ``root`` is the path prefix of the server."""

    async def listen(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        path = "/" + request.url.path.removeprefix(root).lstrip("/")
        try:
            answer = await send(request)
        except (aiohttp.ClientError, OSError):
            session_health.record_failure(path)
            raise
        query = request.url.query
        if answer.status == HTTPStatus.GONE and "continue" in query:
            # Kopf lists again after this error, and ends after any other that is the server's.
            raise aiohttp.ClientPayloadError("the rest of a list has expired")
        watches = query.get("watch") == "true"
        if answer.ok:
            session_health.record_data(path, listed=not watches)
        else:
            session_health.record_failure(path, refused=answer.status == HTTPStatus.FORBIDDEN)
        on_chunk, is_slim = partial(session_health.record_data, path), path in session_health.collections()
        answer.content = _CutContent(answer.content, on_chunk, is_slim=is_slim)  # type: ignore[assignment]
        return answer

    return listen


class _CutContent:
    """The content of a response with its nesting cut. Each chunk of a stream is recorded before it is handed on.

    Lists and watches of the collections that a framework watches are slim, too.
    """

    def __init__(self, content: aiohttp.StreamReader, on_chunk: Callable[[], None], *, is_slim: bool) -> None:
        self._content = content
        self._on_chunk = on_chunk
        self._is_slim = is_slim

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever it has
        return getattr(self._content, name)

    async def read(self) -> bytes:
        """Return the whole content."""
        body = cut_items(await self._content.read())
        return slim_page(body) if self._is_slim else body

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines."""
        begun: list[bytes] = []
        length = 0
        async for piece in self._content.iter_chunked(size):
            self._on_chunk()
            lines, ended, rest = piece.rpartition(b"\n")
            if ended:
                whole = b"".join((*begun, lines, ended))
                yield b"\n".join(map(self._cut_line, whole.split(b"\n")))
                begun.clear()
                length = 0
            begun.append(rest)
            length += len(rest)
            if length > MAX_LINE_BYTES:
                raise aiohttp.ClientPayloadError(f"a line of a watch is longer than {MAX_LINE_BYTES} bytes")
        if left := b"".join(begun):
            yield self._cut_line(left)

    def _cut_line(self, line: bytes) -> bytes:
        line = cut_nesting(line)
        return slim_event(line) if self._is_slim and line else line


async def current_token(endpoint: Endpoint, timing: Timing = REAL_TIME) -> str | None:
    """Return the present token, for work that ends before it expires. A plugin must return one."""
    plugin = PluginCredentials.of(endpoint, timing)
    if plugin is None:
        return TokenSource(endpoint.credentials, timing.clock).current()
    token = await plugin.current()
    if not token:
        raise EndpointError("the credential plugin gave a certificate alone, which is of no use here")
    return token
