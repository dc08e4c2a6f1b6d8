"""The webhook's certificates as values: made, judged, and put together. No I/O and no clock.

Each serving certificate has an authority of its own, whose key is forgotten once it has signed; so there is one secret
and not two. Trusted are all authorities that have not expired: who still serves an earlier certificate is trusted, too.
"""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

SLACK = dt.timedelta(minutes=5)
"""By which clocks may differ."""

MOST_TRUSTED = 10
"""Authorities: whoever empties the Secret again and again must not fill what the API server reads."""


class CertificateBundle(Struct, frozen=True):
    """What is kept in the Secret, as PEM; the newest of the authorities has signed the certificate."""

    authorities: bytes
    certificate: bytes
    key: bytes


def issue(host: str, earlier: bytes, *, now: dt.datetime, validity: dt.timedelta) -> CertificateBundle:
    """Make a certificate for a host by a new authority, which is trusted beside the earlier ones."""
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
    return CertificateBundle(_pem(authority) + valid_ones(earlier, now), _pem(certificate), written)


def is_due(found: CertificateBundle, host: str, *, now: dt.datetime, validity: dt.timedelta) -> bool:
    """Tell whether another certificate is to be made: there is none, not for this host, or in its last third."""
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority, *_ = x509.load_pem_x509_certificates(found.authorities)
        certificate.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(found.key, None).public_key()
    except Exception:  # noqa: BLE001  # whatever is wrong with it, it cannot be used
        return True
    if key != certificate.public_key() or host not in names.get_values_for_type(x509.DNSName):
        return True
    return now >= certificate.not_valid_after_utc - validity / 3


def together(authorities: bytes, trusted: bytes, now: dt.datetime) -> bytes:
    """Return those authorities that have not expired, and after them those who are trusted already, each once."""
    ordered = dict.fromkeys(_valid(authorities, now) + _valid(trusted, now))
    return b"".join([*ordered][:MOST_TRUSTED])


def valid_ones(authorities: bytes, now: dt.datetime) -> bytes:
    """Return those authorities that have not expired; none where they cannot be read."""
    return b"".join(_valid(authorities, now))


def _valid(authorities: bytes, now: dt.datetime) -> list[bytes]:
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
        .not_valid_before(now - SLACK)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
