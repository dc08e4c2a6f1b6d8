"""What the operator's token can do to its webhook configuration, on real API servers."""

import asyncio
import base64
import dataclasses
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.connection import APPLY_YAML, JSON_PATCH, MERGE_PATCH, Connection
from cpg_client.endpoint import Credentials
from cpg_client.errors import ApiError
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
OURS = f"{CONFIGURATIONS}/kube-cpg-webhook.kube-cpg"
BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
MAX_SECONDS_TO_TAKE_EFFECT = 30.0
Plain = dict[str, Any]

REFUSED: dict[str, list[Plain]] = {
    "another service": [{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "evil"}],
    "another namespace": [{"op": "replace", "path": "/webhooks/0/clientConfig/service/namespace", "value": "evil"}],
    "another path": [{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "/evil"}],
    "a URL": [
        {"op": "remove", "path": "/webhooks/0/clientConfig/service"},
        {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": "https://evil.example/"},
    ],
    "failing closed": [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}],
    "other resources": [{"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["secrets"]}],
    "more rules": [
        {
            "op": "add",
            "path": "/webhooks/0/rules/-",
            "value": {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]},
        }
    ],
    "no conditions": [{"op": "remove", "path": "/webhooks/0/matchConditions"}],
    "a namespace selector": [
        {"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}
    ],
    "a longer timeout": [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}],
    "another name": [{"op": "replace", "path": "/webhooks/0/name", "value": "evil.example.com"}],
    "no webhook": [{"op": "remove", "path": "/webhooks/0"}],
    "a finalizer": [{"op": "add", "path": "/metadata/finalizers", "value": ["evil.example.com/stay"]}],
    "an owner": [
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone"}],
        }
    ],
    "an annotation": [
        {"op": "add", "path": "/metadata/annotations", "value": {"cert-manager.io/inject-ca-from": "evil/evil"}}
    ],
    "no labels": [{"op": "remove", "path": "/metadata/labels"}],
    "the bundle and more": [
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": BUNDLE},
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
    ],
}
"""Changes that would redirect, widen, block or remove the webhook, as JSON patches."""

REFUSALS = ("but caBundle", "cannot set an ownerRef")
"""Of the policy, and of an admission plugin of Kubernetes that comes before it."""


@pytest.fixture(scope="module", params=["1.37", "1.30"])
def cluster(request: pytest.FixtureRequest, install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with the chart and its webhook."""
    with Cluster(ClusterSpec(kubernetes=request.param)) as running:
        install(running, {"webhook": {"enabled": True}})
        yield running


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Connection]:
    """Return a connection of the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        yield connection


@pytest.fixture
async def operator(cluster: Cluster, admin: Connection) -> AsyncIterator[Connection]:
    """Return a connection with the operator's token, once the policy is in effect."""
    token = cluster.token_for("kube-cpg-operator", "kube-cpg")
    endpoint = dataclasses.replace(admin.endpoint, credentials=Credentials(token=token))
    restored = {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 2}
    async with Connection(endpoint) as connection:
        async with asyncio.timeout(MAX_SECONDS_TO_TAKE_EFFECT):
            # Each attempt changes something, because the policy allows a patch that changes nothing.
            for seconds in itertools.cycle((3, 4)):
                if await is_refused(connection, [{**restored, "value": seconds}]):
                    break
                await asyncio.sleep(0.2)
        await admin.patch(OURS, [restored], JSON_PATCH)
        yield connection


async def is_refused(connection: Connection, change: list[Plain]) -> bool:
    """Return whether the policy refuses a change; any other error fails the test."""
    try:
        await connection.patch(OURS, change, JSON_PATCH)
    except ApiError as error:
        if not any(text in str(error) for text in REFUSALS):
            raise
        return True
    return False


async def read(connection: Connection) -> Plain:
    """Return the configuration without what the API server keeps about it."""
    found: Plain = msgspec.json.decode(await connection.get(OURS))
    for key in ("managedFields", "resourceVersion", "generation"):
        found["metadata"].pop(key, None)
    return found


async def test_the_operator_can_change_the_bundle(operator: Connection) -> None:
    """As it does with each new authority; also if there was none."""
    for value in (BUNDLE, base64.b64encode(b"another").decode()):
        change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]
        await operator.patch(OURS, change, JSON_PATCH)
        (webhook,) = (await read(operator))["webhooks"]
        assert webhook["clientConfig"]["caBundle"] == value


@pytest.mark.parametrize("what", REFUSED)
async def test_the_operator_can_change_nothing_else(operator: Connection, what: str) -> None:
    """A stolen token cannot redirect, widen or block the webhook."""
    before = await read(operator)
    assert await is_refused(operator, REFUSED[what])
    assert await read(operator) == before


async def test_other_kinds_of_patches_are_refused_too(operator: Connection) -> None:
    """The policy sees the result, however it was sent."""
    before = await read(operator)
    merge: Plain = {"webhooks": []}
    apply: Plain = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "kube-cpg-webhook.kube-cpg", "annotations": {"a": "b"}},
    }
    for body, kind, params in (
        (merge, MERGE_PATCH, None),
        (apply, APPLY_YAML, {"fieldManager": "x", "force": "true"}),
    ):
        with pytest.raises(ApiError, match="but caBundle"):
            await operator.patch(OURS, body, kind, params=params)
    assert await read(operator) == before


async def test_an_administrator_can_change_everything(admin: Connection, operator: Connection) -> None:
    """The policy is about the operator alone, so upgrades of the chart work."""
    assert operator is not admin
    change = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 3}]
    await admin.patch(OURS, change, JSON_PATCH)
    assert (await read(admin))["webhooks"][0]["timeoutSeconds"] == 3
