"""The address of an API server, and the credentials for it.

A kubeconfig, the files of a pod's service account and tests produce an ``Endpoint``; only ``tls`` and ``connection``
read it. So finding a server is separate from talking to it.

Certificates and keys are ``Path | bytes``: a file, which is read again when it changes, or PEM text. Secrets are not in
``repr``, so an endpoint can be logged.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class ClientCertificate(NamedTuple):
    """A client certificate and its key, as PEM text."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Hide the key."""
        return "Identity(...)"


@dataclass(frozen=True, kw_only=True)
class ExecPlugin:
    """An exec credential plugin: a program that returns tokens or certificates, as clouds and OIDC use it.

    ``cluster_info`` says whether the program gets the address of the cluster.
    """

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The credentials of a user. Without any, requests are anonymous.

    If both a token and a token file are set, the last readable content of the file is used, as in kubectl. A plugin is
    used only without either.
    """

    certificate: Path | bytes | None = field(default=None, repr=False)
    key: Path | bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One API server, as one user reaches it.

    Without ``ca`` the system's trust store is used. ``tls_server_name`` is the name to verify where it differs from the
    host in ``server``. ``server`` may end in a path prefix.
    """

    server: str
    ca: Path | bytes | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str | None = None
    credentials: Credentials = Credentials()
    namespace: str = "default"
    context: str = ""
