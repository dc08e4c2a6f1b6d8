"""What a framework needs that speaks to the API server by itself: a session for Kopf, a token for pykube-ng.

It goes the way of our own connections: the same certificates, and the same tokens with their rotation and their exec
plugins. So there is one place that knows how to reach a cluster, and no second one to go stale after an hour. To be
refused is the borrower's to notice, who then borrows anew. Only where TLS fails he would not, so that a rotated
authority is trusted by the session that is lent already.
"""

import aiohttp

from cpg_client import tls
from cpg_client.endpoint import Endpoint, Identity
from cpg_client.errors import EndpointError
from cpg_client.plugins import PluginTokens
from cpg_client.timing import REAL, Timing
from cpg_client.tokens import TokenSource


def lent_session(endpoint: Endpoint, timing: Timing = REAL) -> aiohttp.ClientSession:
    """Return a session whose requests are ours as to who asks; the borrower closes it."""
    secure = endpoint.server.startswith("https://")
    tokens, plugin = TokenSource(endpoint.credentials, timing.clock), PluginTokens.of(endpoint, timing)

    context = tls.context_for(endpoint) if secure else None
    shown: Identity | None = None

    async def identify(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        nonlocal shown
        if context is None:
            return await send(request)
        token = await plugin.current() if plugin else tokens.current()
        if plugin and plugin.certificate != shown:
            shown = plugin.certificate
            tls.take_up(context, endpoint, shown)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        request.server_hostname = endpoint.tls_server_name
        try:
            return await send(request)
        except aiohttp.ClientSSLError:
            tls.take_up(context, endpoint, shown)
            raise

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context or True),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(identify,),
    )


async def lent_token(endpoint: Endpoint, timing: Timing = REAL) -> str | None:
    """Return the token of now, for something that is over before it expires; a plugin has to give one."""
    plugin = PluginTokens.of(endpoint, timing)
    if plugin is None:
        return TokenSource(endpoint.credentials, timing.clock).current()
    token = await plugin.current()
    if not token:
        raise EndpointError("the credential plugin gave a certificate alone, which is of no use here")
    return token
