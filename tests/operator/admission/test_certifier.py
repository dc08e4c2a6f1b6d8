"""Keeping the webhook's certificate, with what a user or a proxy may have put in its places."""

import base64
from typing import cast

import msgspec
import pytest

from cpg_client.connection import Connection
from cpg_client.errors import UnreadableAnswerError
from cpg_client.timing import Timing
from cpg_operator.admission.certifier import Certifier
from cpg_operator.settings import Webhook

WEBHOOK = Webhook(secret="tls", configuration="cpg", host="cpg.ns.svc")  # noqa: S106  # a name
SECRET = b'{"metadata": {"resourceVersion": "7"}, "data": null}'
CONFIGURATION = b'{"webhooks": [{"name": "a.cpg.dev", "clientConfig": {}}]}'


class FakeConnection:
    """Gives one Secret and one configuration, and keeps patches."""

    def __init__(self, secret: bytes, configuration: bytes) -> None:
        self._secret, self._configuration = secret, configuration
        self.patches: list[tuple[str, object]] = []

    async def get(self, path: str) -> bytes:
        """Return an object."""
        return self._secret if "/secrets/" in path else self._configuration

    async def patch(self, path: str, body: object, _: str) -> bytes:
        """Keep a patch."""
        self.patches.append((path, body))
        return b"{}"


async def check(secret: bytes, configuration: bytes) -> list[tuple[str, object]]:
    """Check once; return the patches."""
    connection = FakeConnection(secret, configuration)
    await Certifier(cast("Connection", connection), WEBHOOK, "ns", Timing()).check()
    return connection.patches


async def test_a_certificate_is_issued_and_trusted() -> None:
    """The configuration trusts the authority before the Secret has the certificate."""
    (_, trusted), (_, stored) = await check(SECRET, CONFIGURATION)
    authority = msgspec.convert(trusted, list[dict[str, str]])[1]["value"]
    assert base64.b64decode(authority).startswith(b"-----BEGIN CERTIFICATE-----")
    data = msgspec.convert(stored, dict[str, dict[str, str]])
    assert data["metadata"] == {"resourceVersion": "7"}
    assert data["data"]["ca.crt"] == authority


@pytest.mark.parametrize(
    "answer", [b"<html>", b"null", b"[]", b'{"metadata": 1, "webhooks": 1}', b'{"webhooks": [{}], "data": 1}']
)
async def test_another_answer_is_an_error_of_the_client(answer: bytes) -> None:
    """The certifier logs it and tries again; anything else would end the operator."""
    with pytest.raises(UnreadableAnswerError, match="the answer is not a Secret"):
        await check(answer, CONFIGURATION)
    with pytest.raises(UnreadableAnswerError, match="the answer is not a webhook configuration"):
        await check(SECRET, answer)
