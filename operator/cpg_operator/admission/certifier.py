"""Keeps the webhook's certificate: in a Secret that its server reads, and its authorities where the API server looks.

First the API server learns whom to trust, and then the certificate is changed; so at every moment in between, and for
as long as a kubelet takes to bring the Secret to the server, what is served is trusted. What is served need not be what
the Secret says: somebody may just have emptied it. So an authority that is trusted stays so until it expires.
"""

import base64
import datetime as dt
from typing import Any, NoReturn

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.decoding import decode
from cpg_client.connection import JSON_PATCH, MERGE_PATCH, Connection
from cpg_client.errors import ClientError
from cpg_client.resources import Resource
from cpg_client.timing import Timing
from cpg_operator.admission.certificates import CertificateBundle, is_due, issue, together
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
LONGEST_REST = 60.0
"""Seconds between two looks: somebody may empty the Secret, or apply the configuration as it was at first."""


class Certifier:
    """Sees to it that there is a certificate, and that it is trusted."""

    def __init__(self, connection: Connection, webhook: Webhook, namespace: str, timing: Timing) -> None:
        """Look at nothing yet; the Secret is in this namespace."""
        self._connection = connection
        self._webhook = webhook
        self._timing = timing
        self._secret = SECRETS.path(namespace, webhook.secret)
        self._configuration = CONFIGURATIONS.path(None, webhook.configuration)
        self._validity = dt.timedelta(seconds=webhook.validity)
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def run(self) -> NoReturn:
        """Look now and again, for ever."""
        rest = min(LONGEST_REST, self._webhook.validity / 30)
        while True:
            try:
                await self.look()
            except (ClientError, msgspec.DecodeError) as error:
                self._log.warning("certificate not kept", error=str(error), retry_in=rest)
            await self._timing.sleep(rest)

    async def look(self) -> None:
        """Make a certificate if one is due, and have it trusted in any case."""
        secret = decode(await self._connection.get(self._secret))
        data = secret.get("data") or {}
        found = CertificateBundle(*(_plain(data.get(key, "")) for key in KEYS))
        now = dt.datetime.fromtimestamp(self._timing.wall(), dt.UTC)
        host = self._webhook.host
        if not is_due(found, host, now=now, validity=self._validity):
            await self._have_trusted(found.authorities, now)
            return
        made = issue(host, found.authorities, now=now, validity=self._validity)
        await self._have_trusted(made.authorities, now)
        parts = (made.authorities, made.certificate, made.key)
        body = {
            "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
            "data": {key: _encoded(part) for key, part in zip(KEYS, parts, strict=True)},
        }
        await self._connection.patch(self._secret, body, MERGE_PATCH)
        self._log.info("certificate made", host=host, days=self._validity.days)

    async def _have_trusted(self, authorities: bytes, now: dt.datetime) -> None:
        """Write down whom the API server has to trust, too, if that is not so."""
        configuration = decode(await self._connection.get(self._configuration))
        changes: list[dict[str, Any]] = []
        for number, webhook in enumerate(configuration.get("webhooks", ())):
            trusted = webhook["clientConfig"].get("caBundle", "")
            bundle = _encoded(together(authorities, _plain(trusted), now))
            if trusted != bundle:
                path = f"/webhooks/{number}"
                changes.append({"op": "test", "path": f"{path}/name", "value": webhook["name"]})
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
