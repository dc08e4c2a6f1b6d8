"""What a framework needs that speaks to the API server by itself: a session for Kopf, a token for pykube-ng.

It goes the way of our own connections: the same certificates, and the same tokens with their rotation and their exec
plugins. So there is one place that knows how to reach a cluster, and no second one to go stale after an hour. To be
refused is the borrower's to notice, who then borrows anew. Only where TLS fails he would not, so that a rotated
authority is trusted by the session that is lent already. And since a borrower decodes what he gets by recursion, one
object that is nested by the thousand would end all that he does: what is handed on has its nesting cut.
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
from cpg_client.session_health import SessionHealth
from cpg_client.timing import REAL_TIME, Timing
from cpg_client.tokens import TokenSource


def open_shared_session(
    endpoint: Endpoint, timing: Timing = REAL_TIME, session_health: SessionHealth | None = None
) -> aiohttp.ClientSession:
    """Return a session whose requests are ours as to who asks; the borrower closes it.

    What becomes of the requests is ``overheard``.
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
        connector=aiohttp.TCPConnector(ssl=context or True),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(_observe_requests(heard, urlsplit(endpoint.server).path), identify),
    )


def _observe_requests(session_health: SessionHealth, root: str) -> aiohttp.ClientMiddlewareType:
    """Return what notes of each request what becomes of it; ``root`` is where the server's own paths begin."""

    async def listen(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        path = "/" + request.url.path.removeprefix(root).lstrip("/")
        try:
            answer = await send(request)
        except (aiohttp.ClientError, OSError):
            session_health.failed(path)
            raise
        watches = request.url.query.get("watch") == "true"
        if answer.ok:
            session_health.heard(path, listed=not watches)
        else:
            session_health.failed(path, refused=answer.status == HTTPStatus.FORBIDDEN)
        answer.content = _CutContent(answer.content, partial(session_health.heard, path))  # type: ignore[assignment]
        return answer

    return listen


class _CutContent:
    """The content of an answer, with its nesting cut; each piece of a stream is told of before it is handed on."""

    def __init__(self, content: aiohttp.StreamReader, told: Callable[[], None]) -> None:
        self._content = content
        self._told = told

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever it has
        return getattr(self._content, name)

    async def read(self) -> bytes:
        """Return all of it."""
        return cut_items(await self._content.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, however they come."""
        begun: list[bytes] = []
        async for piece in self._content.iter_chunked(size):
            self._told()
            lines, ended, rest = piece.rpartition(b"\n")
            if ended:
                whole = b"".join((*begun, lines, ended))
                yield b"\n".join(map(cut_nesting, whole.split(b"\n")))
                begun.clear()
            begun.append(rest)
        if left := b"".join(begun):
            yield cut_nesting(left)


async def current_token(endpoint: Endpoint, timing: Timing = REAL_TIME) -> str | None:
    """Return the token of now, for something that is over before it expires; a plugin has to give one."""
    plugin = PluginCredentials.of(endpoint, timing)
    if plugin is None:
        return TokenSource(endpoint.credentials, timing.clock).current()
    token = await plugin.current()
    if not token:
        raise EndpointError("the credential plugin gave a certificate alone, which is of no use here")
    return token
