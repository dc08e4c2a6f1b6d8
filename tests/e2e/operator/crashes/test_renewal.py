"""The webhook's own certificate: it is issued and renewed, and every request meanwhile gets an answer."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_client.connection import JSON_PATCH
from cpg_client.errors import ApiError
from cpg_client.timing import cancel_and_wait
from cpg_lab.ports import free_port

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.operator.crashes.conftest import Operators

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e

VALIDITY = 27.0
"""Seconds: a certificate is renewed after 18 s, and the server checks for a new one every 5 s."""
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kube-cpg-webhook.kube-cpg"
SECRET = "/api/v1/namespaces/kube-cpg/secrets/kube-cpg-webhook-certificates"  # noqa: S105  # its path
VALUES = {"api": "crd", "scheduler": {"enabled": False}, "webhook": {"enabled": True}}


async def found(operators: "Operators", path: str) -> dict[str, Any]:
    """Return an object."""
    plain: dict[str, Any] = msgspec.json.decode(await operators.testbed.connection.get(path))
    return plain


@contextlib.asynccontextmanager
async def brought(operators: "Operators", folder: Path) -> AsyncIterator[None]:
    """Copy the Secret to a folder, as a kubelet does."""

    async def bring() -> None:
        while True:
            data = (await found(operators, SECRET)).get("data") or {}
            for name, content in data.items():
                plain = base64.b64decode(content)
                if not (folder / name).exists() or (folder / name).read_bytes() != plain:
                    (folder / name).write_bytes(plain)
            await asyncio.sleep(0.3)

    bringing = asyncio.create_task(bring())
    try:
        yield
    finally:
        await cancel_and_wait(bringing)


async def is_refused(operators: "Operators") -> bool:
    """Return whether a group that is its own parent is refused: otherwise the webhook has not answered."""
    spec = {
        "schedulingPolicy": {"gang": {"minGroupCount": 1}},
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "parentCompositePodGroupName": "probe",
    }
    kind = operators.testbed.resource("CompositePodGroup")
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "probe"}, "spec": spec}
    try:
        await operators.testbed.connection.post(kind.path(operators.testbed.namespace), body, {"dryRun": "All"})
    except ApiError as error:
        return "form a cycle" in error.message
    return False


async def test_the_certificate_is_renewed_while_the_webhook_answers(
    operators: "Operators", cluster: "Cluster", install: "Installer", tmp_path: Path
) -> None:
    """With the chart's rights: old and new authorities are trusted together, and no request is lost."""
    release = install(cluster, VALUES)
    (files,) = (one for one in release.of_kind("ConfigMap") if "settings.yaml" in one["data"])
    chosen = yaml.safe_load(files["data"]["settings.yaml"])["webhook"]
    port = free_port()
    here = [
        {"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": f"https://localhost:{port}/admit"}},
        {
            "op": "add",
            "path": "/webhooks/0/namespaceSelector",
            "value": {"matchLabels": {"kubernetes.io/metadata.name": operators.testbed.namespace}},
        },
    ]
    await operators.testbed.connection.patch(CONFIGURATION, here, JSON_PATCH)
    folder = tmp_path / "certificates"
    await asyncio.to_thread(folder.mkdir)
    webhook = {"listen": f"127.0.0.1:{port}", "certificates": str(folder), "host": "localhost", "validity": VALIDITY}
    try:
        async with brought(operators, folder):
            await operators.start(webhook={**chosen, **webhook})
            await operators.until("the webhook answers", lambda: is_refused(operators))
            authorities = {await trusted(operators)}
            while len(authorities) < 3:
                assert await is_refused(operators), "a request was not answered"
                authorities.add(await trusted(operators))
                await asyncio.sleep(0.1)
            assert any(bundle.count("BEGIN CERTIFICATE") == 2 for bundle in authorities), json.dumps([*authorities])
    finally:
        await operators.testbed.connection.delete(CONFIGURATION)


async def trusted(operators: "Operators") -> str:
    """Return the authorities that the API server trusts for the webhook."""
    (webhook,) = (await found(operators, CONFIGURATION))["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()
