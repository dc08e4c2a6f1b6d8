"""The certificates of a cluster."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from cpg_lab import certificates

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


@pytest.fixture
def files(tmp_path: Path) -> certificates.Certificates:
    """Certificates issued at noon."""
    return certificates.issue(tmp_path, now=NOW, service_ip="10.0.0.1")


def _verify(files: certificates.Certificates, name: x509.GeneralName, when: dt.datetime) -> None:
    assert isinstance(name, x509.DNSName | x509.IPAddress)
    store = Store([x509.load_pem_x509_certificate(files.ca.read_bytes())])
    server = x509.load_pem_x509_certificate(files.server.read_bytes())
    PolicyBuilder().store(store).time(when).build_server_verifier(name).verify(server, [])


@pytest.mark.parametrize("name", ["localhost", "kubernetes.default.svc"])
def test_the_server_is_verified_by_name(files: certificates.Certificates, name: str) -> None:
    """The server's certificate is valid for its names, for a year."""
    _verify(files, x509.DNSName(name), NOW)
    _verify(files, x509.DNSName(name), NOW + dt.timedelta(days=364))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1"])
def test_the_server_is_verified_by_address(files: certificates.Certificates, address: str) -> None:
    """It is valid for loopback, and for the address of the Service."""
    _verify(files, x509.IPAddress(ipaddress.ip_address(address)), NOW)


def test_other_names_and_times_are_rejected(files: certificates.Certificates) -> None:
    """Another name, or a time after its end."""
    with pytest.raises(VerificationError):
        _verify(files, x509.DNSName("example.org"), NOW)
    with pytest.raises(VerificationError):
        _verify(files, x509.DNSName("localhost"), NOW + dt.timedelta(days=366))


def test_each_cluster_has_its_own_authority(files: certificates.Certificates, tmp_path: Path) -> None:
    """The authority of one cluster does not verify the server of another."""
    (tmp_path / "other").mkdir()
    other = certificates.issue(tmp_path / "other", now=NOW, service_ip="10.0.0.1")
    mixed = certificates.Certificates(files.ca, other.server, other.server_key, other.service_accounts_key)
    with pytest.raises(VerificationError):
        _verify(mixed, x509.DNSName("localhost"), NOW)


def test_keys_are_private_and_match(files: certificates.Certificates) -> None:
    """Only this user can read the keys, and the server's matches its certificate."""
    for key in (files.server_key, files.service_accounts_key):
        assert key.stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.server, files.server_key)


def test_the_key_of_the_authority_is_not_kept(files: certificates.Certificates, tmp_path: Path) -> None:
    """So no client certificate can be signed."""
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ca.crt",
        "server.crt",
        "server.key",
        "service-accounts.key",
    ]
    server = x509.load_pem_x509_certificate(files.server.read_bytes())
    usages = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
