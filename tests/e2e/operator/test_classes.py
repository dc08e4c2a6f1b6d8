"""L72 to L79 of spec-by-example: what the native API does about priority in admission, our operator does afterwards."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.resources import PRIORITY_CLASSES

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Stage

pytestmark = pytest.mark.e2e

PG, CPG = "PodGroup", "CompositePodGroup"
ALL = "PreemptLowerPriority"
MEEK = "meek"


@pytest.fixture
async def classes(stage: "Stage") -> AsyncIterator["Stage"]:
    """Add a class of pods that evict nobody, for as long as the test runs."""
    await make(stage, MEEK, 500, preemptionPolicy="Never")
    yield stage
    await stage.connection.delete(PRIORITY_CLASSES.path(None, MEEK))


async def make(stage: "Stage", name: str, value: int, **more: Any) -> None:
    """Create a priority class."""
    await stage.connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": name}, "value": value, **more})


async def both(stage: "Stage", name: str, **spec: Any) -> None:
    """Create a root, and a leaf below it, of the same spec; no Workload could have another word."""
    await stage.create("Workload", name, {"compositePodGroupTemplates": [templates()]})
    await stage.composite("root", workload=name, **spec)
    await stage.group("leaf", workload=name, parent="root", **spec)


def templates() -> dict[str, Any]:
    """Return the templates of a root over a leaf."""
    basic: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    return {"name": "root", **basic, "podGroupTemplates": [{"name": "leaf", **basic}]}


async def resolved(stage: "Stage") -> object:
    """Return class, number and policy of both groups, once each."""
    specs = [(await stage.get(kind, name))["spec"] for kind, name in ((CPG, "root"), (PG, "leaf"))]
    fields = ("priorityClassName", "priority", "preemptionPolicy")
    return {tuple(spec.get(field) for field in fields) for spec in specs}


async def told(stage: "Stage") -> set[str]:
    """Return what both groups say of why they are invalid, and nothing where they are not."""
    found = [await stage.scheduled(CPG, "root"), await stage.scheduled(PG, "leaf")]
    return {one["message"] if one.get("reason") == "Invalid" else "" for one in found}


async def test_l72_the_global_default_is_filled_in(stage: "Stage") -> None:
    """Its name, its number and its preemption policy, where a group names none."""
    await make(stage, "usual", 70, globalDefault=True, preemptionPolicy="Never")
    try:
        await both(stage, "w")
        await stage.until({("usual", 70, "Never")}, lambda: resolved(stage))
    finally:
        await stage.connection.delete(PRIORITY_CLASSES.path(None, "usual"))
    assert await told(stage) == {""}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"priorityClassName": "high"}, ("high", 1000, ALL)),
        ({}, (None, 0, ALL)),
        ({"priorityClassName": "high", "priority": 1000}, ("high", 1000, ALL)),
        ({"priorityClassName": MEEK}, (MEEK, 500, "Never")),
        ({"priorityClassName": MEEK, "preemptionPolicy": "Never"}, (MEEK, 500, "Never")),
    ],
    ids=["L73 class given", "L75 no class and no default", "L76 number of the class", "L78 policy", "L79 policy said"],
)
async def test_class_number_and_policy_are_filled_in(
    classes: "Stage", spec: dict[str, Any], wanted: tuple[object, ...]
) -> None:
    """Of the class that is named, of none without one; what says the same as the class is right."""
    await both(classes, "w", **spec)
    await classes.until({wanted}, lambda: resolved(classes))
    assert await told(classes) == {""}


async def test_l74_an_unknown_class_is_told_until_it_is_made(stage: "Stage") -> None:
    """Nothing is filled in before; then it is, and the tree is valid."""
    await both(stage, "w", priorityClassName="soon")
    named = f"CompositePodGroup {stage.namespace}/root names the PriorityClass soon, which does not exist"
    await stage.until({f"{named} (and 1 more problem)"}, lambda: told(stage))
    assert await resolved(stage) == {("soon", None, None)}
    await make(stage, "soon", 44)
    try:
        await stage.until({("soon", 44, ALL)}, lambda: resolved(stage))
        await stage.until({""}, lambda: told(stage))
    finally:
        await stage.connection.delete(PRIORITY_CLASSES.path(None, "soon"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"priorityClassName": "high", "priority": 5}, "has priority 5, its PriorityClass high has 1000"),
        (
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            f"has preemptionPolicy Never, its PriorityClass high has {ALL}",
        ),
        (
            {"priorityClassName": MEEK, "preemptionPolicy": ALL},
            f"has preemptionPolicy {ALL}, its PriorityClass meek has Never",
        ),
    ],
    ids=["L77 another number", "L79 Never", "L79 not Never"],
)
async def test_a_group_that_contradicts_its_class_is_told_so(
    classes: "Stage", spec: dict[str, Any], words: str
) -> None:
    """On every group of the tree, also while there are no pods; a group made anew without the word mends it."""
    await both(classes, "w")
    await classes.until({(None, 0, ALL)}, lambda: resolved(classes))
    await classes.delete(PG, "leaf")
    await classes.group("leaf", workload="w", parent="root", **spec)

    async def all_say() -> bool:
        return all(words in one for one in await told(classes))

    await classes.until(True, all_say)  # noqa: FBT003  # what is wanted
    await classes.delete(PG, "leaf")
    await classes.group("leaf", workload="w", parent="root")
    await classes.until({""}, lambda: told(classes))
