"""The webhook's certificates as values, and how they are kept."""

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
from cpg_operator.admission.certificates import MOST_TRUSTED, CertificateBundle, is_due, issue, valid_ones
from cpg_operator.admission.certifier import KEYS, Certifier
from cpg_operator.settings import Webhook

HOST = "webhook.here.svc"
VALIDITY = dt.timedelta(days=90)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def due(found: CertificateBundle, days: float = 0.0, host: str = HOST) -> bool:
    """Tell whether a certificate is to be replaced after some days."""
    return is_due(found, host, now=NOW + dt.timedelta(days=days), validity=VALIDITY)


def test_a_certificate_is_good_for_two_thirds_of_its_time() -> None:
    """For its host and by its authority; then there is time enough to bring the next one in."""
    found = issue(HOST, b"", now=NOW, validity=VALIDITY)
    assert [due(found), due(found, 59.9), due(found, 60.1), due(found, host="another")] == [False, False, True, True]
    (authority,) = x509.load_pem_x509_certificates(found.authorities)
    x509.load_pem_x509_certificate(found.certificate).verify_directly_issued_by(authority)


def test_what_cannot_be_used_is_replaced() -> None:
    """Nothing, rubbish, halves that do not belong together."""
    found, other = (issue(HOST, b"", now=NOW, validity=VALIDITY) for _ in range(2))
    assert due(CertificateBundle(b"", b"", b""))
    assert due(CertificateBundle(b"rubbish", b"rubbish", b"rubbish"))
    assert due(CertificateBundle(other.authorities, found.certificate, found.key))
    assert due(CertificateBundle(found.authorities, found.certificate, other.key))


def test_earlier_authorities_are_trusted_until_they_expire() -> None:
    """The newest comes first; rubbish is nobody."""
    first = issue(HOST, b"", now=NOW, validity=VALIDITY)
    later = NOW + dt.timedelta(days=60)
    second = issue(HOST, first.authorities, now=later, validity=VALIDITY)
    assert second.authorities.endswith(first.authorities)
    assert not is_due(second, HOST, now=later, validity=VALIDITY)
    assert len(x509.load_pem_x509_certificates(valid_ones(second.authorities, NOW + dt.timedelta(days=91)))) == 1
    assert valid_ones(b"rubbish", NOW) == b""


class Server:
    """Holds a Secret and a configuration; a write may be refused."""

    def __init__(self) -> None:
        """Hold an empty Secret, and two webhooks that trust nobody."""
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
    """A keeper, and the time of day."""

    def __init__(self) -> None:
        """Begin now."""
        self.server, self.now, self.looks = Server(), NOW.timestamp(), 0
        webhook = Webhook(secret="s", configuration="c", host=HOST, validity=VALIDITY.total_seconds())  # noqa: S106
        timing = Timing(sleep=self._sleep, wall=lambda: self.now)
        self.keeper = Certifier(cast("Connection", self.server), webhook, "here", timing)

    async def _sleep(self, _: float) -> None:
        self.looks += 1
        if self.looks == 3:
            raise InterruptedError

    def kept(self) -> CertificateBundle:
        """Return what is in the Secret."""
        assert self.server.data is not None
        return CertificateBundle(*(base64.b64decode(self.server.data[key]) for key in KEYS))


async def test_a_certificate_is_made_trusted_and_renewed() -> None:
    """Trusted first; what is as it should be is not written again, and what somebody has taken away is."""
    rig = Rig()
    await rig.keeper.look()
    first = rig.kept()
    await rig.keeper.look()
    assert rig.server.writes == ["configuration", "secret"]
    rig.server.bundles[1] = None
    await rig.keeper.look()
    assert rig.server.bundles == [base64.b64encode(first.authorities).decode()] * 2
    rig.now += 61 * 24 * 3600
    await rig.keeper.look()
    assert rig.server.writes == ["configuration", "secret", "configuration", "configuration", "secret"]
    assert rig.kept().authorities.endswith(first.authorities)
    assert base64.b64decode(str(rig.server.bundles[0])) == rig.kept().authorities


@pytest.mark.parametrize(("extra", "kept"), [(b"[" * 5000 + b"]" * 5000, True), (b"not JSON", False)])
async def test_a_deep_secret_is_read_and_a_broken_one_is_read_again(extra: bytes, *, kept: bool) -> None:
    """Neither ends the task: what is nested by the thousand is cut, and an unreadable answer is logged."""
    rig = Rig()
    rig.server.extra = msgspec.Raw(extra)
    with pytest.raises(InterruptedError):
        await rig.keeper.run()
    assert (rig.server.data is not None) == kept


async def test_what_is_refused_is_tried_again() -> None:
    """With a word, and nothing else ends for it."""
    rig = Rig()
    rig.server.refused = "secret"
    with pytest.raises(InterruptedError):
        await rig.keeper.run()
    assert (rig.server.writes, rig.server.data) == (["configuration"] * 3, None)
    rig.server.data, rig.server.refused = {"tls.crt": "?"}, None
    await rig.keeper.look()
    assert not due(rig.kept())


def trusted(rig: Rig) -> list[bytes]:
    """Return whom both webhooks trust."""
    first, second = (base64.b64decode(str(bundle)) for bundle in rig.server.bundles)
    assert first == second
    return [one.public_bytes(serialization.Encoding.PEM) for one in x509.load_pem_x509_certificates(first)]


async def test_who_is_served_stays_trusted_when_the_secret_is_emptied() -> None:
    """A kubelet takes a while to bring the new one; so the earlier authority is trusted until it expires."""
    rig = Rig()
    await rig.keeper.look()
    first = rig.kept().authorities
    rig.server.data = None
    await rig.keeper.look()
    second = rig.kept().authorities
    assert trusted(rig) == [second, first]
    rig.server.writes.clear()
    await rig.keeper.look()
    assert rig.server.writes == []
    rig.now += VALIDITY.total_seconds()
    await rig.keeper.look()
    assert trusted(rig) == [rig.kept().authorities]


async def test_a_secret_that_is_emptied_for_ever_fills_no_configuration() -> None:
    """The newest are kept."""
    rig = Rig()
    for _ in range(MOST_TRUSTED + 3):
        rig.server.data = None
        await rig.keeper.look()
    assert len(trusted(rig)) == MOST_TRUSTED
    assert trusted(rig)[0] == rig.kept().authorities


async def test_rubbish_that_is_trusted_is_replaced() -> None:
    """Such as what a chart writes to begin with."""
    rig = Rig()
    rig.server.bundles = ["Cg==", "?"]
    await rig.keeper.look()
    assert trusted(rig) == [rig.kept().authorities]
