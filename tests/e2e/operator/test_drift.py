"""Groups that differ from their templates, on a real API server."""

from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import INSTANTIATE
from cpg_client.connection import JSON_PATCH
from cpg_client.errors import ApiError
from cpg_client.resources import STATUS

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Testbed

pytestmark = pytest.mark.e2e

LEAF = ("PodGroup", "leaf")


def templates(minimum: int) -> dict[str, Any]:
    """Return a tree of templates with this minimum of the leaf."""
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": minimum}}}
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": [leaf]}
    return {"compositePodGroupTemplates": [root]}


async def drift(testbed: "Testbed", kind: str, name: str) -> object:
    """Return status, reason and message of the condition."""
    found = await testbed.condition(kind, name, "MatchesTemplate")
    return tuple(found[key] for key in ("status", "reason", "message")) if found else None


async def resize_template(testbed: "Testbed", minimum: int) -> None:
    """Change the minimum in the template of the leaf."""
    path = "/spec/compositePodGroupTemplates/0/podGroupTemplates/0/schedulingPolicy/gang/minCount"
    patch = [{"op": "replace", "path": path, "value": minimum}]
    await testbed.connection.patch(testbed.resource("Workload").path(testbed.namespace, "w"), patch, JSON_PATCH)


async def check(testbed: "Testbed") -> None:
    """Change a template under its group, and the group after it."""
    await testbed.create("Workload", "w", templates(1))
    await testbed.composite("root")
    await testbed.group("leaf", parent="root")
    await testbed.pod("p", "leaf", "n1")
    await testbed.running("p")

    async def health() -> object:
        return (await testbed.condition(*LEAF, "Healthy")).get("status")

    await testbed.until("True", health)
    assert await drift(testbed, *LEAF) is None
    await resize_template(testbed, 2)
    place = f"template leaf of Workload {testbed.namespace}/w"
    wanted = ("False", "Drifted", f"minCount is 1, {place} has 2")
    await testbed.until(wanted, lambda: drift(testbed, *LEAF))
    assert await health() == "True"
    assert (await testbed.scheduled(*LEAF)).get("reason") != "Invalid"
    await testbed.patch(*LEAF, {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await testbed.until(("True", "Matches", f"as {place} says"), lambda: drift(testbed, *LEAF))
    assert await drift(testbed, "CompositePodGroup", "root") is None
    await testbed.patch("Pod", "p", {"status": {"phase": "Succeeded"}}, STATUS)
    await testbed.pod("q", "leaf", schedulerName="other")
    await testbed.until(None, lambda: drift(testbed, *LEAF))


async def test_a_group_that_drifts_says_in_what(testbed: "Testbed") -> None:
    """It stays healthy and valid, and says when it matches again.

    A group that never differed says nothing, and one that another scheduler takes over says nothing any more.
    """
    await check(testbed)


async def test_a_native_group_that_drifts_says_in_what(native: "Testbed") -> None:
    """The built-in API takes the condition as well."""
    await check(native)


async def test_instantiated_groups_follow_their_template_without_a_condition(testbed: "Testbed") -> None:
    """The operator resets their minimums itself."""
    await testbed.create("Workload", "w", templates(1), annotations={INSTANTIATE: "true"})

    async def minimum() -> object:
        try:
            return (await testbed.get("PodGroup", "w-leaf"))["spec"]["schedulingPolicy"]["gang"]["minCount"]
        except ApiError:
            return None

    await testbed.until(1, minimum)
    await resize_template(testbed, 5)
    await testbed.until(5, minimum)
    await testbed.pod("p", "w-leaf")

    async def desired() -> object:
        return (await testbed.get("PodGroup", "w-leaf"))["status"].get("pods", {}).get("desired")

    await testbed.until(1, desired)
    assert await drift(testbed, "PodGroup", "w-leaf") is None
