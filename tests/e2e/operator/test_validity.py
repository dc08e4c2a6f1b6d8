"""Every kind of invalid tree, and its correction, on a real API server."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from cpg_client.errors import ApiError
from cpg_client.resources import EVENTS, PRIORITY_CLASSES

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import OperatorProcess, Testbed

pytestmark = pytest.mark.e2e

WORKLOAD: dict[str, Any] = {
    "compositePodGroupTemplates": [
        {
            "name": "root",
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "podGroupTemplates": [{"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}],
        }
    ]
}


class Case(NamedTuple):
    """What is wrong, the message about it, how a user corrects it, and which groups are left then."""

    make: "Callable[[Testbed], Awaitable[Any]]"
    words: str
    mend: "Callable[[Testbed], Awaitable[Any]]"
    groups: tuple[tuple[str, str], ...]


async def cycle(testbed: "Testbed") -> None:
    """Create two groups that are each other's parent."""
    await testbed.composite("root", parent="other")
    await testbed.composite("other", parent="root")
    await testbed.group("leaf", parent="root")


async def deep(testbed: "Testbed") -> None:
    """Create five levels."""
    await testbed.composite("root")
    for level in range(1, 4):
        await testbed.composite(f"mid-{level}", parent=f"mid-{level - 1}" if level > 1 else "root")
    await testbed.group("leaf", parent="mid-3")


async def several_workloads(testbed: "Testbed") -> None:
    """Create a leaf from another Workload."""
    await testbed.composite("root")
    await testbed.group("leaf", parent="root", workload="v")


async def template_missing(testbed: "Testbed") -> None:
    """Create a leaf with a template that the Workload does not have."""
    await testbed.create("Workload", "w", WORKLOAD)
    await testbed.composite("root")
    await testbed.group("leaf", parent="root", template="gone")


async def template_kind(testbed: "Testbed") -> None:
    """Create a PodGroup from a template for CompositePodGroups."""
    (root,) = WORKLOAD["compositePodGroupTemplates"]
    inner = [{**root, "name": "inner"}]
    templates = {**root, "podGroupTemplates": None, "compositePodGroupTemplates": inner}
    await testbed.create("Workload", "w", {"compositePodGroupTemplates": [templates]})
    await testbed.composite("root")
    await testbed.group("leaf", parent="root", template="inner")


async def all_above_single(testbed: "Testbed") -> None:
    """Put disruption mode ``all`` above ``single``."""
    await testbed.composite("root", disruptionMode={"all": {}})
    await testbed.group("leaf", parent="root", disruptionMode={"single": {}})


async def priorities(testbed: "Testbed") -> None:
    """Name two classes in one tree."""
    await testbed.composite("root", priorityClassName="high")
    await testbed.group("leaf", parent="root", priorityClassName="low")


async def class_names(testbed: "Testbed") -> None:
    """Name two classes of one value in one tree."""
    await testbed.connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": "twin"}, "value": 1000})
    await testbed.composite("root", priorityClassName="high")
    await testbed.group("leaf", parent="root", priorityClassName="twin")


async def class_unknown(testbed: "Testbed") -> None:
    """Name a class that does not exist."""
    await testbed.composite("root", priorityClassName="nowhere")
    await testbed.group("leaf", parent="root", priorityClassName="nowhere")


def deleting(kind: str, name: str) -> "Callable[[Testbed], Awaitable[Any]]":
    """Return a function that deletes an object."""

    async def delete(testbed: "Testbed") -> None:
        await testbed.delete(kind, name)

    return delete


async def right_class(testbed: "Testbed") -> None:
    """Create the class that the leaf names."""
    await testbed.connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": "nowhere"}, "value": 1000})


async def right_workload(testbed: "Testbed") -> None:
    """Create the Workload again, with the templates that the groups need."""
    await testbed.delete("Workload", "w")
    (root,) = WORKLOAD["compositePodGroupTemplates"]
    leaves = [{**root["podGroupTemplates"][0], "name": name} for name in ("leaf", "gone", "inner")]
    await testbed.create("Workload", "w", {"compositePodGroupTemplates": [{**root, "podGroupTemplates": leaves}]})


async def right_leaf(testbed: "Testbed") -> None:
    """Create the leaf again, with all fields of its root."""
    above = (await testbed.get(*ROOT))["spec"]
    fields = {key: above[key] for key in ("disruptionMode", "priorityClassName") if key in above}
    await testbed.delete(*LEAF)
    await testbed.group("leaf", parent="root", **fields)


