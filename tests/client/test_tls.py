"""TLS contexts."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization

from cpg_client import tls
from cpg_client.endpoint import ClientCertificate, Credentials, Endpoint
from cpg_client.errors import EndpointError

if TYPE_CHECKING:
    from tests.client.conftest import Pki

SOMEWHERE = Endpoint(server="https://api.test")


def test_servers_are_verified_by_default() -> None:
    """Certificate and host name, by the rules of Go clients."""
    context = tls.build_context(SOMEWHERE)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_verification_can_be_disabled() -> None:
    """As insecure-skip-tls-verify asks."""
    context = tls.build_context(replace(SOMEWHERE, verify=False))
    assert context.verify_mode == ssl.CERT_NONE
    assert not context.check_hostname


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_only_the_given_authority_is_trusted(pki: "Pki", tmp_path: Path, kind: str) -> None:
    """It replaces the system's, whether inlined or in a file."""
    file = tmp_path / "ca.crt"
    file.write_bytes(pki.ca)
    context = tls.build_context(replace(SOMEWHERE, ca=pki.ca if kind == "bytes" else file))
    (trusted,) = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "authority"),),)


@pytest.mark.parametrize("ca", [b"garbage", b"\xff", Path("/nowhere/ca.crt")])
def test_an_unusable_authority_is_an_error(ca: bytes | Path) -> None:
    """It names the server."""
    with pytest.raises(EndpointError, match=r"https://api\.test: certificates cannot be used"):
        tls.build_context(replace(SOMEWHERE, ca=ca))


def test_a_key_must_match_its_certificate(pki: "Pki") -> None:
    """A mismatch is found before anything is sent."""
    credentials = Credentials(certificate=pki.client.certificate, key=pki.server.key)
    with pytest.raises(EndpointError, match="certificates cannot be used"):
        tls.build_context(replace(SOMEWHERE, credentials=credentials))


def test_an_encrypted_key_is_an_error(pki: "Pki") -> None:
    """There is no prompt for a password."""
    key = serialization.load_pem_private_key(pki.client.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    credentials = Credentials(certificate=pki.client.certificate, key=key)
    with pytest.raises(EndpointError, match="the client key is encrypted"):
        tls.build_context(replace(SOMEWHERE, credentials=credentials))


# Rotation.


@pytest.fixture
def files(pki: "Pki", tmp_path: Path) -> Endpoint:
    """Return an endpoint with certificates in files."""
    made = {"ca": pki.ca, "certificate": pki.client.certificate, "key": pki.client.key}
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    credentials = Credentials(certificate=tmp_path / "certificate", key=tmp_path / "key")
    return replace(SOMEWHERE, ca=tmp_path / "ca", credentials=credentials)


def test_a_context_is_kept_until_a_file_changes(files: Endpoint, pki: "Pki", tmp_path: Path) -> None:
    """Or until it is invalidated."""
    contexts = tls.TlsContexts(files)
    first = contexts.current()
    assert contexts.current() is first
    (tmp_path / "ca").write_bytes(pki.ca + b"\n")
    second = contexts.current()
    assert second is not first
    contexts.invalidate()
    assert contexts.current() is not second


def test_a_rotation_under_way_keeps_the_last_good_context(files: Endpoint, pki: "Pki", tmp_path: Path) -> None:
    """A mismatched key or a missing file is read again the next time."""
    contexts = tls.TlsContexts(files)
    first = contexts.current()
    (tmp_path / "certificate").write_bytes(pki.server.certificate)
    assert contexts.current() is first
    (tmp_path / "key").unlink()
    assert contexts.current() is first
    (tmp_path / "key").write_bytes(pki.server.key)
    assert contexts.current() is not first
    with pytest.raises(EndpointError, match="certificates cannot be used"):
        tls.TlsContexts(replace(files, ca=tmp_path / "none")).current()


def test_a_certificate_of_a_plugin_makes_a_new_context(files: Endpoint, pki: "Pki") -> None:
    """An unusable one is an error. An endpoint with its own certificate keeps it."""
    contexts = tls.TlsContexts(replace(files, credentials=Credentials()))
    first, given = contexts.current(), ClientCertificate(pki.client.certificate, pki.client.key)
    second = contexts.current(given)
    assert second is not first
    assert contexts.current(ClientCertificate(given.certificate, given.key)) is second
    assert pki.client.key.decode() not in repr(given)
    with pytest.raises(EndpointError, match="certificates cannot be used"):
        contexts.current(ClientCertificate(pki.client.certificate, pki.server.key))
    tls.TlsContexts(files).current(ClientCertificate(b"unread", b"unread"))
