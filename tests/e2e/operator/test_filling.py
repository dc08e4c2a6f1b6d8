"""Fields that groups take from templates and priority classes are filled in, in any order of creation."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import OperatorProcess, Testbed

pytestmark = pytest.mark.e2e

PG, CPG = "PodGroup", "CompositePodGroup"
REFERENCE = {"workloadRef": {"workloadName": "w", "templateName": "leaf"}}
POLICY = {"schedulingPolicy": {"gang": {"minCount": 1}}}
LEAF = {
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "disruptionMode": {"all": {}},
    "priorityClassName": "high",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
}
FILLED = {**LEAF, **REFERENCE, "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}


async def spec(testbed: "Testbed", name: str, kind: str = PG) -> dict[str, Any]:
    """Return the spec of a group."""
    found: dict[str, Any] = (await testbed.get(kind, name))["spec"]
    return found


async def workload(testbed: "Testbed", **changes: Any) -> None:
    """Create a Workload with one flat template."""
    await testbed.create("Workload", "w", {"podGroupTemplates": [{"name": "leaf", **LEAF, **changes}]})


async def reason(testbed: "Testbed", name: str = "g") -> object:
    """Return the condition of a group."""
    return (await testbed.scheduled(PG, name)).get("reason")


@pytest.mark.parametrize("first", ["group", "workload"])
async def test_a_priority_comes_from_the_template_in_either_order(testbed: "Testbed", first: str) -> None:
    """No default is filled in while the Workload is missing; pods of the class match in the end."""

    async def desired() -> object:
        return (await testbed.get(PG, "g")).get("status", {}).get("pods", {}).get("desired")

    if first == "workload":
        await workload(testbed)
    await testbed.create(PG, "g", {**REFERENCE, **POLICY})
    await testbed.pod("p", "g", priorityClassName="high")
    if first == "group":
        await testbed.until(1, desired)
        assert "priority" not in await spec(testbed, "g")
        await workload(testbed)

    async def filled() -> object:
        found = await spec(testbed, "g")
        return found.get("priority"), found.get("priorityClassName"), found["schedulingPolicy"]

    await testbed.until((1000, "high", POLICY["schedulingPolicy"]), filled)
    await testbed.until("Pending", lambda: reason(testbed))


async def test_a_group_may_consist_of_a_reference(testbed: "Testbed", operator: "OperatorProcess") -> None:
    """It reports that it waits, and gets all fields with the Workload; also if that is created during a restart."""
    await testbed.create(PG, "early", REFERENCE)

    async def waits() -> bool:
        message: str = (await testbed.condition(PG, "early", "Healthy")).get("message", "")
        return message.startswith(f"waiting for Workload {testbed.namespace}/w with a template leaf for a PodGroup")

    await testbed.until(True, waits)  # noqa: FBT003  # what is wanted
    assert await spec(testbed, "early") == REFERENCE
    await workload(testbed)
    await testbed.until(FILLED, lambda: spec(testbed, "early"))
    operator.kill()
    await testbed.create(PG, "late", REFERENCE)
    operator.start()
    await testbed.until(FILLED, lambda: spec(testbed, "late"))


async def test_fields_of_a_group_are_not_overwritten(testbed: "Testbed") -> None:
    """Neither its own fields nor those that were filled in follow a change of the template."""
    await workload(testbed)
    own: dict[str, Any] = {"disruptionMode": {"single": {}}, "schedulingConstraints": {}}
    await testbed.create(PG, "g", {**REFERENCE, **own})
    await testbed.until({**FILLED, **own}, lambda: spec(testbed, "g"))
    changed = {"podGroupTemplates": [{"name": "leaf", **LEAF, "schedulingPolicy": {"gang": {"minCount": 7}}}]}
    await testbed.patch("Workload", "w", {"spec": changed})
    await testbed.create(PG, "later", REFERENCE)
    await testbed.until({**FILLED, "schedulingPolicy": {"gang": {"minCount": 7}}}, lambda: spec(testbed, "later"))
    assert await spec(testbed, "g") == {**FILLED, **own}


async def test_a_composite_group_may_consist_of_a_reference(testbed: "Testbed") -> None:
    """With a tree of templates, group by group."""
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "disruptionMode": {"all": {}}}
    await testbed.create(CPG, "root", {"workloadRef": {"workloadName": "w", "templateName": "root"}})
    await testbed.create(PG, "leaf", {**REFERENCE, "parentCompositePodGroupName": "root"})
    await testbed.create("Workload", "w", {"compositePodGroupTemplates": [{**root, "podGroupTemplates": [leaf]}]})

    async def filled() -> object:
        return [
            (found.get("schedulingPolicy"), found.get("disruptionMode"))
            for found in (await spec(testbed, "root", CPG), await spec(testbed, "leaf"))
        ]

    wanted: object = [({"gang": {"minGroupCount": 1}}, {"all": {}}), ({"gang": {"minCount": 2}}, {"all": {}})]
    await testbed.until(wanted, filled)


async def test_a_wrong_template_fills_in_nothing(testbed: "Testbed") -> None:
    """A missing one, or one for the other kind, makes the group Invalid; a corrected Workload makes it valid."""
    root = {"name": "leaf", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [{"name": "x", **POLICY}]}
    await testbed.create("Workload", "w", {"compositePodGroupTemplates": [root]})
    await testbed.create(PG, "g", REFERENCE)
    await testbed.until("Invalid", lambda: reason(testbed))
    assert await spec(testbed, "g") == REFERENCE
    await testbed.delete("Workload", "w")
    await workload(testbed)
    await testbed.until(FILLED, lambda: spec(testbed, "g"))
    await testbed.until("Pending", lambda: reason(testbed))
