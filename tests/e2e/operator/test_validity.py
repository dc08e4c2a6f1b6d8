"""Every kind of invalid tree, and its correction, on a real API server."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from cpg_client.errors import ApiError
from cpg_client.resources import EVENTS, PRIORITY_CLASSES

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Operator, Stage

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

    make: "Callable[[Stage], Awaitable[Any]]"
    words: str
    mend: "Callable[[Stage], Awaitable[Any]]"
    groups: tuple[tuple[str, str], ...]


async def cycle(stage: "Stage") -> None:
    """Create two groups that are each other's parent."""
    await stage.composite("root", parent="other")
    await stage.composite("other", parent="root")
    await stage.group("leaf", parent="root")


async def deep(stage: "Stage") -> None:
    """Create five levels."""
    await stage.composite("root")
    for level in range(1, 4):
        await stage.composite(f"mid-{level}", parent=f"mid-{level - 1}" if level > 1 else "root")
    await stage.group("leaf", parent="mid-3")


async def several_workloads(stage: "Stage") -> None:
    """Create a leaf from another Workload."""
    await stage.composite("root")
    await stage.group("leaf", parent="root", workload="v")


async def template_missing(stage: "Stage") -> None:
    """Create a leaf with a template that the Workload does not have."""
    await stage.create("Workload", "w", WORKLOAD)
    await stage.composite("root")
    await stage.group("leaf", parent="root", template="gone")


async def template_kind(stage: "Stage") -> None:
    """Create a PodGroup from a template for CompositePodGroups."""
    (root,) = WORKLOAD["compositePodGroupTemplates"]
    inner = [{**root, "name": "inner"}]
    templates = {**root, "podGroupTemplates": None, "compositePodGroupTemplates": inner}
    await stage.create("Workload", "w", {"compositePodGroupTemplates": [templates]})
    await stage.composite("root")
    await stage.group("leaf", parent="root", template="inner")


async def all_above_single(stage: "Stage") -> None:
    """Put disruption mode ``all`` above ``single``."""
    await stage.composite("root", disruptionMode={"all": {}})
    await stage.group("leaf", parent="root", disruptionMode={"single": {}})


async def priorities(stage: "Stage") -> None:
    """Name two classes in one tree."""
    await stage.composite("root", priorityClassName="high")
    await stage.group("leaf", parent="root", priorityClassName="low")


async def class_unknown(stage: "Stage") -> None:
    """Name a class that does not exist."""
    await stage.composite("root", priorityClassName="high")
    await stage.group("leaf", parent="root", priorityClassName="nowhere")


async def schedulers(stage: "Stage") -> None:
    """Create two pods for two schedulers."""
    await stage.composite("root")
    await stage.group("leaf", parent="root")
    await stage.pod("p1", "leaf", schedulerName="one")
    await stage.pod("p2", "leaf", schedulerName="two")


async def pod_priority(stage: "Stage") -> None:
    """Create a pod of another priority than its tree."""
    await stage.composite("root")
    await stage.group("leaf", parent="root")
    await stage.pod("p1", "leaf", priorityClassName="high")


async def pod_policy(stage: "Stage") -> None:
    """Create two pods of one priority, of which one may preempt and one may not."""
    for name, policy in (("bold", "PreemptLowerPriority"), ("timid", "Never")):
        body = {"metadata": {"name": name}, "value": 77, "preemptionPolicy": policy}
        await stage.connection.post(PRIORITY_CLASSES.path(), body)
    await stage.composite("root", priorityClassName="bold")
    await stage.group("leaf", parent="root", priorityClassName="bold")
    await stage.pod("p1", "leaf", priorityClassName="bold")
    await stage.pod("p2", "leaf", priorityClassName="timid")


def deleting(kind: str, name: str) -> "Callable[[Stage], Awaitable[Any]]":
    """Return a function that deletes an object."""

    async def delete(stage: "Stage") -> None:
        await stage.delete(kind, name)

    return delete


async def right_class(stage: "Stage") -> None:
    """Create the class that the leaf names."""
    await stage.connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": "nowhere"}, "value": 1000})


async def right_workload(stage: "Stage") -> None:
    """Create the Workload again, with the templates that the groups need."""
    await stage.delete("Workload", "w")
    (root,) = WORKLOAD["compositePodGroupTemplates"]
    leaves = [{**root["podGroupTemplates"][0], "name": name} for name in ("leaf", "gone", "inner")]
    await stage.create("Workload", "w", {"compositePodGroupTemplates": [{**root, "podGroupTemplates": leaves}]})


async def right_pod(stage: "Stage") -> None:
    """Create the second pod again, like the first."""
    first = (await stage.get("Pod", "p1"))["spec"]
    await stage.delete("Pod", "p2")
    spec = {"schedulerName": first["schedulerName"]}
    named = {"priorityClassName": first["priorityClassName"]} if "priorityClassName" in first else {}
    await stage.pod("p2", "leaf", **spec, **named)


