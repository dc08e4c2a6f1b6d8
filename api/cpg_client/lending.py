"""What a framework needs that speaks to the API server by itself: a session for Kopf, a token for pykube-ng.

It goes the way of our own connections: the same certificates, and the same tokens with their rotation and their exec
plugins. So there is one place that knows how to reach a cluster, and no second one to go stale after an hour. A refused
token is the borrower's to notice, who then borrows anew.
"""

import aiohttp

from cpg_client import tls
from cpg_client.endpoint import Endpoint
from cpg_client.plugins import PluginTokens
from cpg_client.timing import REAL, Timing
from cpg_client.tokens import TokenSource


def lent_session(endpoint: Endpoint, timing: Timing = REAL) -> aiohttp.ClientSession:
    """Return a session whose requests are ours as to who asks; the borrower closes it."""
    secure = endpoint.server.startswith("https://")
    tokens, plugin = TokenSource(endpoint.credentials, timing.clock), PluginTokens.of(endpoint, timing)

    async def identify(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if secure:
            token = await plugin.current() if plugin else tokens.current()
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            request.server_hostname = endpoint.tls_server_name
        return await send(request)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls.context_for(endpoint) if secure else True),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(identify,),
    )


async def lent_token(endpoint: Endpoint, timing: Timing = REAL) -> str | None:
    """Return the token of now, for something that is over before it expires."""
    plugin = PluginTokens.of(endpoint, timing)
    return await plugin.current() if plugin else TokenSource(endpoint.credentials, timing.clock).current()
