"""Build the ``ssl.SSLContext`` of an endpoint, and a new one when certificates are rotated."""

import ssl
import tempfile
from dataclasses import replace
from pathlib import Path

from cpg_client.endpoint import ClientCertificate, Credentials, Endpoint
from cpg_client.errors import EndpointError


class TlsContexts:
    """The current context. It is rebuilt when one of its files or the plugin's certificate has changed.

    Callers get it for each new connection, which costs one ``stat`` per file: nothing beside a handshake.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        credentials = endpoint.credentials
        self._files = [one for one in (endpoint.ca, credentials.certificate, credentials.key) if isinstance(one, Path)]
        self._context: ssl.SSLContext | None = None
        self._identity: ClientCertificate | None = None
        self._stamps: list[object] | None = None

    def current(self, identity: ClientCertificate | None = None) -> ssl.SSLContext:
        """Return the context. A plugin's certificate is used unless the endpoint has its own.

        Unusable files, as in the middle of a rotation, leave the last good context in use.
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
        """Rebuild the context on the next call: a handshake has failed."""
        self._stamps = None


def reload_context(context: ssl.SSLContext, endpoint: Endpoint, identity: ClientCertificate | None = None) -> None:
    """Load the endpoint's present authority and client certificate into a context that is in use."""
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
    """Return a value that changes when the file is replaced."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def build_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Build the context for TLS connections to ``endpoint``; it verifies the server unless the endpoint disables that.

    Since Python 3.13 the default requires X.509 extensions that the authorities of many clusters lack and that no Go
    client requires. Only this strictness is switched off.
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
    """Load the client certificate. OpenSSL reads files only, so PEM text goes through a private temporary file."""
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
    """Refuse an encrypted key; by default OpenSSL would prompt on the terminal."""
    raise ValueError("the client key is encrypted")
