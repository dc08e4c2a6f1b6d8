"""A client of pykube-ng for an API server: for work that is done once, one request after the other.

Where the server is and who we are to it is found out as everywhere else and handed over ready-made, so one kubeconfig
means the same to all of our commands, and what pykube-ng cannot do (the exec plugins of today, certificates of bare
Python 3.13 strictness) is done for it. Left to itself it would also write a private key where everybody can read it,
take proxies and passwords from the environment, and trust what the system trusts beside a cluster's own authority.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pykube  # type: ignore[import-untyped]  # it has no types

from cpg_client import tls
from cpg_client.endpoint import Endpoint

TIMEOUT = 60.0
CONNECTIONS = 8
"""How many requests are in flight at most."""


@contextmanager
def client_of(endpoint: Endpoint, token: str | None) -> Iterator[pykube.HTTPClient]:
    """Give a client that is to this server what our own connections are."""
    # Where the chart runs this, nothing can be written; the authority is a file there already.
    with tempfile.TemporaryDirectory() if isinstance(endpoint.ca, bytes) else nullcontext("") as folder:
        config = pykube.KubeConfig(_config(endpoint, token, Path(folder, "ca.crt")))
        client = pykube.HTTPClient(config, timeout=TIMEOUT, http_adapter=_adapter(endpoint, config))
        client.session.trust_env = False
        with client.session:
            yield client


def _config(endpoint: Endpoint, token: str | None, spare: Path) -> dict[str, Any]:
    """Return what pykube-ng wants to know, as a kubeconfig has it; a token goes over TLS only."""
    cluster: dict[str, Any] = {"server": endpoint.server.rstrip("/")}
    if not endpoint.verify:
        cluster["insecure-skip-tls-verify"] = True
    elif endpoint.ca is not None:
        cluster["certificate-authority"] = str(_as_file(endpoint.ca, spare))
    if endpoint.tls_server_name is not None:
        cluster["tls-server-name"] = endpoint.tls_server_name
    is_secure = endpoint.server.startswith("https://")
    user = {"token": token} if token and is_secure else {}
    return {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "we", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "it", "user": "we", "namespace": endpoint.namespace}},
        ],
        "current-context": "here",
    }


def _adapter(endpoint: Endpoint, config: pykube.KubeConfig) -> pykube.http.KubernetesHTTPAdapter:
    """Return what sends requests, by our own TLS context, which has the client certificate."""
    context = tls.build_context(endpoint) if endpoint.server.startswith("https://") else None

    class Adapter(pykube.http.KubernetesHTTPAdapter):  # type: ignore[misc]  # its base is of no known type
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options, ssl_context=context)

    return Adapter(config, pool_maxsize=CONNECTIONS)


def _as_file(material: Path | bytes, spare: Path) -> Path:
    if isinstance(material, bytes):
        spare.write_bytes(material)
        return spare
    return material
