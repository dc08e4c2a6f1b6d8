"""Keeps the webhook's certificate: in a Secret for the server, and its authorities in the webhook configuration.

The configuration gets the new authority before the Secret gets the new certificate. So the served certificate is
trusted at every moment, also while a kubelet updates the mounted Secret. The served certificate may be another than the
Secret's, because a user may have emptied the Secret: so a trusted authority stays trusted until it expires.
"""

import base64
import datetime as dt
from typing import Any, NoReturn

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_client.answers import read_answer
from cpg_client.connection import JSON_PATCH, MERGE_PATCH, Connection
from cpg_client.errors import ClientError
from cpg_client.resources import Resource
from cpg_client.timing import Timing
from cpg_operator.admission.certificates import CertificateBundle, issue, merge_authorities, needs_renewal
from cpg_operator.settings import Webhook

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
KEYS = ("ca.crt", "tls.crt", "tls.key")
MAX_SECONDS_BETWEEN_CHECKS = 60.0
"""A user may empty the Secret, or apply the first version of the configuration again."""


class _SecretMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Secret(Struct, frozen=True):
    metadata: _SecretMeta = _SecretMeta()
    data: dict[str, str] | None = None


class _ClientConfig(Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = None


class _ConfiguredWebhook(Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(Struct, frozen=True):
    webhooks: tuple[_ConfiguredWebhook, ...] | None = None


class Certifier:
    """Issues and renews the certificate, and has the API server trust it."""

    def __init__(self, connection: Connection, webhook: Webhook, namespace: str, timing: Timing) -> None:
        """Check nothing yet; the Secret is in this namespace."""
        self._connection = connection
        self._webhook = webhook
        self._timing = timing
        self._secret = SECRETS.path(namespace, webhook.secret)
        self._configuration = CONFIGURATIONS.path(None, webhook.configuration)
        self._validity = dt.timedelta(seconds=webhook.validity)
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def run(self) -> NoReturn:
        """Check regularly, until cancelled."""
        wait = min(MAX_SECONDS_BETWEEN_CHECKS, self._webhook.validity / 30)
        while True:
            try:
                await self.check()
            except ClientError as error:
                self._log.warning("certificate not kept", error=str(error), retry_in=wait)
            await self._timing.sleep(wait)

    async def check(self) -> None:
        """Issue a certificate if one is needed, and have its authority trusted in any case."""
        answer = await self._connection.get(self._secret)
        secret = read_answer(answer, _Secret, request=f"GET {self._secret}", expected="a Secret")
        data = secret.data or {}
        found = CertificateBundle(*(_plain(data.get(key, "")) for key in KEYS))
        now = dt.datetime.fromtimestamp(self._timing.wall(), dt.UTC)
        host = self._webhook.host
        if not needs_renewal(found, host, now=now, validity=self._validity):
            await self._trust(found.authorities, now)
            return
        issued = issue(host, found.authorities, now=now, validity=self._validity)
        await self._trust(issued.authorities, now)
        parts = (issued.authorities, issued.certificate, issued.key)
        body = {
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": {key: _encoded(part) for key, part in zip(KEYS, parts, strict=True)},
        }
        await self._connection.patch(self._secret, body, MERGE_PATCH)
        self._log.info("certificate made", host=host, days=self._validity.days)

    async def _trust(self, authorities: bytes, now: dt.datetime) -> None:
        """Add authorities to the webhook configuration, if it lacks them."""
        answer, request = await self._connection.get(self._configuration), f"GET {self._configuration}"
        configuration = read_answer(answer, _Configuration, request=request, expected="a webhook configuration")
        changes: list[dict[str, Any]] = []
        for number, webhook in enumerate(configuration.webhooks or ()):
            trusted = webhook.client_config.ca_bundle or ""
            bundle = _encoded(merge_authorities(authorities, _plain(trusted), now))
            if trusted != bundle:
                path = f"/webhooks/{number}"
                changes.append({"op": "test", "path": f"{path}/name", "value": webhook.name})
                changes.append({"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle})
        if changes:
            await self._connection.patch(self._configuration, changes, JSON_PATCH)


def _plain(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded)
    except ValueError:
        return b""


def _encoded(part: bytes) -> str:
    return base64.b64encode(part).decode()
