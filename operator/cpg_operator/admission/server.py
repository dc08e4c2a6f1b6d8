"""The webhook's server, by Kopf's protocol for ``settings.admission.server``.

We run our own HTTPS server, because Kopf's does not reload certificates. It runs as a task of Kopf, so only in the
leader. The webhook configuration is the chart's, and its CA bundle is kept by ``certifier``: hence no client
configuration is yielded, and ``settings.admission.managed`` stays unset.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import kopf
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.decoding import decode
from cpg_api.nesting import cut_nesting
from cpg_client.webhook_server import ServingCertificate, serve_webhook
from cpg_operator.metrics import OperatorMetrics

REFUSED = 422
"""The code of a refusal, as of an object that breaks the rules of its schema."""


class _Request(msgspec.Struct, frozen=True):
    uid: str


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    request: _Request


class WebhookServer:
    """Calls Kopf's handlers for each request of the API server."""

    def __init__(self, address: tuple[str, int], certificates: Path, metrics: OperatorMetrics) -> None:
        """Listen to nothing yet."""
        self._address = address
        self._certificates = certificates
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def __call__(self, call_handlers: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve until cancelled; yield nothing."""

        async def answer(body: bytes) -> bytes:
            return await self._answer(body, call_handlers)

        def log(state: str) -> None:
            self._log.info("webhook", state=state)

        async with serve_webhook(self._address, ServingCertificate(self._certificates), answer, log=log):
            await asyncio.Event().wait()
        yield {}

    async def _answer(self, body: bytes, call_handlers: kopf.WebhookFn) -> bytes:
        """Answer an ``AdmissionReview`` with one; raise ``ValueError`` where it is none."""
        shallow = cut_nesting(body)  # Kopf compares the two states of the object by recursion
        review = decode(shallow, _Review)
        try:
            found = await call_handlers(cast("Any", decode(shallow, dict)))
        except Exception:  # noqa: BLE001  # a defect must not block users
            self._metrics.count_mistake()
            self._log.exception("admission failed")
            response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
        else:
            response = dict(found["response"])
            if (status := response.get("status")) is not None and status.get("code") == REFUSED:
                response["status"] = {**status, "reason": "Invalid"}
        answer = {"apiVersion": review.api_version, "kind": "AdmissionReview", "response": response}
        return msgspec.json.encode(answer)
