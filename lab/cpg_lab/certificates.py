"""A certificate authority per cluster, a server certificate, and a key that signs service account tokens.

Clients verify the server as they verify any other: the kubeconfig contains the authority, and nothing skips the check.
The keys are elliptic, because one is made in a millisecond.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cpg_lab.ports import LOOPBACK

_VALIDITY = dt.timedelta(days=365)
_BACKDATED = dt.timedelta(minutes=5)
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Certificates:
    """The files that `issue` wrote."""

    ca: Path
    server: Path
    server_key: Path
    service_accounts_key: Path

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return the paths in a folder."""
        return cls(folder / "ca.crt", folder / "server.crt", folder / "server.key", folder / "service-accounts.key")


def issue(folder: Path, *, now: dt.datetime, service_ip: str) -> Certificates:
    """Write a new authority, a server certificate and a key for tokens. The authority's own key is not kept."""
    files = Certificates.within(folder)
    authority_key, server_key = _new_key(), _new_key()
    authority = _authority(authority_key, now)
    server = _server(server_key.public_key(), authority, authority_key, now=now, service_ip=service_ip)
    files.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.server.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_key(files.server_key, server_key)
    _write_key(files.service_accounts_key, _new_key())
    return files


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _common_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _authority(key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.Certificate:
    name = _common_name("kube-cpg lab authority")
    return (
        _builder(name, key.public_key(), now)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    *,
    now: dt.datetime,
    service_ip: str,
) -> x509.Certificate:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in (LOOPBACK, service_ip)]
    names = [x509.DNSName(name) for name in _NAMES]
    return (
        _builder(_common_name("kube-cpg lab"), key, now)
        .issuer_name(authority.subject)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
