"""Where an API server is and who we are to it, whatever told us so.

A kubeconfig, the files of a pod's service account and a test all produce an ``Endpoint``; only
``tls`` and ``connection`` consume it. That keeps the ways of finding a server apart from the one way
of talking to it.

Certificates and keys are ``Path | bytes``: a file to read at connection time, again when it has changed, or PEM text
held in memory. Secrets stay out of ``repr`` so that an endpoint can be logged.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class ClientCertificate(NamedTuple):
    """A client certificate and its key, as PEM text."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Keep the key to ourselves."""
        return "Identity(...)"


@dataclass(frozen=True, kw_only=True)
class ExecPlugin:
    """A program that gives tokens or certificates (exec credential plugin): how the clouds and OIDC do it.

    ``cluster_info`` says whether the program wants to be told which cluster it is for.
    """

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """How we identify ourselves; any part may be absent, and all absent means anonymously.

    With both a token and a token file, the file's last readable content counts, as in kubectl; a plugin
    counts where there is neither.
    """

    certificate: Path | bytes | None = field(default=None, repr=False)
    key: Path | bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One API server as seen by one user.

    ``ca`` None means the system's trust store. ``tls_server_name`` is the name to ask for and to
    verify where it differs from the host in ``server``, which may end in a path prefix.
    """

    server: str
    ca: Path | bytes | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str | None = None
    credentials: Credentials = Credentials()
    namespace: str = "default"
    context: str = ""
