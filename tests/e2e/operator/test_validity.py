"""Every kind of invalid tree, and its repair, on a real API server."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Stage

pytestmark = pytest.mark.e2e

WORKLOAD = {
    "compositePodGroupTemplates": [
        {
            "name": "root",
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "podGroupTemplates": [{"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}],
        }
    ]
}


class Case(NamedTuple):
    """What is wrong, what is said of it, and how it is mended: by deleting this."""

    make: "Callable[[Stage], Awaitable[Any]]"
    words: str
    mend: tuple[str, str]
    groups: tuple[tuple[str, str], ...]


async def cycle(stage: "Stage") -> None:
    """Make two groups that are each other's parent."""
    await stage.composite("root", parent="other")
    await stage.composite("other", parent="root")
    await stage.group("leaf", parent="root")


async def deep(stage: "Stage") -> None:
    """Make five levels."""
    await stage.composite("root")
    for level in range(1, 4):
        await stage.composite(f"mid-{level}", parent=f"mid-{level - 1}" if level > 1 else "root")
    await stage.group("leaf", parent="mid-3")


async def several_workloads(stage: "Stage") -> None:
    """Make a leaf from another Workload."""
    await stage.composite("root")
    await stage.group("leaf", parent="root", workload="v")


async def template_missing(stage: "Stage") -> None:
    """Make a leaf whose template the Workload has not."""
    await stage.create("Workload", "w", WORKLOAD)
    await stage.composite("root")
    await stage.group("leaf", parent="root", template="gone")


async def template_kind(stage: "Stage") -> None:
    """Make a PodGroup from a template for CompositePodGroups."""
    await stage.create("Workload", "w", WORKLOAD)
    await stage.composite("root")
    await stage.group("leaf", parent="root", template="root")


async def all_above_single(stage: "Stage") -> None:
    """Put what is disrupted as one above what is disrupted in parts."""
    await stage.composite("root", disruptionMode={"all": {}})
    await stage.group("leaf", parent="root", disruptionMode={"single": {}})


async def priorities(stage: "Stage") -> None:
    """Name two classes in one tree."""
    await stage.composite("root", priorityClassName="high")
    await stage.group("leaf", parent="root", priorityClassName="low")


async def class_unknown(stage: "Stage") -> None:
    """Name a class that nobody has made."""
    await stage.composite("root", priorityClassName="high")
    await stage.group("leaf", parent="root", priorityClassName="nowhere")


async def schedulers(stage: "Stage") -> None:
    """Make two pods for two schedulers."""
    await stage.composite("root")
    await stage.group("leaf", parent="root")
    await stage.pod("p1", "leaf", schedulerName="one")
    await stage.pod("p2", "leaf", schedulerName="two")


async def pod_priority(stage: "Stage") -> None:
    """Make a pod of another priority than its tree."""
    await stage.composite("root")
    await stage.group("leaf", parent="root")
    await stage.pod("p1", "leaf", priorityClassName="high")


ROOT = ("CompositePodGroup", "root")
LEAF = ("PodGroup", "leaf")
CASES = [
    Case(cycle, "form a cycle: other -> root -> other", ("CompositePodGroup", "other"), (ROOT, LEAF)),
    Case(deep, "is on level 5 of its tree", LEAF, (ROOT,)),
    Case(several_workloads, "all groups of a tree are made from one Workload", LEAF, (ROOT,)),
    Case(template_missing, "made from template gone", ("Workload", "w"), (ROOT, LEAF)),
    Case(template_kind, "which is for a CompositePodGroup", LEAF, (ROOT,)),
    Case(all_above_single, "what is disrupted as one", LEAF, (ROOT,)),
    Case(priorities, "all groups of a tree have one priority", LEAF, (ROOT,)),
    Case(class_unknown, "the PriorityClass nowhere, which does not exist", LEAF, (ROOT,)),
    Case(schedulers, "all pods of a tree need one schedulerName", ("Pod", "p2"), (ROOT, LEAF)),
    Case(pod_priority, "give the pod the tree's priorityClassName", ("Pod", "p1"), (ROOT, LEAF)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
async def test_an_invalid_tree_says_so_everywhere_until_it_is_mended(stage: "Stage", case: Case) -> None:
    """Every group is Invalid with the edge that is wrong, told by one event; mended, it is Pending again."""
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

    await stage.delete(*case.mend)

    async def those_left() -> set[object]:
        return {await reason_of(stage, group) for group in case.groups}

    await stage.until({"Pending"}, those_left)


async def reason_of(stage: "Stage", group: tuple[str, str]) -> object:
    """Return the reason of a group's first condition."""
    return (await stage.scheduled(*group)).get("reason")


async def test_what_was_placed_stays_placed(stage: "Stage") -> None:
    """True is final: a tree that becomes invalid later says so in its other groups alone."""
    await stage.composite("root")
    await stage.until("Pending", lambda: reason_of(stage, ROOT))
    done = {"type": "CompositePodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    status = {"conditions": [{**done, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await stage.apply_status("CompositePodGroup", "root", status, "cpg-scheduler")
    await stage.group("leaf", parent="root", workload="v")
    await stage.until("Invalid", lambda: reason_of(stage, LEAF))
    assert (await stage.scheduled(*ROOT))["status"] == "True"


async def test_the_scheduler_may_have_the_last_word(stage: "Stage") -> None:
    """An answer of the scheduler about a valid tree is left alone, one about an invalid tree is corrected once."""
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