ROOT = ("CompositePodGroup", "root")
LEAF = ("PodGroup", "leaf")
TREE = (ROOT, LEAF)
CASES = [
    Case(cycle, "form a cycle: other -> root -> other", deleting("CompositePodGroup", "other"), TREE),
    Case(deep, "is on level 5 of its tree", deleting(*LEAF), (ROOT,)),
    Case(several_workloads, "all groups of a tree are made from one Workload", deleting(*LEAF), (ROOT,)),
    Case(several_workloads, "all groups of a tree are made from one Workload", right_leaf, TREE),
    Case(template_missing, "references template gone", deleting("Workload", "w"), TREE),
    Case(template_missing, "references template gone", right_workload, TREE),
    Case(template_kind, "which is for a CompositePodGroup", right_workload, TREE),
    Case(all_above_single, "what is disrupted as one", right_leaf, TREE),
    Case(priorities, "all groups of a tree have one priority", right_leaf, TREE),
    Case(class_names, "has priorityClassName twin, its parent CompositePodGroup", right_leaf, TREE),
    Case(class_unknown, "the PriorityClass nowhere, which does not exist", right_class, TREE),
]


@pytest.fixture(autouse=True)
async def classes(testbed: "Testbed") -> AsyncIterator[None]:
    """Delete the classes that a test has created."""
    yield
    for name in ("nowhere", "twin", "timid"):
        with contextlib.suppress(ApiError):
            await testbed.connection.delete(PRIORITY_CLASSES.path(None, name))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.make.__name__}-{case.mend.__name__}")
async def test_every_group_of_an_invalid_tree_is_invalid_until_it_is_corrected(testbed: "Testbed", case: Case) -> None:
    """With the wrong edge in the message, and one event; after the correction it is Pending again."""
    await case.make(testbed)
    groups = {ROOT, LEAF, *case.groups}

    async def all_say(reason: str) -> bool:
        return {(await testbed.scheduled(*group))["reason"] for group in groups} == {reason}

    await testbed.until(True, lambda: all_say("Invalid"))  # noqa: FBT003  # what is wanted
    for group in groups:
        found = await testbed.scheduled(*group)
        assert found["status"] == "False"
        assert case.words in found["message"]
    expected = sorted(name for _, name in groups)

    async def messages() -> list[str]:
        return [name for name in await testbed.events("Invalid") if name in expected]

    await testbed.until(expected, messages)

    await case.mend(testbed)

    async def those_left() -> set[object]:
        return {await reason_of(testbed, group) for group in case.groups}

    await testbed.until({"Pending"}, those_left)


async def test_what_is_wrong_with_pods_is_left_to_the_scheduler(testbed: "Testbed") -> None:
    """They may differ in schedulerName, priority and preemptionPolicy: the operator reports faults between groups."""
    timid = {"metadata": {"name": "timid"}, "value": 77, "preemptionPolicy": "Never"}
    await testbed.connection.post(PRIORITY_CLASSES.path(), timid)
    await testbed.composite("root")
    await testbed.group("leaf", parent="root")
    await testbed.pod("p1", "leaf", schedulerName="cpg-scheduler")
    await testbed.pod("p2", "leaf", schedulerName="other")
    await testbed.pod("p3", "leaf", schedulerName="cpg-scheduler", priorityClassName="timid")
    await testbed.until(3, lambda: desired(testbed))
    assert {await reason_of(testbed, group) for group in TREE} == {"Pending"}
    await testbed.group("other", parent="root", workload="v")
    await testbed.until("Invalid", lambda: reason_of(testbed, ROOT))
    await testbed.delete("PodGroup", "other")
    await testbed.until("Pending", lambda: reason_of(testbed, ROOT))


async def replace_pod(testbed: "Testbed", scheduler: str) -> None:
    """Delete the pod of the leaf, if there is one, and create it again for a scheduler."""
    await testbed.delete("Pod", "p1")
    await testbed.pod("p1", "leaf", schedulerName=scheduler)


async def test_a_tree_of_another_scheduler_is_not_judged(testbed: "Testbed") -> None:
    """What was said before its pods came is taken back once, without an event; it is ours again with a pod of ours."""
    await several_workloads(testbed)
    await testbed.until("Invalid", lambda: reason_of(testbed, LEAF))
    await testbed.until("Invalid", lambda: reason_of(testbed, ROOT))
    await replace_pod(testbed, "other")
    for group in TREE:
        await testbed.until("Pending", partial(reason_of, testbed, group))
    found = (await testbed.get(*ROOT))["status"]["conditions"]
    assert sorted(one["type"] for one in found) == ["CompositePodGroupInitiallyScheduled", "Healthy"]
    assert await testbed.events("Valid") == []
    await testbed.group("late", parent="root", workload="v")
    await testbed.until(2, lambda: groups_below(testbed))
    assert {await reason_of(testbed, group) for group in TREE} == {"Pending"}
    await replace_pod(testbed, "cpg-scheduler")
    for group in TREE:
        await testbed.until("Invalid", partial(reason_of, testbed, group))


