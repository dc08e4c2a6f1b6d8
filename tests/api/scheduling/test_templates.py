"""Where each template of a Workload stands."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import (
    TemplatePlace,
    due_priority,
    resolved_priority,
    template_places,
    walk_templates,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec
from cpg_engine.testing.builders import inner_template, leaf_template, pod_group, priority_class, workload

Template = PodGroupTemplate | CompositePodGroupTemplate


def places(source: Workload) -> list[tuple[str, str, str | None, int]]:
    """Return the walk as name, kind, parent and depth."""
    return [(place.template.name, place.kind, place.parent, place.depth) for place in walk_templates(source)]


def test_flat_templates_stand_at_the_top() -> None:
    """Each is for PodGroups that are roots."""
    assert places(workload([leaf_template("a"), leaf_template("b")])) == [
        ("a", "PodGroup", None, 1),
        ("b", "PodGroup", None, 1),
    ]


def test_parents_come_before_children_and_leaves_before_inner_templates() -> None:
    """Depth first, in the order of the lists."""
    left = inner_template("left", [inner_template("low", [leaf_template("x")]), leaf_template("a")])
    assert places(workload([left, inner_template("right", [leaf_template("b")])])) == [
        ("left", "CompositePodGroup", None, 1),
        ("a", "PodGroup", "left", 2),
        ("low", "CompositePodGroup", "left", 2),
        ("x", "PodGroup", "low", 3),
        ("right", "CompositePodGroup", None, 1),
        ("b", "PodGroup", "right", 2),
    ]


def test_a_workload_without_templates_has_no_places() -> None:
    """The API server lets none in, but a reader must bear it, and an inner template without children as well."""
    assert places(Workload(spec=WorkloadSpec())) == []
    assert places(workload([inner_template("childless", [])])) == [("childless", "CompositePodGroup", None, 1)]


def test_places_are_found_by_name() -> None:
    """The template itself is part of its place."""
    leaf = leaf_template("leaf")
    found = template_places(workload([inner_template("top", [leaf])]))
    assert found["leaf"] == TemplatePlace(template=leaf, kind="PodGroup", parent="top", depth=2)
    assert found.keys() == {"top", "leaf"}


def test_templates_of_any_depth_are_walked_without_recursion() -> None:
    """Too deep is a fault to be told of, not one to stumble over."""
    template: Template = leaf_template("0")
    for level in range(1, 5000):
        template = inner_template(str(level), [template])
    found = template_places(workload([template]))
    assert (found["0"].depth, found["0"].parent, len(found)) == (5000, "1", 5000)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Draw a tree of templates with names of its own."""
    below: list[Template] = []
    for number in range(draw(st.integers(1, 12))):
        children = [below.pop() for _ in range(draw(st.integers(0, len(below))))]
        below.append(inner_template(f"t{number}", children) if children else leaf_template(f"t{number}"))
    return workload(below)


def slow_places(template: Template, parent: str | None, depth: int) -> list[tuple[str, str, str | None, int]]:
    """Walk one template by recursion."""
    if isinstance(template, PodGroupTemplate):
        return [(template.name, "PodGroup", parent, depth)]
    children: list[Template] = [*(template.pod_group_templates or ()), *(template.composite_pod_group_templates or ())]
    here = (template.name, "CompositePodGroup", parent, depth)
    return [here, *(place for one in children for place in slow_places(one, template.name, depth + 1))]


@settings(deadline=None)
@given(workloads())
def test_the_walk_is_the_recursive_one(source: Workload) -> None:
    """Place by place, and every template once."""
    spec = source.spec
    tops: list[Template] = [*(spec.pod_group_templates or ()), *(spec.composite_pod_group_templates or ())]
    assert places(source) == [place for top in tops for place in slow_places(top, None, 1)]
    assert len(template_places(source)) == len(places(source))


def test_a_group_without_a_priority_takes_its_templates() -> None:
    """The number as it stands, and the class with what it stands for; one of its own wins, and no class is guessed."""
    classes = PriorityClasses(by_name={"high": priority_class("high", 1000), "low": priority_class("low", 5)})

    def due(group: PodGroup, **template: Any) -> dict[str, int | str]:
        source = workload([replace(leaf_template("t"), **template)])
        around = {("default", "w"): source}
        found = due_priority(group, around, classes)
        assert resolved_priority(group, around, classes) == found.get("priority", group.spec.priority)
        return found

    group = pod_group("g", workload="w", template="t", priority=None)
    assert due(group, priority_class_name="high") == {"priority": 1000, "priorityClassName": "high"}
    assert due(group, priority_class_name="high", priority=1) == {"priority": 1, "priorityClassName": "high"}
    assert due(group, priority=-5) == {"priority": -5}
    assert due(group) == {"priority": 0}
    assert due(group, priority_class_name="unknown") == {}
    assert due(pod_group("g", workload="w", template="other", priority=None), priority=7) == {"priority": 0}
    assert due(pod_group("g", workload="v", template="t", priority=None), priority=7) == {"priority": 0}
    assert due(pod_group("g", priority=None), priority=7) == {"priority": 0}
    assert due(pod_group("g", workload="w", template="t", priority=0), priority=7) == {}
    named = replace(group, spec=replace(group.spec, priority_class_name="low"))
    assert due(named, priority=7) == {"priority": 5}


def test_a_default_is_filled_in_with_its_name() -> None:
    """Where nobody names anything; and never beside a number of the template's own."""
    classes = PriorityClasses(by_name={"usual": priority_class("usual", 10, default=True)})
    group = pod_group("g", workload="w", template="t", priority=None)
    assert due_priority(group, {}, classes) == {"priority": 10, "priorityClassName": "usual"}
    source = workload([replace(leaf_template("t"), priority=3)])
    assert due_priority(group, {("default", "w"): source}, classes) == {"priority": 3}
