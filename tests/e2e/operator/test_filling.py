"""Fields that groups take from templates and priority classes are filled in, in any order of creation."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Operator, Stage

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


async def spec(stage: "Stage", name: str, kind: str = PG) -> dict[str, Any]:
    """Return the spec of a group."""
    found: dict[str, Any] = (await stage.get(kind, name))["spec"]
    return found


async def workload(stage: "Stage", **changes: Any) -> None:
    """Create a Workload with one flat template."""
    await stage.create("Workload", "w", {"podGroupTemplates": [{"name": "leaf", **LEAF, **changes}]})


async def reason(stage: "Stage", name: str = "g") -> object:
    """Return the condition of a group."""
    return (await stage.scheduled(PG, name)).get("reason")


@pytest.mark.parametrize("first", ["group", "workload"])
async def test_a_priority_comes_from_the_template_in_either_order(stage: "Stage", first: str) -> None:
    """No default is filled in while the Workload is missing; pods of the class match in the end."""
    if first == "workload":
        await workload(stage)
    await stage.create(PG, "g", {**REFERENCE, **POLICY})
    await stage.pod("p", "g", priorityClassName="high")
    if first == "group":
        await stage.until("Invalid", lambda: reason(stage))
        assert "priority" not in await spec(stage, "g")
        await workload(stage)

    async def filled() -> object:
        found = await spec(stage, "g")
        return found.get("priority"), found.get("priorityClassName"), found["schedulingPolicy"]

    await stage.until((1000, "high", POLICY["schedulingPolicy"]), filled)
    await stage.until("Pending", lambda: reason(stage))


async def test_a_group_may_consist_of_a_reference(stage: "Stage", operator: "Operator") -> None:
    """It reports that it waits, and gets all fields with the Workload; also if that is created during a restart."""
    await stage.create(PG, "early", REFERENCE)

    async def waits() -> bool:
        message: str = (await stage.condition(PG, "early", "Healthy")).get("message", "")
        return message.startswith(f"waiting for Workload {stage.namespace}/w with a template leaf for a PodGroup")

    await stage.until(True, waits)  # noqa: FBT003  # what is wanted
    assert await spec(stage, "early") == REFERENCE
    await workload(stage)
    await stage.until(FILLED, lambda: spec(stage, "early"))
    operator.kill()
    await stage.create(PG, "late", REFERENCE)
    operator.start()
    await stage.until(FILLED, lambda: spec(stage, "late"))


async def test_fields_of_a_group_are_not_overwritten(stage: "Stage") -> None:
    """Neither its own fields nor those that were filled in follow a change of the template."""
    await workload(stage)
    own: dict[str, Any] = {"disruptionMode": {"single": {}}, "schedulingConstraints": {}}
    await stage.create(PG, "g", {**REFERENCE, **own})
    await stage.until({**FILLED, **own}, lambda: spec(stage, "g"))
    changed = {"podGroupTemplates": [{"name": "leaf", **LEAF, "schedulingPolicy": {"gang": {"minCount": 7}}}]}
    await stage.patch("Workload", "w", {"spec": changed})
    await stage.create(PG, "later", REFERENCE)
    await stage.until({**FILLED, "schedulingPolicy": {"gang": {"minCount": 7}}}, lambda: spec(stage, "later"))
    assert await spec(stage, "g") == {**FILLED, **own}


async def test_a_composite_group_may_consist_of_a_reference(stage: "Stage") -> None:
    """With a tree of templates, group by group."""
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
    root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "disruptionMode": {"all": {}}}
    await stage.create(CPG, "root", {"workloadRef": {"workloadName": "w", "templateName": "root"}})
    await stage.create(PG, "leaf", {**REFERENCE, "parentCompositePodGroupName": "root"})
    await stage.create("Workload", "w", {"compositePodGroupTemplates": [{**root, "podGroupTemplates": [leaf]}]})

    async def filled() -> object:
        return [
            (found.get("schedulingPolicy"), found.get("disruptionMode"))
            for found in (await spec(stage, "root", CPG), await spec(stage, "leaf"))
        ]

    wanted: object = [({"gang": {"minGroupCount": 1}}, {"all": {}}), ({"gang": {"minCount": 2}}, {"all": {}})]
    await stage.until(wanted, filled)


async def test_a_wrong_template_fills_in_nothing(stage: "Stage") -> None:
    """A missing one, or one for the other kind, makes the group Invalid; a corrected Workload makes it valid."""
    root = {"name": "leaf", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [{"name": "x", **POLICY}]}
    await stage.create("Workload", "w", {"compositePodGroupTemplates": [root]})
    await stage.create(PG, "g", REFERENCE)
    await stage.until("Invalid", lambda: reason(stage))
    assert await spec(stage, "g") == REFERENCE
    await stage.delete("Workload", "w")
    await workload(stage)
    await stage.until(FILLED, lambda: spec(stage, "g"))
    await stage.until("Pending", lambda: reason(stage))
