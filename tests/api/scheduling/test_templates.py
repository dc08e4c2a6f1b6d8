"""Templates of a Workload, and the fields that groups take from them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
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
    resolved_preemption_policy,
    resolved_priority,
    template_positions,
    template_wait_message,
    walk_templates,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec
from cpg_engine.testing.builders import (
    bare,
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
from cpg_engine.testing.call_counts import count_calls

Template = PodGroupTemplate | CompositePodGroupTemplate


def walk(source: Workload) -> list[tuple[str, str, str | None, int]]:
    """Return the walk as name, kind, parent and depth."""
    return [(place.template.name, place.kind, place.parent, place.depth) for place in walk_templates(source)]


def test_flat_templates_are_at_the_top() -> None:
    """Each is for PodGroups that are roots."""
    assert walk(workload([leaf_template("a"), leaf_template("b")])) == [
        ("a", "PodGroup", None, 1),
        ("b", "PodGroup", None, 1),
    ]


def test_parents_come_before_children_and_leaves_before_inner_templates() -> None:
    """Depth first, in the order of the lists."""
    left = inner_template("left", [inner_template("low", [leaf_template("x")]), leaf_template("a")])
    assert walk(workload([left, inner_template("right", [leaf_template("b")])])) == [
        ("left", "CompositePodGroup", None, 1),
        ("a", "PodGroup", "left", 2),
        ("low", "CompositePodGroup", "left", 2),
        ("x", "PodGroup", "low", 3),
        ("right", "CompositePodGroup", None, 1),
        ("b", "PodGroup", "right", 2),
    ]


def test_a_workload_without_templates_has_no_positions() -> None:
    """The API server refuses it, but a reader must handle it, and an inner template without children as well."""
    assert walk(Workload(spec=WorkloadSpec())) == []
    assert walk(workload([inner_template("childless", [])])) == [("childless", "CompositePodGroup", None, 1)]


def test_positions_are_found_by_name() -> None:
    """A position has its template."""
    leaf = leaf_template("leaf")
    found = template_positions(workload([inner_template("top", [leaf])]))
    assert found["leaf"] == TemplatePosition(template=leaf, kind="PodGroup", parent="top", depth=2)
    assert found.keys() == {"top", "leaf"}


def test_very_deep_templates_are_walked() -> None:
    """Too many levels are a fault to report, not a recursion error."""
    template: Template = leaf_template("0")
    for level in range(1, 5000):
        template = inner_template(str(level), [template])
    found = template_positions(workload([template]))
    assert (found["0"].depth, found["0"].parent, len(found)) == (5000, "1", 5000)


@st.composite
def draw_workloads(draw: st.DrawFn) -> Workload:
    """Draw a tree of templates with unique names."""
    below: list[Template] = []
    for number in range(draw(st.integers(1, 12))):
        children = [below.pop() for _ in range(draw(st.integers(0, len(below))))]
        below.append(inner_template(f"t{number}", children) if children else leaf_template(f"t{number}"))
    return workload(below)


def slow_positions(template: Template, parent: str | None, depth: int) -> list[tuple[str, str, str | None, int]]:
    """Walk one template by recursion."""
    if isinstance(template, PodGroupTemplate):
        return [(template.name, "PodGroup", parent, depth)]
    children: list[Template] = [*(template.pod_group_templates or ()), *(template.composite_pod_group_templates or ())]
    here = (template.name, "CompositePodGroup", parent, depth)
    return [here, *(place for one in children for place in slow_positions(one, template.name, depth + 1))]


@given(draw_workloads())
def test_the_walk_equals_the_recursive_one(source: Workload) -> None:
    """Position by position, with every template once."""
    spec = source.spec
    tops: list[Template] = [*(spec.pod_group_templates or ()), *(spec.composite_pod_group_templates or ())]
    assert walk(source) == [place for top in tops for place in slow_positions(top, None, 1)]
    assert len(template_positions(source)) == len(walk(source))


CLASSES = PriorityClasses(
    by_name={
        "high": priority_class("high", 1000),
        "low": priority_class("low", 5),
        "meek": replace(priority_class("meek", 50), preemption_policy="Never"),
    }
)
BARE = pod_group("g", workload="w", template="t", priority=None)


def fields_with_template(
    group: Group, *, template: PodGroupTemplate | None = None, classes: PriorityClasses = CLASSES, **changes: Any
) -> dict[str, Any]:
    """Return the fields to fill in for a group with a template ``t`` of these changes; without a Workload for None."""
    source = workload([replace(template or leaf_template("t"), **changes)])
    return fields_to_fill(group, {("default", "w"): source}, classes)


def filled_priority(group: Group, **changes: Any) -> dict[str, Any]:
    """Return the fields to fill in for the priority; the priority to schedule by is always the same."""
    found = fields_with_template(group, **changes)
    around = {("default", "w"): workload([replace(leaf_template("t"), **changes)])}
    assert resolved_priority(group, around, CLASSES) == found.get("priority", group.spec.priority)
    if "preemptionPolicy" in found:
        assert resolved_preemption_policy(group, around, CLASSES) == found.pop("preemptionPolicy")
    return found


def test_a_group_without_a_priority_takes_that_of_its_template() -> None:
    """The number, or the class with its value. A priority of its own wins, and an unknown class is not guessed."""
    assert filled_priority(BARE, priority_class_name="high") == {"priority": 1000, "priorityClassName": "high"}
    assert filled_priority(BARE, priority_class_name="high", priority=1) == {"priority": 1, "priorityClassName": "high"}
    assert filled_priority(BARE, priority=-5) == {"priority": -5}
    assert filled_priority(BARE) == {"priority": 0}
    assert filled_priority(BARE, priority_class_name="unknown") == {}
    assert filled_priority(pod_group("g", priority=None), priority=7) == {"priority": 0}
    assert filled_priority(pod_group("g", workload="w", template="t", priority=0), priority=7) == {}
    assert filled_priority(with_spec(BARE, priority_class_name="low"), priority=7) == {"priority": 5}


def test_the_value_of_a_system_class_is_not_filled_in() -> None:
    """The field does not allow it, and a refused write would block all other fields. The class name stays valid."""
    system = PriorityClasses(by_name={"system": priority_class("system", 2_000_000_000)})
    group = with_spec(BARE, priority_class_name="system")
    assert "priority" not in fields_with_template(group, classes=system)
    assert resolved_priority(group, {}, system) == 2_000_000_000


@pytest.mark.parametrize(("workload", "template"), [("v", "t"), ("w", "other")])
def test_no_priority_is_filled_in_while_a_template_may_set_it(workload: str, template: str) -> None:
    """It could not be changed later. The same holds without access to the classes. An explicit priority is final."""
    group = pod_group("g", workload=workload, template=template, priority=None)
    assert filled_priority(replace(group, spec=replace(group.spec, priority=3)), priority=7) == {}
    assert filled_priority(with_spec(group, priority_class_name="low"), priority=7) == {"priority": 5}
    assert fields_with_template(group, priority=7) == {}
    assert resolved_priority(group, {}, CLASSES) == 0
    assert fields_to_fill(BARE, AROUND, None) == {}


def test_the_default_class_is_filled_in_with_its_name() -> None:
    """Where nothing else is named, and never beside an explicit number of the template."""
    classes = PriorityClasses(by_name={"usual": priority_class("usual", 10, default=True)})
    filled = {"priority": 10, "priorityClassName": "usual", "preemptionPolicy": "PreemptLowerPriority"}
    assert fields_with_template(BARE, classes=classes) == filled
    assert fields_with_template(BARE, classes=classes, priority=3) == {
        "priority": 3,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_the_preemption_policy_is_that_of_the_class() -> None:
    """Of the default class, too, and the default of Kubernetes without a class. The group's own policy wins."""
    meek = with_spec(BARE, priority_class_name="meek")
    assert fields_with_template(meek) == {"priority": 50, "preemptionPolicy": "Never"}
    assert fields_with_template(with_spec(meek, priority=50)) == {"preemptionPolicy": "Never"}
    assert fields_with_template(with_spec(meek, preemption_policy="PreemptLowerPriority")) == {"priority": 50}
    assert fields_with_template(with_spec(BARE, priority=1)) == {"preemptionPolicy": "PreemptLowerPriority"}
    assert fields_with_template(with_spec(BARE, priority_class_name="unknown", priority=1)) == {}
    assert fields_with_template(with_spec(meek, priority=50, preemption_policy="Never")) == {}


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


