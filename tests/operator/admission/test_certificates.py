"""The webhook's certificates, and the certifier that keeps them."""

import base64
import datetime as dt
from typing import Any, cast

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.timing import Timing
from cpg_operator.admission.certificates import MAX_AUTHORITIES, CertificateBundle, issue, needs_renewal, unexpired
from cpg_operator.admission.certifier import KEYS, Certifier
from cpg_operator.settings import Webhook

HOST = "webhook.here.svc"
VALIDITY = dt.timedelta(days=90)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def due(found: CertificateBundle, days: float = 0.0, host: str = HOST) -> bool:
    """Return whether a certificate needs renewal after some days."""
    return needs_renewal(found, host, now=NOW + dt.timedelta(days=days), validity=VALIDITY)


def test_a_certificate_is_renewed_after_two_thirds_of_its_time() -> None:
    """It is for its host and by its authority; the last third is enough to distribute the next one."""
    found = issue(HOST, b"", now=NOW, validity=VALIDITY)
    assert [due(found), due(found, 59.9), due(found, 60.1), due(found, host="another")] == [False, False, True, True]
    (authority,) = x509.load_pem_x509_certificates(found.authorities)
    x509.load_pem_x509_certificate(found.certificate).verify_directly_issued_by(authority)


def test_a_certificate_is_valid_at_once_where_the_clock_is_behind() -> None:
    """Our clock may have jumped ahead by hours; the API server judges by its own."""
    found = issue(HOST, b"", now=NOW, validity=VALIDITY)
    for data in (found.authorities, found.certificate):
        (certificate,) = x509.load_pem_x509_certificates(data)
        assert certificate.not_valid_before_utc <= NOW - dt.timedelta(hours=12)


def test_an_unusable_certificate_is_replaced() -> None:
    """A missing or malformed one, or one that does not match its key or authority."""
    found, other = (issue(HOST, b"", now=NOW, validity=VALIDITY) for _ in range(2))
    assert due(CertificateBundle(b"", b"", b""))
    assert due(CertificateBundle(b"malformed", b"malformed", b"malformed"))
    assert due(CertificateBundle(other.authorities, found.certificate, found.key))
    assert due(CertificateBundle(found.authorities, found.certificate, other.key))


def test_earlier_authorities_are_trusted_until_they_expire() -> None:
    """The newest comes first; malformed data has no authority."""
    first = issue(HOST, b"", now=NOW, validity=VALIDITY)
    later = NOW + dt.timedelta(days=60)
    second = issue(HOST, first.authorities, now=later, validity=VALIDITY)
    assert second.authorities.endswith(first.authorities)
    assert not needs_renewal(second, HOST, now=later, validity=VALIDITY)
    assert len(x509.load_pem_x509_certificates(unexpired(second.authorities, NOW + dt.timedelta(days=91)))) == 1
    assert unexpired(b"malformed", NOW) == b""


class Server:
    """Holds a Secret and a webhook configuration; a write may be refused."""

    def __init__(self) -> None:
        """Hold an empty Secret, and two webhooks without authorities."""
        self.data: dict[str, str] | None = None
        self.bundles: list[str | None] = [None, None]
        self.writes: list[str] = []
        self.refused: str | None = None
        self.extra: object = None

    async def get(self, path: str, _: object = None) -> bytes:
        """Return one of the two."""
        if "/secrets/" in path:
            return msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "data": self.data, "x": self.extra})
        configs = [{} if one is None else {"caBundle": one} for one in self.bundles]
        hooks = [{"name": str(number), "clientConfig": one} for number, one in enumerate(configs)]
        return msgspec.json.encode({"webhooks": hooks, "x": self.extra})

    async def patch(self, path: str, body: Any, _: str) -> bytes:  # noqa: ANN401  # as JSON is
        """Change one of the two."""
        kind = "secret" if "/secrets/" in path else "configuration"
        if kind == self.refused:
            raise ApiError(409, "Conflict", "changed", request="PATCH")
        self.writes.append(kind)
        if kind == "secret":
            assert body["metadata"]["resourceVersion"] == "7"
            self.data = body["data"]
        for change in body if kind == "configuration" else ():
            if change["op"] == "add":
                self.bundles[int(change["path"].split("/")[2])] = change["value"]
        return b"{}"