async def test_a_native_tree_is_judged_once_a_pod_of_ours_is_in_it(native: "Testbed") -> None:
    """Until then, and after that pod is gone, it has no condition of ours but its health."""
    await several_workloads(native)
    await native.until("False", lambda: health_of(native))
    assert {await reason_of(native, group) for group in TREE} == {None}
    await native.pod("p1", "leaf", schedulerName="cpg-scheduler")
    for group in TREE:
        await native.until("Invalid", partial(reason_of, native, group))
    await replace_pod(native, "other")
    for group in TREE:
        await native.until(None, partial(reason_of, native, group))


async def health_of(testbed: "Testbed") -> object:
    """Return whether the root is healthy."""
    return (await testbed.condition(*ROOT, "Healthy")).get("status")


async def groups_below(testbed: "Testbed") -> object:
    """Return how many groups the root counts."""
    return (await testbed.get(*ROOT))["status"].get("groups", {}).get("desired")


async def test_an_event_is_recorded_once_also_across_a_restart(testbed: "Testbed", operator: "OperatorProcess") -> None:
    """Neither again nor with a higher count: the condition shows that it was recorded."""
    await several_workloads(testbed)
    await testbed.until(["leaf", "root"], lambda: testbed.events("Invalid"))
    before = await events_of(testbed)
    operator.kill()
    operator.start()
    await testbed.group("flat", workload="w", priorityClassName="missing")
    await testbed.until("Invalid", lambda: reason_of(testbed, ("PodGroup", "flat")))
    await testbed.until(["flat", "leaf", "root"], lambda: testbed.events("Invalid"))
    after = await events_of(testbed)
    assert {uid: after[uid] for uid in before} == before


async def events_of(testbed: "Testbed") -> dict[str, str]:
    """Return the versions of all events, by UID."""
    answer = await testbed.connection.get(EVENTS.path(testbed.namespace))
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in msgspec.json.decode(answer)["items"]}


async def reason_of(testbed: "Testbed", group: tuple[str, str]) -> object:
    """Return the reason of a group's first condition."""
    return (await testbed.scheduled(*group)).get("reason")


async def test_a_placed_group_stays_placed(testbed: "Testbed") -> None:
    """True is final: where its tree becomes invalid later, only the other groups report that."""
    await testbed.composite("root")
    await testbed.until("Pending", lambda: reason_of(testbed, ROOT))
    done = {"type": "CompositePodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    status = {"conditions": [{**done, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await testbed.apply_status("CompositePodGroup", "root", status, "cpg-scheduler")
    await testbed.group("leaf", parent="root", workload="v")
    await testbed.until("Invalid", lambda: reason_of(testbed, LEAF))
    assert (await testbed.scheduled(*ROOT))["status"] == "True"


async def test_a_condition_of_the_scheduler_is_kept(testbed: "Testbed") -> None:
    """One about a valid tree stays, one about an invalid tree is corrected once."""
    await testbed.composite("root")
    await testbed.group("leaf", parent="root")
    word = {"status": "False", "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "CompositePodGroupInitiallyScheduled", "message": "no room", **word}]
    await testbed.apply_status("CompositePodGroup", "root", {"conditions": conditions}, "cpg-scheduler")
    await testbed.group("other", parent="root", workload="v")
    await testbed.until("Invalid", lambda: reason_of(testbed, ROOT))
    await testbed.apply_status("CompositePodGroup", "root", {"conditions": conditions}, "cpg-scheduler")
    await testbed.until("Invalid", lambda: reason_of(testbed, ROOT))
    await testbed.delete("PodGroup", "other")
    await testbed.until("Pending", lambda: reason_of(testbed, ROOT))
    await testbed.apply_status("CompositePodGroup", "root", {"conditions": conditions}, "cpg-scheduler")
    version = (await testbed.get(*ROOT))["metadata"]["resourceVersion"]
    await testbed.pod("p", "leaf")
    await testbed.until(1, lambda: desired(testbed))
    found = await testbed.scheduled(*ROOT)
    assert (found["reason"], found["message"]) == ("Unschedulable", "no room")
    assert version != (await testbed.get(*ROOT))["metadata"]["resourceVersion"]


async def desired(testbed: "Testbed") -> object:
    """Return how many pods the root counts."""
    return (await testbed.get(*ROOT))["status"].get("pods", {}).get("desired")