def test_a_group_without_a_policy_takes_all_fields_from_its_template() -> None:
    """It is scheduled by them before they are written down."""
    found = effective_group(EMPTY, AROUND)
    assert found.minimum == 3
    assert {field: getattr(found.spec, field) for field in TEMPLATE_FIELDS} == {
        field: getattr(LEAF, field) for field in TEMPLATE_FIELDS
    }
    assert template_wait_message(found) == ""
    assert resolved_preemption_policy(found, AROUND, CLASSES) == "Never"
    assert resolved_priority(found, AROUND, CLASSES) == 7


def test_filled_in_fields_equal_the_effective_ones() -> None:
    """All in one write, after which nothing is left to fill in."""
    fields = msgspec.to_builtins(fields_to_fill(EMPTY, AROUND, CLASSES))
    written = msgspec.convert({**msgspec.to_builtins(EMPTY.spec), **fields}, PodGroupSpec)
    assert replace(EMPTY, spec=replace(written, priority=None)) == effective_group(EMPTY, AROUND)
    assert written.priority == 7
    assert fields_to_fill(replace(EMPTY, spec=written), AROUND, CLASSES) == {}


def test_fields_of_the_group_win() -> None:
    """The template fills in empty fields only."""
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


def test_a_group_with_a_policy_takes_only_the_priority() -> None:
    """Its other empty fields have their default meaning."""
    group = with_spec(BARE, disruption_mode=None)
    assert effective_group(group, AROUND) is group
    assert fields_to_fill(group, AROUND, CLASSES) == {
        "disruptionMode": disruption(all_=False),
        "priority": 7,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert fields_to_fill(group, {}, CLASSES) == {"disruptionMode": disruption(all_=False)}


def test_a_group_without_a_policy_waits_for_its_template() -> None:
    """For the named Workload with a template of its kind. Nothing is resolved or written before."""
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


def test_a_group_without_policy_and_reference_waits_for_ever() -> None:
    """The API server refuses it, but such an object from elsewhere must be handled."""
    assert template_wait_message(PodGroup(metadata=metadata("g"), spec=PodGroupSpec())) == (
        "PodGroup default/g has no schedulingPolicy, and no workloadRef to take one from"
    )


def test_a_composite_group_takes_the_fields_of_its_template() -> None:
    """With its own kind of policy; an effective tree is made group by group, or is the same object."""
    top = replace(inner_template("top", [LEAF], gang=2), disruption_mode=disruption(all_=True))
    there = {("default", "w"): workload([top])}
    root = CompositePodGroup(metadata=metadata("r"), spec=CompositePodGroupSpec(workload_ref=reference("w", "top")))
    assert root.minimum == 1
    (tree,) = Forest.of([root, with_spec(EMPTY, parent_composite_pod_group_name="r")]).trees()
    found = effective_tree(tree, there)
    assert [(node.key.name, node.group.minimum) for node in found.nodes] == [("r", 2), ("g", 3)]
    assert effective_tree(found, there) is found


def test_the_templates_of_a_workload_are_walked_once() -> None:
    """Whatever number of groups name one of them, or one that is missing; a changed Workload is walked again."""
    source = workload([leaf_template(f"t{number}") for number in range(500)])
    around = {("default", "w"): source}
    groups = [bare(pod_group(f"g{number}", workload="w", template=f"t{number}")) for number in range(400, 600)]
    first = count_calls(lambda: [effective_group(group, around) for group in groups[:1]])
    assert count_calls(lambda: [effective_group(group, around) for group in groups]) < first + 50 * len(groups)
    changed = replace(source, spec=replace(source.spec, pod_group_templates=(leaf_template("other"),)))
    assert list(template_positions(changed)) == ["other"]
    assert (source, msgspec.json.encode(source)) == (replace(source), msgspec.json.encode(replace(source)))