class Rig:
    """A certifier, and the time of day."""

    def __init__(self) -> None:
        """Start with an empty Secret."""
        self.server, self.now, self.checks = Server(), NOW.timestamp(), 0
        webhook = Webhook(secret="s", configuration="c", host=HOST, validity=VALIDITY.total_seconds())  # noqa: S106
        timing = Timing(sleep=self._sleep, wall=lambda: self.now)
        self.certifier = Certifier(cast("Connection", self.server), webhook, "here", timing)

    async def _sleep(self, _: float) -> None:
        self.checks += 1
        if self.checks == 3:
            raise InterruptedError

    def kept(self) -> CertificateBundle:
        """Return the content of the Secret."""
        assert self.server.data is not None
        return CertificateBundle(*(base64.b64decode(self.server.data[key]) for key in KEYS))


async def test_a_certificate_is_issued_trusted_and_renewed() -> None:
    """It is trusted first; nothing is written twice, and an authority that a user has removed is added again."""
    rig = Rig()
    await rig.certifier.check()
    first = rig.kept()
    await rig.certifier.check()
    assert rig.server.writes == ["configuration", "secret"]
    rig.server.bundles[1] = None
    await rig.certifier.check()
    assert rig.server.bundles == [base64.b64encode(first.authorities).decode()] * 2
    rig.now += 61 * 24 * 3600
    await rig.certifier.check()
    assert rig.server.writes == ["configuration", "secret", "configuration", "configuration", "secret"]
    assert rig.kept().authorities.endswith(first.authorities)
    assert base64.b64decode(str(rig.server.bundles[0])) == rig.kept().authorities


@pytest.mark.parametrize(("extra", "kept"), [(b"[" * 5000 + b"]" * 5000, True), (b"not JSON", False)])
async def test_a_deep_secret_is_read_and_a_broken_one_is_read_again(extra: bytes, *, kept: bool) -> None:
    """Neither ends the task: deep levels are cut, and an unreadable answer is logged."""
    rig = Rig()
    rig.server.extra = msgspec.Raw(extra)
    with pytest.raises(InterruptedError):
        await rig.certifier.run()
    assert (rig.server.data is not None) == kept


async def test_a_refused_write_is_retried() -> None:
    """It is logged, and ends nothing else."""
    rig = Rig()
    rig.server.refused = "secret"
    with pytest.raises(InterruptedError):
        await rig.certifier.run()
    assert (rig.server.writes, rig.server.data) == (["configuration"] * 3, None)
    rig.server.data, rig.server.refused = {"tls.crt": "?"}, None
    await rig.certifier.check()
    assert not due(rig.kept())


def trusted(rig: Rig) -> list[bytes]:
    """Return the authorities that both webhooks trust."""
    first, second = (base64.b64decode(str(bundle)) for bundle in rig.server.bundles)
    assert first == second
    return [one.public_bytes(serialization.Encoding.PEM) for one in x509.load_pem_x509_certificates(first)]


async def test_the_served_certificate_stays_trusted_when_the_secret_is_emptied() -> None:
    """A kubelet takes a while to mount the new one, so the earlier authority is trusted until it expires."""
    rig = Rig()
    await rig.certifier.check()
    first = rig.kept().authorities
    rig.server.data = None
    await rig.certifier.check()
    second = rig.kept().authorities
    assert trusted(rig) == [second, first]
    rig.server.writes.clear()
    await rig.certifier.check()
    assert rig.server.writes == []
    rig.now += VALIDITY.total_seconds()
    await rig.certifier.check()
    assert trusted(rig) == [rig.kept().authorities]


async def test_a_secret_that_is_emptied_again_and_again_does_not_fill_the_configuration() -> None:
    """The newest authorities are kept."""
    rig = Rig()
    for _ in range(MAX_AUTHORITIES + 3):
        rig.server.data = None
        await rig.certifier.check()
    assert len(trusted(rig)) == MAX_AUTHORITIES
    assert trusted(rig)[0] == rig.kept().authorities


async def test_malformed_authorities_are_replaced() -> None:
    """Such as the placeholder of a chart."""
    rig = Rig()
    rig.server.bundles = ["Cg==", "?"]
    await rig.certifier.check()
    assert trusted(rig) == [rig.kept().authorities]
