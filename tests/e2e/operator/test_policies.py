"""A write that a policy of the cluster refuses delays no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import FINALIZER, INSTANTIATE
from cpg_client.connection import APPLY_YAML
from cpg_client.errors import ApiError
from cpg_client.resources import Resource
from cpg_operator.writing.retries import FIRST_RETRY_SECONDS

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Stage

pytestmark = pytest.mark.e2e

PG, CPG = "PodGroup", "CompositePodGroup"
ADMISSION = ("admissionregistration.k8s.io", "v1")
POLICIES = Resource(*ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
BINDINGS = Resource(
    *ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)


@asynccontextmanager
async def policy(stage: "Stage", verb: str, rule: str, name: str, violation: dict[str, Any]) -> AsyncIterator[None]:
    """Add a rule for PodGroups of one namespace; it is in force once a group with this name and spec is refused."""
    resource, here = stage.resource(PG), {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": [verb], "resources": [resource.plural]}]
    validations = [{"expression": rule, "message": "not here"}]
    body = {"matchConstraints": {"resourceRules": rules, "namespaceSelector": here}, "validations": validations}
    about = {"metadata": {"name": stage.namespace}}
    await stage.connection.post(POLICIES.path(), {**about, "spec": body})
    bound = {"policyName": stage.namespace, "validationActions": ["Deny"]}
    await stage.connection.post(BINDINGS.path(), {**about, "spec": bound})

    async def is_in_force() -> bool:
        named = {"metadata": {"name": name}, "spec": violation}
        wrong = {"apiVersion": resource.api_version, "kind": PG, **named}
        dry = {"dryRun": "All", "fieldManager": "test", "force": "true"}
        try:
            await stage.connection.patch(resource.path(stage.namespace, name), wrong, APPLY_YAML, params=dry)
        except ApiError as error:
            return "not here" in error.message
        return False

    await stage.until(True, is_in_force)  # noqa: FBT003  # what is wanted
    try:
        yield
    finally:
        await stage.connection.delete(BINDINGS.path(name=stage.namespace))
        await stage.connection.delete(POLICIES.path(name=stage.namespace))


async def test_a_refused_change_of_the_spec_delays_nothing_else(stage: "Stage") -> None:
    """The group gets its finalizer and health; its priority follows once the policy is deleted."""
    await stage.group("probe", priority=7)
    async with policy(stage, "UPDATE", "!has(object.spec.priority)", "probe", {"priority": 7}):
        await stage.group("g", priorityClassName="high")
        await stage.pod("p", "g", node="n1")
        await stage.running("p")

        async def told() -> object:
            found = await stage.get(PG, "g")
            counts = found.get("status", {}).get("pods")
            healthy = (await stage.condition(PG, "g", "Healthy")).get("status")
            return found["metadata"].get("finalizers"), counts, healthy, "priority" in found["spec"]

        counts = {"desired": 1, "scheduled": 1, "running": 1}
        await stage.until(([FINALIZER], counts, "True", False), told)
    await stage.until(([FINALIZER], counts, "True", True), told)


async def test_of_refused_groups_one_is_named_in_one_event(stage: "Stage") -> None:
    """Always the same one, however often it is tried; the others are created, and all of them once it is allowed."""
    gang: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    leaves = [{"name": f"leaf-{number}", **gang} for number in range(6)]
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": leaves}
    rule = "object.metadata.name in ['w-root', 'w-leaf-0', 'w-leaf-4']"
    async with policy(stage, "CREATE", rule, "w-leaf-3", gang):
        await stage.create("Workload", "w", {"compositePodGroupTemplates": [root]}, annotations={INSTANTIATE: "true"})

        async def said() -> object:
            found = await stage.condition("Workload", "w", "Instantiated")
            return found.get("reason"), found.get("message", "").partition(" of 7")[0]

        await stage.until(("Refused", "3"), said)
        before = await stage.get("Workload", "w")
        await asyncio.sleep(5 * FIRST_RETRY_SECONDS)
        after = await stage.get("Workload", "w")
        assert '"w-leaf-1"' in after["status"]["conditions"][0]["message"]
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert await stage.events("Refused") == ["w"]
    await stage.until(("Instantiated", "all 7 groups are there"), said)
