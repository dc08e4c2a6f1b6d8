"""Where each template of a Workload stands, and what a group takes from its own."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.forest import Forest, Group
from cpg_api.scheduling.podgroup import PodGroup, PodGroupSpec
from cpg_api.scheduling.policies import PodGroupResourceClaim, SchedulingConstraints
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import (
    TEMPLATE_FIELDS,
    TemplatePosition,
    effective_group,
    effective_tree,
    fields_to_fill,
    known_priority,
    resolved_preemption_policy,
    resolved_priority,
    template_positions,
    template_wait_message,
    walk_templates,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec
from cpg_engine.testing.builders import (
    constraints,
    disruption,
    inner_template,
    leaf_template,
    metadata,
    pod_group,
    priority_class,
    reference,
    workload,
)

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
    found = template_positions(workload([inner_template("top", [leaf])]))
    assert found["leaf"] == TemplatePosition(template=leaf, kind="PodGroup", parent="top", depth=2)
    assert found.keys() == {"top", "leaf"}


def test_templates_of_any_depth_are_walked_without_recursion() -> None:
    """Too deep is a fault to be told of, not one to stumble over."""
    template: Template = leaf_template("0")
    for level in range(1, 5000):
        template = inner_template(str(level), [template])
    found = template_positions(workload([template]))
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
    assert len(template_positions(source)) == len(places(source))


CLASSES = PriorityClasses(
    by_name={
        "high": priority_class("high", 1000),
        "low": priority_class("low", 5),
        "meek": replace(priority_class("meek", 50), preemption_policy="Never"),
    }
)
BARE = pod_group("g", workload="w", template="t", priority=None)


def due(
    group: Group, *, template: PodGroupTemplate | None = None, classes: PriorityClasses = CLASSES, **changes: Any
) -> dict[str, Any]:
    """Return what is to be filled in of a group, by a template ``t`` with these changes; no Workload where None."""
    source = workload([replace(template or leaf_template("t"), **changes)])
    return fields_to_fill(group, {("default", "w"): source}, classes)


def prioritised(group: Group, **changes: Any) -> dict[str, Any]:
    """Return what is to be filled in of a group's priority; what it is scheduled by is always the same."""
    found = due(group, **changes)
    around = {("default", "w"): workload([replace(leaf_template("t"), **changes)])}
    assert resolved_priority(group, around, CLASSES) == found.get("priority", group.spec.priority)
    if "preemptionPolicy" in found:
        assert resolved_preemption_policy(group, around, CLASSES) == found.pop("preemptionPolicy")
    return found


def test_a_group_without_a_priority_takes_its_templates() -> None:
    """The number as it stands, and the class with what it stands for; one of its own wins, and no class is guessed."""
    assert prioritised(BARE, priority_class_name="high") == {"priority": 1000, "priorityClassName": "high"}
    assert prioritised(BARE, priority_class_name="high", priority=1) == {"priority": 1, "priorityClassName": "high"}
    assert prioritised(BARE, priority=-5) == {"priority": -5}
    assert prioritised(BARE) == {"priority": 0}
    assert prioritised(BARE, priority_class_name="unknown") == {}
    assert prioritised(pod_group("g", priority=None), priority=7) == {"priority": 0}
    assert prioritised(pod_group("g", workload="w", template="t", priority=0), priority=7) == {}
    assert prioritised(with_spec(BARE, priority_class_name="low"), priority=7) == {"priority": 5}


def test_the_number_of_a_class_of_the_system_is_not_filled_in() -> None:
    """No field takes it, and what is refused would hold up all else that is to be written; the class holds as it is."""
    system = PriorityClasses(by_name={"system": priority_class("system", 2_000_000_000)})
    group = with_spec(BARE, priority_class_name="system")
    assert "priority" not in due(group, classes=system)
    assert resolved_priority(group, {}, system) == 2_000_000_000


@pytest.mark.parametrize(("workload", "template"), [("v", "t"), ("w", "other")])
def test_no_priority_is_filled_in_while_a_template_may_come_that_has_one(workload: str, template: str) -> None:
    """It would stand for good; nor by who sees no classes. One of its own is not in doubt."""
    group = pod_group("g", workload=workload, template=template, priority=None)
    assert prioritised(replace(group, spec=replace(group.spec, priority=3)), priority=7) == {}
    assert prioritised(with_spec(group, priority_class_name="low"), priority=7) == {"priority": 5}
    assert due(group, priority=7) == {}
    assert resolved_priority(group, {}, CLASSES) == 0
    assert known_priority(group, {}, CLASSES) is None
    assert known_priority(with_spec(group, priority_class_name="low"), {}, CLASSES) == 5
    assert fields_to_fill(BARE, AROUND, None) == {}


def test_a_default_is_filled_in_with_its_name() -> None:
    """Where nobody names anything; and never beside a number of the template's own."""
    classes = PriorityClasses(by_name={"usual": priority_class("usual", 10, default=True)})
    filled = {"priority": 10, "priorityClassName": "usual", "preemptionPolicy": "PreemptLowerPriority"}
    assert due(BARE, classes=classes) == filled
    assert due(BARE, classes=classes, priority=3) == {"priority": 3, "preemptionPolicy": "PreemptLowerPriority"}


