"""From an endpoint's certificates to an ``ssl.SSLContext``, and to another one when they are rotated."""

import ssl
import tempfile
from dataclasses import replace
from pathlib import Path

from cpg_client.endpoint import ClientCertificate, Credentials, Endpoint
from cpg_client.errors import EndpointError


class TlsContexts:
    """The context of now: made anew when a file that it is made of has changed, or a program gave another certificate.

    It is asked for when a connection is opened: that costs a look at each file, beside a handshake nothing.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        credentials = endpoint.credentials
        self._files = [one for one in (endpoint.ca, credentials.certificate, credentials.key) if isinstance(one, Path)]
        self._context: ssl.SSLContext | None = None
        self._identity: ClientCertificate | None = None
        self._stamps: list[object] | None = None

    def current(self, identity: ClientCertificate | None = None) -> ssl.SSLContext:
        """Return the context; what a program gave counts unless the endpoint itself has a certificate.

        Files that cannot be used, as in the middle of a rotation, leave the last good context in use.
        """
        stamps = [_file_state(file) for file in self._files]
        if self._context is not None and stamps == self._stamps and identity == self._identity:
            return self._context
        try:
            self._context = build_context(_with_certificate(self._endpoint, identity))
        except EndpointError:
            if self._context is None or identity != self._identity:
                raise
        else:
            self._stamps, self._identity = stamps, identity
        return self._context

    def invalidate(self) -> None:
        """Make the context anew when it is asked for next: the server and we did not trust each other."""
        self._stamps = None


def reload_context(context: ssl.SSLContext, endpoint: Endpoint, identity: ClientCertificate | None = None) -> None:
    """Have a context that others hold trust what is in the endpoint's files by now, too, and say who we are by now."""
    try:
        if isinstance(endpoint.ca, Path):
            context.load_verify_locations(cafile=endpoint.ca)
        _load_certificate(context, _with_certificate(endpoint, identity).credentials)
    except (OSError, ValueError) as error:
        raise _problem(endpoint, error) from error


def _with_certificate(endpoint: Endpoint, identity: ClientCertificate | None) -> Endpoint:
    credentials = endpoint.credentials
    if identity is None or credentials.certificate is not None:
        return endpoint
    return replace(endpoint, credentials=replace(credentials, certificate=identity.certificate, key=identity.key))


def _file_state(file: Path) -> object:
    """Return what tells a file from the one that replaces it."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def build_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Build the context of every TLS connection to ``endpoint``: verified unless it says otherwise.

    Python 3.13 began to insist on X.509 extensions that the certificate authorities of many clusters
    never wrote and that no Go client asks for; that strictness, and only that, is switched off.
    """
    try:
        context = _context_trusting(endpoint.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not endpoint.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _load_certificate(context, endpoint.credentials)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise _problem(endpoint, error) from error
    return context


def _problem(endpoint: Endpoint, error: Exception) -> EndpointError:
    return EndpointError(f"{endpoint.server}: certificates cannot be used: {error}")


def _context_trusting(ca: Path | bytes | None) -> ssl.SSLContext:
    if isinstance(ca, bytes):
        return ssl.create_default_context(cadata=ca.decode("ascii"))
    return ssl.create_default_context(cafile=ca)


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load the client certificate; OpenSSL takes files only, so what is in memory visits a private one."""
    if credentials.certificate is None or credentials.key is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        certificate = _as_file(credentials.certificate, Path(folder, "certificate"))
        key = _as_file(credentials.key, Path(folder, "key"))
        context.load_cert_chain(certificate, key, password=_refuse_password)


def _as_file(material: Path | bytes, spare: Path) -> Path:
    if isinstance(material, Path):
        return material
    spare.write_bytes(material)
    return spare


def _refuse_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would stop and ask on the terminal."""
    raise ValueError("the client key is encrypted")
