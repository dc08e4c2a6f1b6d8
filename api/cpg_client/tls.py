"""From an endpoint's certificates to an ``ssl.SSLContext``."""

import ssl
import tempfile
from pathlib import Path

from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import EndpointError


def context_for(endpoint: Endpoint) -> ssl.SSLContext:
    """Build the context of every TLS connection to ``endpoint``: verified unless it says otherwise.

    Python 3.13 began to insist on X.509 extensions that the certificate authorities of many clusters
    never wrote and that no Go client asks for; that strictness, and only that, is switched off.
    """
    try:
        context = _trusting(endpoint.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not endpoint.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _identify(context, endpoint.credentials)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise EndpointError(f"{endpoint.server}: certificates cannot be used: {error}") from error
    return context


def _trusting(ca: Path | bytes | None) -> ssl.SSLContext:
    if isinstance(ca, bytes):
        return ssl.create_default_context(cadata=ca.decode("ascii"))
    return ssl.create_default_context(cafile=ca)


def _identify(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load the client certificate; OpenSSL takes files only, so what is in memory visits a private one."""
    if credentials.certificate is None or credentials.key is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        certificate = _as_file(credentials.certificate, Path(folder, "certificate"))
        key = _as_file(credentials.key, Path(folder, "key"))
        context.load_cert_chain(certificate, key, password=_no_password)


def _as_file(material: Path | bytes, spare: Path) -> Path:
    if isinstance(material, Path):
        return material
    spare.write_bytes(material)
    return spare


def _no_password() -> str:
    """Refuse an encrypted key: without this, OpenSSL would stop and ask on the terminal."""
    raise ValueError("the client key is encrypted")
