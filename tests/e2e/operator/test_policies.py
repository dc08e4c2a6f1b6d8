"""A write that a policy of the cluster refuses delays no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import FINALIZER, INSTANTIATE
from cpg_client.connection import APPLY_YAML, MERGE_PATCH
from cpg_client.errors import ApiError
from cpg_client.resources import STATUS, Resource
from cpg_operator.writing.retries import FIRST_RETRY_SECONDS

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Testbed

pytestmark = pytest.mark.e2e

PG, CPG = "PodGroup", "CompositePodGroup"
ADMISSION = ("admissionregistration.k8s.io", "v1")
POLICIES = Resource(*ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
BINDINGS = Resource(
    *ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


@asynccontextmanager
async def policy(testbed: "Testbed", verb: str, rule: str, name: str, violation: dict[str, Any]) -> AsyncIterator[None]:
    """Add a rule for PodGroups of one namespace; it is in force once a group with this name and spec is refused."""
    resource, here = testbed.resource(PG), {"matchLabels": {"kubernetes.io/metadata.name": testbed.namespace}}
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": [verb], "resources": [resource.plural]}]
    validations = [{"expression": rule, "message": "not here"}]
    body = {"matchConstraints": {"resourceRules": rules, "namespaceSelector": here}, "validations": validations}
    about = {"metadata": {"name": testbed.namespace}}
    await testbed.connection.post(POLICIES.path(), {**about, "spec": body})
    bound = {"policyName": testbed.namespace, "validationActions": ["Deny"]}
    await testbed.connection.post(BINDINGS.path(), {**about, "spec": bound})

    async def is_in_force() -> bool:
        named = {"metadata": {"name": name}, "spec": violation}
        wrong = {"apiVersion": resource.api_version, "kind": PG, **named}
        dry = {"dryRun": "All", "fieldManager": "test", "force": "true"}
        try:
            await testbed.connection.patch(resource.path(testbed.namespace, name), wrong, APPLY_YAML, params=dry)
        except ApiError as error:
            return "not here" in error.message
        return False

    await testbed.until(True, is_in_force)  # noqa: FBT003  # what is wanted
    try:
        yield
    finally:
        await testbed.connection.delete(BINDINGS.path(name=testbed.namespace))
        await testbed.connection.delete(POLICIES.path(name=testbed.namespace))


async def test_a_refused_change_of_the_spec_delays_nothing_else(testbed: "Testbed") -> None:
    """The group gets its finalizer and health; its priority follows once the policy is deleted."""
    await testbed.group("probe", priority=7)
    async with policy(testbed, "UPDATE", "!has(object.spec.priority)", "probe", {"priority": 7}):
        await testbed.group("g", priorityClassName="high")
        await testbed.pod("p", "g", node="n1")
        await testbed.running("p")

        async def written() -> object:
            found = await testbed.get(PG, "g")
            counts = found.get("status", {}).get("pods")
            healthy = (await testbed.condition(PG, "g", "Healthy")).get("status")
            return found["metadata"].get("finalizers"), counts, healthy, "priority" in found["spec"]

        counts = {"desired": 1, "scheduled": 1, "running": 1}
        await testbed.until(([FINALIZER], counts, "True", False), written)
    await testbed.until(([FINALIZER], counts, "True", True), written)


async def test_a_refused_change_of_the_spec_does_not_keep_a_deleted_group(testbed: "Testbed") -> None:
    """Its finalizer is removed, although the policy refuses its priority for ever."""
    await testbed.group("probe", priority=7)
    async with policy(testbed, "UPDATE", "!has(object.spec.priority)", "probe", {"priority": 7}):
        await testbed.group("g", priorityClassName="high")
        await testbed.pod("p", "g", node="n1")

        async def finalizers() -> object:
            return (await testbed.get(PG, "g"))["metadata"].get("finalizers")

        await testbed.until([FINALIZER], finalizers)
        await testbed.connection.delete(testbed.resource(PG).path(testbed.namespace, "g"))
        await asyncio.sleep(2 * FIRST_RETRY_SECONDS)
        assert await finalizers() == [FINALIZER]
        await testbed.delete("Pod", "p")

        async def is_gone() -> bool:
            try:
                await testbed.get(PG, "g")
            except ApiError as error:
                return error.is_not_found
            return False

        await testbed.until(True, is_gone)  # noqa: FBT003  # what is wanted


async def test_of_refused_groups_one_is_named_in_one_event(testbed: "Testbed") -> None:
    """Always the same one, however often it is tried; the others are created, and all of them once it is allowed."""
    gang: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    leaves = [{"name": f"leaf-{number}", **gang} for number in range(6)]
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": leaves}
    rule = "object.metadata.name in ['w-root', 'w-leaf-0', 'w-leaf-4']"
    async with policy(testbed, "CREATE", rule, "w-leaf-3", gang):
        await testbed.create("Workload", "w", {"compositePodGroupTemplates": [root]}, annotations={INSTANTIATE: "true"})

        async def condition() -> object:
            found = await testbed.condition("Workload", "w", "Instantiated")
            return found.get("reason"), found.get("message", "").partition(" of 7")[0]

        await testbed.until(("Refused", "3"), condition)
        before = await testbed.get("Workload", "w")
        await asyncio.sleep(5 * FIRST_RETRY_SECONDS)
        after = await testbed.get("Workload", "w")
        assert '"w-leaf-1"' in after["status"]["conditions"][0]["message"]
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert await testbed.events("Refused") == ["w"]
    await testbed.until(("Instantiated", "all 7 groups are there"), condition)


async def test_a_quota_is_reported_once(testbed: "Testbed") -> None:
    """However often the groups beyond it are tried, the condition names one of them, with one event."""
    counted = f"count/{testbed.resource(PG).plural}.{testbed.resource(PG).group}"
    about = {"metadata": {"name": "few"}, "spec": {"hard": {counted: "3"}}}
    await testbed.connection.post(QUOTAS.path(testbed.namespace), about)
    status = {"status": {"hard": {counted: "3"}, "used": {counted: "0"}}}  # no controller does it here
    await testbed.connection.patch(QUOTAS.path(testbed.namespace, "few", STATUS), status, MERGE_PATCH)
    leaf = {"name": "leaf", "replicas": 12, "schedulingPolicy": {"gang": {"minCount": 1}}}
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": [leaf]}
    await testbed.create("Workload", "w", {"compositePodGroupTemplates": [root]}, annotations={INSTANTIATE: "true"})

    async def condition() -> object:
        found = await testbed.condition("Workload", "w", "Instantiated")
        return found.get("reason"), found.get("message", "").partition(" of 13")[0]

    await testbed.until(("Refused", "4"), condition)
    await asyncio.sleep(2 * FIRST_RETRY_SECONDS)
    before = await testbed.get("Workload", "w")
    assert "exceeded quota: few" in before["status"]["conditions"][0]["message"]
    await asyncio.sleep(5 * FIRST_RETRY_SECONDS)
    after = await testbed.get("Workload", "w")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert await testbed.events("Refused") == ["w"]
