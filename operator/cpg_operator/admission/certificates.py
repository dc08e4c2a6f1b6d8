"""The webhook's certificates as values. No I/O and no clock.

Each serving certificate has its own authority, and the authority's key is dropped after it has signed: so there is one
secret and not two. All authorities that have not expired are trusted, because a server may still use an earlier
certificate.
"""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

MAX_CLOCK_DIFFERENCE = dt.timedelta(days=1)
"""By which our clock may be ahead of the API server's when a certificate is made, which must be valid there at once."""

MAX_AUTHORITIES = 10
"""A client that empties the Secret again and again must not fill the webhook configuration."""


class CertificateBundle(Struct, frozen=True):
    """The content of the Secret, as PEM; the newest of the authorities has signed the certificate."""

    authorities: bytes
    certificate: bytes
    key: bytes


def issue(host: str, earlier: bytes, *, now: dt.datetime, validity: dt.timedelta) -> CertificateBundle:
    """Issue a certificate for a host, signed by a new authority that is trusted beside the earlier ones."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-cpg webhook authority")])
    authority = (
        _builder(authority_key.public_key(), now, validity)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(key.public_key(), now, validity)
        .subject_name(x509.Name([]))
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateBundle(_pem(authority) + unexpired(earlier, now), _pem(certificate), written)


def needs_renewal(found: CertificateBundle, host: str, *, now: dt.datetime, validity: dt.timedelta) -> bool:
    """Return whether a new certificate is needed: it is missing, for another host, or in the last third of its time."""
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority, *_ = x509.load_pem_x509_certificates(found.authorities)
        certificate.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(found.key, None).public_key()
    except Exception:  # noqa: BLE001  # a certificate that cannot be read cannot be used
        return True
    if key != certificate.public_key() or host not in names.get_values_for_type(x509.DNSName):
        return True
    return now >= certificate.not_valid_after_utc - validity / 3


def merge_authorities(authorities: bytes, trusted: bytes, now: dt.datetime) -> bytes:
    """Return the unexpired authorities, and after them those that are trusted already, each once."""
    ordered = dict.fromkeys(_unexpired(authorities, now) + _unexpired(trusted, now))
    return b"".join([*ordered][:MAX_AUTHORITIES])


def unexpired(authorities: bytes, now: dt.datetime) -> bytes:
    """Return the unexpired authorities; none where they cannot be read."""
    return b"".join(_unexpired(authorities, now))


def _unexpired(authorities: bytes, now: dt.datetime) -> list[bytes]:
    try:
        found = x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return []
    return [_pem(one) for one in found if one.not_valid_after_utc > now]


def _builder(key: ec.EllipticCurvePublicKey, now: dt.datetime, validity: dt.timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MAX_CLOCK_DIFFERENCE)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
