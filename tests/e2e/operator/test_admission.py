"""The webhook on a real API server: it refuses and warns, and never blocks users without need."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cpg_client.errors import ApiError
from cpg_lab.charts import render

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import OperatorProcess, Testbed, Webhook

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
NAME = "asked-by-a-test"
PATIENCE = 20.0
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
WORKLOAD = {"podGroupTemplates": [{"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}]}


@pytest.fixture
async def asked(testbed: "Testbed", webhook: "Webhook") -> AsyncIterator["Testbed"]:
    """Return a namespace for which the API server calls the webhook."""
    await testbed.connection.post(CONFIGURATIONS, configuration(testbed, webhook))
    await testbed.until(True, lambda: is_asked(testbed))  # noqa: FBT003  # what is wanted
    yield testbed
    await testbed.connection.delete(f"{CONFIGURATIONS}/{NAME}")


def configuration(testbed: "Testbed", webhook: "Webhook") -> dict[str, Any]:
    """Return the chart's configuration with another address, for one namespace."""
    objects = render(CHART, {"webhook": {"enabled": True}}, namespace="kube-cpg")
    (found,) = (one for one in objects if one["kind"] == "ValidatingWebhookConfiguration")
    found["metadata"] = {"name": NAME}
    found["webhooks"][0] |= {
        "clientConfig": {
            "url": f"https://{webhook.address}/admit",
            "caBundle": base64.b64encode(webhook.authority).decode(),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": testbed.namespace}},
    }
    return found


async def is_asked(testbed: "Testbed") -> bool:
    """Return whether a group that is its own parent is refused by now."""
    return "form a cycle: probe -> probe" in await refusal(testbed, "CompositePodGroup", "probe", parent="probe")


async def refusal(testbed: "Testbed", kind: str, name: str, **spec: Any) -> str:
    """Return why a group is refused, or an empty string; a dry run creates nothing."""
    body = group(kind, name, **spec)
    try:
        await testbed.connection.post(testbed.resource(kind).path(testbed.namespace), body, {"dryRun": "All"})
    except ApiError as error:
        return error.message
    return ""


def group(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Return a group."""
    policy = {"minCount": 1} if kind == "PodGroup" else {"minGroupCount": 1}
    reference = {"workloadName": spec.pop("workload", "w"), "templateName": spec.pop("template", name)}
    parent = {"parentCompositePodGroupName": spec.pop("parent")} if "parent" in spec else {}
    return {
        "apiVersion": "scheduling.cpg.dev/v1alpha3",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": policy}, "workloadRef": reference, **parent, **spec},
    }


async def test_mistakes_are_refused_or_get_a_warning(asked: "Testbed", cluster: "Cluster") -> None:
    """With the message of the condition in kubectl; an object that may become valid is accepted with a warning."""
    await asked.composite("root")
    await asked.create("Workload", "w", WORKLOAD)
    # The operator answers by its view, which has both objects a moment later.
    message = ""
    async with asyncio.timeout(PATIENCE):
        while not message:
            message = await refusal(asked, "PodGroup", "other", parent="root", workload="v")
            await asyncio.sleep(0.05)
    assert message.startswith('admission webhook "groups.scheduling.cpg.dev" denied the request: PodGroup ')
    assert "all groups of a tree are made from one Workload" in message
    contradiction = {"workload": "x", "priorityClassName": "high", "priority": 5}
    assert "its PriorityClass high has 1000" in await refusal(asked, "PodGroup", "other", **contradiction)
    apply = ("apply", "--namespace", asked.namespace, "-f", "-")
    body, warning = yaml.safe_dump(group("PodGroup", "leaf", template="gone")), ""
    async with asyncio.timeout(PATIENCE):
        while not warning:
            tried = await asyncio.to_thread(cluster.kubectl, *apply, "--dry-run=server", input=body)
            warning = tried.stderr
    assert warning.startswith("Warning: PodGroup ")
    assert "references template gone" in warning
    assert "created" in (await asyncio.to_thread(cluster.kubectl, *apply, input=body)).stdout


async def test_the_certificate_may_change_and_the_operator_be_down(
    asked: "Testbed", operator: "OperatorProcess", webhook: "Webhook"
) -> None:
    """A new certificate is loaded without a restart; without an operator every object is accepted."""
    webhook.rotate()
    await asked.connection.patch(f"{CONFIGURATIONS}/{NAME}", patched(asked, webhook))
    await asked.until(True, lambda: is_asked(asked))  # noqa: FBT003  # what is wanted
    operator.kill()
    assert await refusal(asked, "CompositePodGroup", "probe", parent="probe") == ""
    operator.start()


def patched(testbed: "Testbed", webhook: "Webhook") -> dict[str, Any]:
    """Return the change of the configuration for a new certificate."""
    return {"webhooks": configuration(testbed, webhook)["webhooks"]}
