"""Groups that are created from the templates of a Workload, on a real API server."""

from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import FINALIZER, INSTANTIATE, INSTANTIATED

if TYPE_CHECKING:
    from tests.e2e.operator.lifecycle.conftest import Api, OperatorProcess

CPG, PG = "CompositePodGroup", "PodGroup"
MARK = {INSTANTIATE: "true"}
PARENTS = {
    "w-root": None,
    "w-replica-0": "w-root",
    "w-replica-1": "w-root",
    "w-leaf-0": "w-replica-0",
    "w-leaf-1": "w-replica-1",
}
LEAF = {
    "name": "leaf",
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "disruptionMode": {"all": {}},
    "preemptionPolicy": "PreemptLowerPriority",
}

pytestmark = pytest.mark.e2e


def tree(replicas: int | None = 2, minimum: int = 2) -> dict[str, Any]:
    """Return the templates of a tree of three levels."""
    gang = {"gang": {"minGroupCount": 1}}
    leaf = LEAF | {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    several = {} if replicas is None else {"replicas": replicas}
    replica = {"name": "replica", "schedulingPolicy": gang, "podGroupTemplates": [leaf], **several}
    root = {"name": "root", "schedulingPolicy": gang, "compositePodGroupTemplates": [replica]}
    return {"compositePodGroupTemplates": [root]}


async def there(api: "Api", *names: str) -> bool:
    """Return whether exactly these groups exist, none of them being deleted."""
    groups = [one["metadata"] for kind in (CPG, PG) for one in await api.list(kind)]
    return {one["name"] for one in groups} == set(names) and not any("deletionTimestamp" in one for one in groups)


async def has_reason(api: "Api", reason: str) -> bool:
    """Return whether the Workload's condition has this reason."""
    workload = await api.get("Workload", "w")
    assert workload is not None
    conditions = workload.get("status", {}).get("conditions", [])
    return [one["reason"] for one in conditions] == ([reason] if reason else [])


async def spec(api: "Api", kind: str, name: str) -> dict[str, Any]:
    """Return the spec of a group."""
    found = await api.get(kind, name)
    assert found is not None
    wanted: dict[str, Any] = found["spec"]
    return wanted


async def test_a_workload_gets_all_of_its_groups(api: "Api", operator: "OperatorProcess") -> None:
    """Also where it was created while the operator was down, and a group was deleted while it was down again."""
    operator.kill()
    await api.create("Workload", "w", tree(), annotations=MARK)
    operator.ensure()
    await api.until("all groups are there", lambda: there(api, *PARENTS))
    groups = [one for kind in (CPG, PG) for one in await api.list(kind)]
    assert {one["metadata"]["name"]: one["spec"].get("parentCompositePodGroupName") for one in groups} == PARENTS
    assert all(one["metadata"]["finalizers"] == [FINALIZER] for one in groups)
    wanted = {key: value for key, value in LEAF.items() if key != "name"}
    place = {
        "parentCompositePodGroupName": "w-replica-1",
        "workloadRef": {"workloadName": "w", "templateName": "leaf"},
    }
    assert await spec(api, PG, "w-leaf-1") == wanted | place
    await api.until("it is reported", lambda: has_reason(api, "Instantiated"))
    operator.kill()
    await api.delete(CPG, "w-replica-0")
    await api.delete(PG, "w-leaf-0")
    operator.ensure()
    await api.until("they have been created again", lambda: there(api, *PARENTS))


async def test_changes_of_minimum_and_replicas_are_applied(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """Up and down; a surplus group is deleted after its pods, and created again if it is wanted again."""
    await api.create("Workload", "w", tree(), annotations=MARK)
    await api.until("all groups are there", lambda: there(api, *PARENTS))
    await api.pod("member", "w-leaf-1")
    await api.merge("Workload", "w", {"spec": tree(minimum=3)})

    async def followed() -> bool:
        found = [(await spec(api, PG, name))["schedulingPolicy"] for name in ("w-leaf-0", "w-leaf-1")]
        return found == [{"gang": {"minCount": 3}}] * 2

    await api.until("the minimum is the new one", followed)
    await api.merge("Workload", "w", {"spec": tree(replicas=1, minimum=3)})

    async def is_terminating() -> bool:
        groups = [one["metadata"] for kind in (CPG, PG) for one in await api.list(kind)]
        found = {one["name"] for one in groups if "deletionTimestamp" in one}
        return len(groups) == len(PARENTS) and found == {"w-replica-1", "w-leaf-1"}

    await api.until("the second replica waits for its pod", is_terminating)
    await api.merge("Workload", "w", {"spec": tree(replicas=2, minimum=3)})
    await api.until("its creation waits too", lambda: has_reason(api, "BeingDeleted"))
    await api.delete("Pod", "member")
    await api.until("it is back", lambda: there(api, *PARENTS))
    await api.until("that is reported", lambda: has_reason(api, "Instantiated"))


async def test_a_foreign_group_of_that_name_is_left_alone(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """All other groups are created; without the annotation the groups stay and the condition is removed."""
    await api.group(PG, "w-leaf-0")
    await api.create("Workload", "w", tree(), annotations=MARK)
    await api.until("the conflict is reported", lambda: has_reason(api, "Conflict"))
    await api.until("the others are there", lambda: there(api, *PARENTS))
    assert (await spec(api, PG, "w-leaf-0"))["schedulingPolicy"] == {"basic": {}}
    await api.merge("Workload", "w", {"metadata": {"annotations": None}})
    await api.until("the condition is removed", lambda: has_reason(api, ""))
    assert await there(api, *PARENTS)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_the_groups_of_a_deleted_workload_are_deleted(
    api: "Api",
    operator: "OperatorProcess",  # noqa: ARG001
    policy: str,
) -> None:
    """After their pods, and leaves first; then the same name can be used again at once."""
    await api.create("Workload", "w", tree(), annotations=MARK)
    await api.until("all groups are there", lambda: there(api, *PARENTS))
    await api.pod("member", "w-leaf-1")
    await api.delete("Workload", "w", policy=policy)

    async def waiting() -> bool:
        return await api.names(CPG, PG) == {"w-root", "w-replica-1", "w-leaf-1"}

    await api.until("the groups of the pod stay", waiting)
    assert (await api.get("Workload", "w") is not None) == (policy == "Foreground")
    if policy == "Background":
        await api.create("Workload", "w", tree(), annotations=MARK)
        await api.until("the old ones are waited for", lambda: has_reason(api, "BeingDeleted"))
        await api.delete("Pod", "member")
        await api.until("the new ones are there", lambda: there(api, *PARENTS))
        await api.delete("Workload", "w", policy=policy)
    else:
        await api.delete("Pod", "member")

    async def all_gone() -> bool:
        return not await api.names(CPG, PG, "Workload")

    await api.until("all groups are deleted", all_gone)


async def test_a_native_workload_is_instantiated_too(native: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """One group per template; it has no status, so an annotation has the report."""
    await native.create("Workload", "w", tree(replicas=None), annotations=MARK)
    await native.until("all groups are there", lambda: there(native, "w-root", "w-replica", "w-leaf"))

    async def has_annotation(words: str) -> bool:
        workload = await native.get("Workload", "w")
        assert workload is not None
        text: str = workload["metadata"]["annotations"].get(INSTANTIATED, "")
        return words in text

    await native.until("it is reported", lambda: has_annotation("True: Instantiated: all 3 groups are there"))
    assert (await spec(native, PG, "w-leaf"))["parentCompositePodGroupName"] == "w-replica"
    changed = tree(replicas=None, minimum=4)
    changed["compositePodGroupTemplates"][0]["schedulingPolicy"] = {"gang": {"minGroupCount": 2}}
    await native.merge("Workload", "w", {"spec": changed})
    await native.until("an immutable field is reported", lambda: has_annotation("False: Immutable: CompositePodGroup"))

    async def followed() -> bool:
        policy: dict[str, Any] = (await spec(native, PG, "w-leaf"))["schedulingPolicy"]
        return policy == {"gang": {"minCount": 4}}

    await native.until("the other fields have changed", followed)


async def test_a_group_made_by_hand_takes_the_priority_of_its_template(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """Where it has none; its own priority stays."""
    leaf = {"name": "leaf", "schedulingPolicy": {"basic": {}}, "priority": 7}
    await api.create("Workload", "w", {"podGroupTemplates": [leaf]})
    made = {"schedulingPolicy": {"basic": {}}, "workloadRef": {"workloadName": "w", "templateName": "leaf"}}
    await api.create(PG, "empty", made)
    await api.create(PG, "own", made | {"priority": 3})

    async def filled() -> bool:
        return [(await spec(api, PG, name)).get("priority") for name in ("empty", "own")] == [7, 3]

    await api.until("the priority is there", filled)
