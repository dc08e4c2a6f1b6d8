"""Priorities of groups: what the native API server does in admission, our operator does after it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.resources import PRIORITY_CLASSES

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Testbed

pytestmark = pytest.mark.e2e

PG, CPG = "PodGroup", "CompositePodGroup"
ALL = "PreemptLowerPriority"
NEVER = "never-preempts"


@pytest.fixture
async def classes(testbed: "Testbed") -> AsyncIterator["Testbed"]:
    """Add a class of pods that never preempt, for the time of the test."""
    await make(testbed, NEVER, 500, preemptionPolicy="Never")
    yield testbed
    await testbed.connection.delete(PRIORITY_CLASSES.path(None, NEVER))


async def make(testbed: "Testbed", name: str, value: int, **more: Any) -> None:
    """Create a priority class."""
    await testbed.connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": name}, "value": value, **more})


async def both(testbed: "Testbed", name: str, **spec: Any) -> None:
    """Create a root and a leaf below it with the same spec, and a Workload without priorities."""
    await testbed.create("Workload", name, {"compositePodGroupTemplates": [templates()]})
    await testbed.composite("root", workload=name, **spec)
    await testbed.group("leaf", workload=name, parent="root", **spec)


def templates() -> dict[str, Any]:
    """Return the templates of a root over a leaf."""
    basic: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    return {"name": "root", **basic, "podGroupTemplates": [{"name": "leaf", **basic}]}


async def resolved(testbed: "Testbed") -> object:
    """Return class, priority and preemption policy of both groups, once each."""
    specs = [(await testbed.get(kind, name))["spec"] for kind, name in ((CPG, "root"), (PG, "leaf"))]
    fields = ("priorityClassName", "priority", "preemptionPolicy")
    return {tuple(spec.get(field) for field in fields) for spec in specs}


async def messages(testbed: "Testbed") -> set[str]:
    """Return why both groups are invalid, or an empty string where they are valid."""
    found = [await testbed.scheduled(CPG, "root"), await testbed.scheduled(PG, "leaf")]
    return {one["message"] if one.get("reason") == "Invalid" else "" for one in found}


async def test_the_global_default_is_filled_in(testbed: "Testbed") -> None:
    """Its name, value and preemption policy, where a group names no class."""
    await make(testbed, "usual", 70, globalDefault=True, preemptionPolicy="Never")
    try:
        await both(testbed, "w")
        await testbed.until({("usual", 70, "Never")}, lambda: resolved(testbed))
    finally:
        await testbed.connection.delete(PRIORITY_CLASSES.path(None, "usual"))
    assert await messages(testbed) == {""}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"priorityClassName": "high"}, ("high", 1000, ALL)),
        ({}, (None, 0, ALL)),
        ({"priorityClassName": "high", "priority": 1000}, ("high", 1000, ALL)),
        ({"priorityClassName": NEVER}, (NEVER, 500, "Never")),
        ({"priorityClassName": NEVER, "preemptionPolicy": "Never"}, (NEVER, 500, "Never")),
    ],
    ids=[
        "class-value-is-filled-in",
        "priority-is-zero-without-a-class",
        "priority-may-equal-the-class",
        "preemption-policy-is-filled-in",
        "preemption-policy-may-equal-the-class",
    ],
)
async def test_class_priority_and_policy_are_filled_in(
    classes: "Testbed", spec: dict[str, Any], wanted: tuple[object, ...]
) -> None:
    """Those of the named class, or zero without one; a group may repeat the values of its class."""
    await both(classes, "w", **spec)
    await classes.until({wanted}, lambda: resolved(classes))
    assert await messages(classes) == {""}


async def test_an_unknown_class_is_reported_until_it_is_created(testbed: "Testbed") -> None:
    """Nothing is filled in before that; after it, the tree is valid."""
    await both(testbed, "w", priorityClassName="soon")
    named = f"CompositePodGroup {testbed.namespace}/root names the PriorityClass soon, which does not exist"
    await testbed.until({f"{named} (and 1 more problem)"}, lambda: messages(testbed))
    assert await resolved(testbed) == {("soon", None, None)}
    await make(testbed, "soon", 44)
    try:
        await testbed.until({("soon", 44, ALL)}, lambda: resolved(testbed))
        await testbed.until({""}, lambda: messages(testbed))
    finally:
        await testbed.connection.delete(PRIORITY_CLASSES.path(None, "soon"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"priorityClassName": "high", "priority": 5}, "has priority 5, its PriorityClass high has 1000"),
        (
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            f"has preemptionPolicy Never, its PriorityClass high has {ALL}",
        ),
        (
            {"priorityClassName": NEVER, "preemptionPolicy": ALL},
            f"has preemptionPolicy {ALL}, its PriorityClass never-preempts has Never",
        ),
    ],
    ids=["another-priority", "never-instead-of-the-class", "not-never-as-the-class"],
)
async def test_a_group_that_contradicts_its_class_is_invalid(
    classes: "Testbed", spec: dict[str, Any], words: str
) -> None:
    """So is every group of its tree, also without pods; creating the group again without the field corrects it."""
    await both(classes, "w")
    await classes.until({(None, 0, ALL)}, lambda: resolved(classes))
    await classes.delete(PG, "leaf")
    await classes.group("leaf", workload="w", parent="root", **spec)

    async def all_say() -> bool:
        return all(words in one for one in await messages(classes))

    await classes.until(True, all_say)  # noqa: FBT003  # what is wanted
    await classes.delete(PG, "leaf")
    await classes.group("leaf", workload="w", parent="root")
    await classes.until({""}, lambda: messages(classes))
