"""A client of pykube-ng, for a command that sends its requests once and ends.

It gets server, TLS context and token from ``cpg_client``, so one kubeconfig means the same to all of our commands, also
where pykube-ng lacks something (current exec plugins, the stricter certificates of Python 3.13). By itself pykube-ng
would also write private keys to readable files, take proxies and passwords from the environment, and trust the system's
authorities beside the cluster's own.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pykube  # type: ignore[import-untyped]  # it has no types

from cpg_client import tls
from cpg_client.endpoint import Endpoint

TIMEOUT_SECONDS = 60.0
MAX_REQUESTS_IN_FLIGHT = 8


@contextmanager
def open_client(endpoint: Endpoint, token: str | None) -> Iterator[pykube.HTTPClient]:
    """Open a client for this server."""
    # Where the chart runs this, no file can be written; the authority is a file there already.
    with tempfile.TemporaryDirectory() if isinstance(endpoint.ca, bytes) else nullcontext("") as folder:
        config = pykube.KubeConfig(_config(endpoint, token, Path(folder, "ca.crt")))
        client = pykube.HTTPClient(config, timeout=TIMEOUT_SECONDS, http_adapter=_adapter(endpoint, config))
        client.session.trust_env = False
        with client.session:
            yield client


def _config(endpoint: Endpoint, token: str | None, spare: Path) -> dict[str, Any]:
    """Return the kubeconfig for pykube-ng; a token is sent over TLS only."""
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
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [
            {"name": "context", "context": {"cluster": "cluster", "user": "user", "namespace": endpoint.namespace}},
        ],
        "current-context": "context",
    }


def _adapter(endpoint: Endpoint, config: pykube.KubeConfig) -> pykube.http.KubernetesHTTPAdapter:
    """Return an adapter with our own TLS context, which has the client certificate."""
    context = tls.build_context(endpoint) if endpoint.server.startswith("https://") else None

    class Adapter(pykube.http.KubernetesHTTPAdapter):  # type: ignore[misc]  # its base is of no known type
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options, ssl_context=context)

    return Adapter(config, pool_maxsize=MAX_REQUESTS_IN_FLIGHT)


def _as_file(material: Path | bytes, spare: Path) -> Path:
    if isinstance(material, bytes):
        spare.write_bytes(material)
        return spare
    return material