async def right_leaf(stage: "Stage") -> None:
    """Create the leaf again, with all fields of its root."""
    above = (await stage.get(*ROOT))["spec"]
    fields = {key: above[key] for key in ("disruptionMode", "priorityClassName") if key in above}
    await stage.delete(*LEAF)
    await stage.group("leaf", parent="root", **fields)


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
    Case(class_unknown, "the PriorityClass nowhere, which does not exist", right_class, TREE),
    Case(schedulers, "all pods of a tree need one schedulerName", right_pod, TREE),
    Case(pod_priority, "give the pod the tree's priorityClassName", deleting("Pod", "p1"), TREE),
    Case(pod_policy, "all pods of a tree need one preemptionPolicy", right_pod, TREE),
]


@pytest.fixture(autouse=True)
async def classes(stage: "Stage") -> AsyncIterator[None]:
    """Delete the classes that a test has created."""
    yield
    for name in ("nowhere", "bold", "timid"):
        with contextlib.suppress(ApiError):
            await stage.connection.delete(PRIORITY_CLASSES.path(None, name))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.make.__name__}-{case.mend.__name__}")
async def test_every_group_of_an_invalid_tree_is_invalid_until_it_is_corrected(stage: "Stage", case: Case) -> None:
    """With the wrong edge in the message, and one event; after the correction it is Pending again."""
    await case.make(stage)
    groups = {ROOT, LEAF, *case.groups}

    async def all_say(reason: str) -> bool:
        return {(await stage.scheduled(*group))["reason"] for group in groups} == {reason}

    await stage.until(True, lambda: all_say("Invalid"))  # noqa: FBT003  # what is wanted
    for group in groups:
        found = await stage.scheduled(*group)
        assert found["status"] == "False"
        assert case.words in found["message"]
    everybody = sorted(name for _, name in groups)

    async def told() -> list[str]:
        return [name for name in await stage.events("Invalid") if name in everybody]

    await stage.until(everybody, told)

    await case.mend(stage)

    async def those_left() -> set[object]:
        return {await reason_of(stage, group) for group in case.groups}

    await stage.until({"Pending"}, those_left)


async def test_an_event_is_recorded_once_also_across_a_restart(stage: "Stage", operator: "Operator") -> None:
    """Neither again nor with a higher count: the condition shows that it was recorded."""
    await several_workloads(stage)
    await stage.until(["leaf", "root"], lambda: stage.events("Invalid"))
    before = await events_of(stage)
    operator.kill()
    operator.start()
    await stage.group("flat", workload="w", priorityClassName="nobody")
    await stage.until("Invalid", lambda: reason_of(stage, ("PodGroup", "flat")))
    await stage.until(["flat", "leaf", "root"], lambda: stage.events("Invalid"))
    after = await events_of(stage)
    assert {uid: after[uid] for uid in before} == before


async def events_of(stage: "Stage") -> dict[str, str]:
    """Return the versions of all events, by UID."""
    answer = await stage.connection.get(EVENTS.path(stage.namespace))
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in msgspec.json.decode(answer)["items"]}


async def reason_of(stage: "Stage", group: tuple[str, str]) -> object:
    """Return the reason of a group's first condition."""
    return (await stage.scheduled(*group)).get("reason")


async def test_a_placed_group_stays_placed(stage: "Stage") -> None:
    """True is final: where its tree becomes invalid later, only the other groups report that."""
    await stage.composite("root")
    await stage.until("Pending", lambda: reason_of(stage, ROOT))
    done = {"type": "CompositePodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    status = {"conditions": [{**done, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await stage.apply_status("CompositePodGroup", "root", status, "cpg-scheduler")
    await stage.group("leaf", parent="root", workload="v")
    await stage.until("Invalid", lambda: reason_of(stage, LEAF))
    assert (await stage.scheduled(*ROOT))["status"] == "True"


async def test_a_condition_of_the_scheduler_is_kept(stage: "Stage") -> None:
    """One about a valid tree stays, one about an invalid tree is corrected once."""
    await stage.composite("root")
    await stage.group("leaf", parent="root")
    word = {"status": "False", "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    said = [{"type": "CompositePodGroupInitiallyScheduled", "message": "no room", **word}]
    await stage.apply_status("CompositePodGroup", "root", {"conditions": said}, "cpg-scheduler")
    await stage.group("other", parent="root", workload="v")
    await stage.until("Invalid", lambda: reason_of(stage, ROOT))
    await stage.apply_status("CompositePodGroup", "root", {"conditions": said}, "cpg-scheduler")
    await stage.until("Invalid", lambda: reason_of(stage, ROOT))
    await stage.delete("PodGroup", "other")
    await stage.until("Pending", lambda: reason_of(stage, ROOT))
    await stage.apply_status("CompositePodGroup", "root", {"conditions": said}, "cpg-scheduler")
    version = (await stage.get(*ROOT))["metadata"]["resourceVersion"]
    await stage.pod("p", "leaf")
    await stage.until(1, lambda: desired(stage))
    found = await stage.scheduled(*ROOT)
    assert (found["reason"], found["message"]) == ("Unschedulable", "no room")
    assert version != (await stage.get(*ROOT))["metadata"]["resourceVersion"]


async def desired(stage: "Stage") -> object:
    """Return how many pods the root counts."""
    return (await stage.get(*ROOT))["status"].get("pods", {}).get("desired")