def test_the_preemption_policy_is_that_of_the_class() -> None:
    """Of the default too, and what is said of preemption without a class; a word of the group's own stands."""
    meek = with_spec(BARE, priority_class_name="meek")
    assert due(meek) == {"priority": 50, "preemptionPolicy": "Never"}
    assert due(with_spec(meek, priority=50)) == {"preemptionPolicy": "Never"}
    assert due(with_spec(meek, preemption_policy="PreemptLowerPriority")) == {"priority": 50}
    assert due(with_spec(BARE, priority=1)) == {"preemptionPolicy": "PreemptLowerPriority"}
    assert due(with_spec(BARE, priority_class_name="unknown", priority=1)) == {}
    assert due(with_spec(meek, priority=50, preemption_policy="Never")) == {}


def with_spec(group: Group, **changes: Any) -> Group:
    """Return a group with these changes of its spec."""
    return replace(group, spec=replace(group.spec, **changes))


LEAF = replace(
    leaf_template("t", gang=3),
    scheduling_constraints=constraints("rack"),
    resource_claims=(PodGroupResourceClaim(name="gpu", resource_claim_name="shared"),),
    disruption_mode=disruption(all_=True),
    preemption_policy="Never",
    priority=7,
)
EMPTY = PodGroup(metadata=metadata("g"), spec=PodGroupSpec(workload_ref=reference("w", "t")))
AROUND = {("default", "w"): workload([LEAF])}


def test_a_group_without_a_policy_takes_everything_from_its_template() -> None:
    """It is scheduled by that before anybody has written it down."""
    found = effective_group(EMPTY, AROUND)
    assert found.minimum == 3
    assert {field: getattr(found.spec, field) for field in TEMPLATE_FIELDS} == {
        field: getattr(LEAF, field) for field in TEMPLATE_FIELDS
    }
    assert template_wait_message(found) == ""
    assert resolved_preemption_policy(found, AROUND, CLASSES) == "Never"
    assert resolved_priority(found, AROUND, CLASSES) == 7


def test_what_is_written_down_is_what_it_is_scheduled_by() -> None:
    """All of it in one write, after which nothing is due."""
    fields = msgspec.to_builtins(fields_to_fill(EMPTY, AROUND, CLASSES))
    written = msgspec.convert({**msgspec.to_builtins(EMPTY.spec), **fields}, PodGroupSpec)
    assert replace(EMPTY, spec=replace(written, priority=None)) == effective_group(EMPTY, AROUND)
    assert written.priority == 7
    assert fields_to_fill(replace(EMPTY, spec=written), AROUND, CLASSES) == {}


def test_what_a_group_says_itself_stands() -> None:
    """The template has a word only where the group has none."""
    single = with_spec(EMPTY, disruption_mode=disruption(all_=False), scheduling_constraints=SchedulingConstraints())
    found = effective_group(single, AROUND)
    assert (found.spec.disruption_mode, found.spec.scheduling_constraints) == (
        single.spec.disruption_mode,
        single.spec.scheduling_constraints,
    )
    assert set(fields_to_fill(single, AROUND, CLASSES)) == {
        "schedulingPolicy",
        "resourceClaims",
        "preemptionPolicy",
        "priority",
    }


def test_a_group_with_a_policy_is_whole() -> None:
    """What it leaves empty means what it does without a template, but for its priority."""
    group = with_spec(BARE, disruption_mode=None)
    assert effective_group(group, AROUND) is group
    assert fields_to_fill(group, AROUND, CLASSES) == {
        "disruptionMode": disruption(all_=False),
        "priority": 7,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert fields_to_fill(group, {}, CLASSES) == {"disruptionMode": disruption(all_=False)}


def test_a_group_without_a_policy_waits_for_its_template() -> None:
    """For its Workload, which it names, and for a template of its kind; nothing is known or written before."""
    for there in ({}, {("default", "w"): workload([inner_template("t", [leaf_template("x")])])}):
        found = effective_group(EMPTY, there)
        assert found is EMPTY
        assert found.minimum == 1
        assert template_wait_message(found) == (
            "waiting for Workload default/w with a template t for a PodGroup: "
            "PodGroup default/g takes its schedulingPolicy from there"
        )
        assert "preemptionPolicy" not in fields_to_fill(EMPTY, there, CLASSES)
    assert resolved_priority(EMPTY, {}, CLASSES) is None
    assert fields_to_fill(EMPTY, {}, CLASSES) == {}
    assert fields_to_fill(with_spec(EMPTY, priority_class_name="meek"), {}, CLASSES) == {"priority": 50}


def test_a_group_with_neither_policy_nor_reference_waits_for_good() -> None:
    """The API server refuses it, but what has come from elsewhere must not break anything."""
    assert template_wait_message(PodGroup(metadata=metadata("g"), spec=PodGroupSpec())) == (
        "PodGroup default/g has no schedulingPolicy, and no workloadRef to take one from"
    )


def test_a_composite_group_takes_what_its_template_has() -> None:
    """Of its own kind of policy; and a tree takes it group by group, or is the same."""
    top = replace(inner_template("top", [LEAF], gang=2), disruption_mode=disruption(all_=True))
    there = {("default", "w"): workload([top])}
    root = CompositePodGroup(metadata=metadata("r"), spec=CompositePodGroupSpec(workload_ref=reference("w", "top")))
    assert root.minimum == 1
    (tree,) = Forest.of([root, with_spec(EMPTY, parent_composite_pod_group_name="r")]).trees()
    found = effective_tree(tree, there)
    assert [(node.key.name, node.group.minimum) for node in found.nodes] == [("r", 2), ("g", 3)]
    assert effective_tree(found, there) is found
