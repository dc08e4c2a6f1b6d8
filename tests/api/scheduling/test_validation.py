"""Validation of trees, edge by edge."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.scheduling.forest import Anchor, Forest, Group, GroupKey, Tree, key_of, parent_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import (
    Fault,
    TreeProblem,
    ValidationContext,
    tree_wait_message,
    validate,
    validate_members,
)
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import (
    bare,
    composite,
    disruption,
    inner_template,
    leaf_template,
    metadata,
    pod,
    pod_group,
    priority_class,
    workload,
)

TEMPLATES = workload([inner_template("root", [inner_template("mid", [leaf_template("a"), leaf_template("b")])])])
NO_CLASSES = PriorityClasses(by_name={})


def context(*workloads: Workload, classes: PriorityClasses = NO_CLASSES) -> ValidationContext:
    """Return a context with Workloads and classes."""
    by_name = {(found.metadata.namespace, found.metadata.name): found for found in workloads}
    return ValidationContext(workloads=by_name, classes=classes)


def validated(
    groups: list[Group], *workloads: Workload, classes: PriorityClasses = NO_CLASSES
) -> tuple[TreeProblem, ...]:
    """Return the problems of the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    return validate(tree, context(*workloads, classes=classes))


def faults(problems: tuple[TreeProblem, ...]) -> list[tuple[Fault, str, str]]:
    """Return the faults with both ends of their edges."""
    return [(problem.fault, problem.group.name, problem.other) for problem in problems]


def named(group: Group, class_name: str) -> Group:
    """Return a group with the name of a priority class."""
    return replace(group, spec=replace(group.spec, priority_class_name=class_name))


def valid_tree() -> list[Group]:
    """Return a tree that follows its templates."""
    return [
        composite("root"),
        composite("mid", parent="root"),
        pod_group("a", parent="mid"),
        pod_group("a-1", parent="mid", template="a"),
        pod_group("b", parent="mid"),
    ]


def test_a_tree_that_follows_its_templates_is_valid() -> None:
    """With its Workload present or missing."""
    assert validated(valid_tree(), TEMPLATES) == ()
    assert validated(valid_tree()) == ()


def test_a_flat_group_is_valid_with_and_without_a_workload() -> None:
    """A standalone PodGroup references no Workload; one made from a flat template does."""
    assert validated([pod_group("gang")]) == ()
    assert validated([pod_group("gang", workload="w", template="t")], workload([leaf_template("t")])) == ()


def test_a_cycle_is_reported_alone() -> None:
    """The message lists the cycle, and no other rule is checked."""
    (problem,) = validated([composite("a", parent="b", priority=5), composite("b", parent="a")])
    assert problem.fault is Fault.CYCLE
    assert problem.message == "the parents of CompositePodGroup default/a form a cycle: a -> b -> a"
    assert problem.other == "CompositePodGroup default/b"


def test_a_long_cycle_is_shortened_in_the_message() -> None:
    """A condition has a limited size."""
    ring: list[Group] = [composite(f"g{number:03}", parent=f"g{(number + 1) % 800:03}") for number in range(800)]
    (problem,) = validated(ring)
    assert problem.message.endswith("-> (789 more) -> g000")
    assert problem.message.count("->") == 12


def test_the_fifth_level_is_too_deep() -> None:
    """Four levels are valid; the first group of the fifth is reported, those below it are not."""
    chain: list[Group] = [composite("l1"), *(composite(f"l{i}", parent=f"l{i - 1}") for i in (2, 3))]
    assert validated([*chain, pod_group("leaf", parent="l3")]) == ()
    deep = [*chain, composite("l4", parent="l3"), composite("l5", parent="l4"), pod_group("leaf", parent="l5")]
    assert faults(validated(deep)) == [(Fault.TOO_DEEP, "l5", "CompositePodGroup default/l4")]


def test_a_tree_has_one_workload() -> None:
    """Every edge where the Workload changes is reported."""
    groups: list[Group] = [
        composite("root"),
        composite("mid", parent="root", workload="v"),
        pod_group("a", parent="mid"),
    ]
    assert faults(validated(groups)) == [
        (Fault.SEVERAL_WORKLOADS, "mid", "CompositePodGroup default/root"),
        (Fault.SEVERAL_WORKLOADS, "a", "CompositePodGroup default/mid"),
    ]


def test_a_child_without_a_workload_reference_is_reported() -> None:
    """The API refuses it below a parent, but the object may be older than that rule."""
    child = pod_group("a", parent="root")
    orphaned = PodGroup(
        metadata=child.metadata,
        spec=type(child.spec)(
            parent_composite_pod_group_name="root", scheduling_policy=child.spec.scheduling_policy, priority=0
        ),
    )
    assert faults(validated([composite("root"), orphaned], TEMPLATES)) == [
        (Fault.NO_WORKLOAD_REF, "a", "CompositePodGroup default/root")
    ]


def test_a_template_must_exist_for_the_kind() -> None:
    """A missing template and one for the other kind have different messages."""
    groups: list[Group] = [composite("root"), pod_group("x", parent="root", template="nowhere")]
    assert faults(validated(groups, TEMPLATES)) == [(Fault.TEMPLATE_MISSING, "x", "Workload default/w")]
    groups = [composite("root"), pod_group("x", parent="root", template="mid")]
    (problem,) = validated(groups, TEMPLATES)
    assert problem.fault is Fault.TEMPLATE_KIND
    assert problem.message == (
        "PodGroup default/x references template mid of Workload default/w, which is for a CompositePodGroup"
    )


def test_a_template_must_be_at_the_position_of_the_group() -> None:
    """A group below another parent template, and an inner template's group at the top, are misplaced."""
    (problem,) = validated([composite("root"), pod_group("a", parent="root")], TEMPLATES)
    assert problem.fault is Fault.TEMPLATE_PLACE
    assert problem.message == (
        "PodGroup default/a is below a group of template root, "
        "but its template a of Workload default/w is below a group of template mid"
    )
    (problem,) = validated([composite("mid")], TEMPLATES)
    assert problem.message == (
        "CompositePodGroup default/mid is at the top, "
        "but its template mid of Workload default/w is below a group of template root"
    )


def test_the_position_of_a_group_with_a_missing_parent_is_not_checked() -> None:
    """The template of the parent is unknown."""
    assert validated([composite("mid", parent="root"), pod_group("a", parent="mid")], TEMPLATES) == ()


def test_a_workload_of_another_namespace_is_not_used() -> None:
    """References do not cross namespaces."""
    elsewhere = Workload(metadata=metadata("w", namespace="other"), spec=TEMPLATES.spec)
    assert validated([composite("root", template="nowhere")], elsewhere) == ()


def test_single_below_all_is_invalid() -> None:
    """All below single is valid."""
    groups: list[Group] = [
        composite("root", all_=True),
        composite("mid", parent="root"),
        pod_group("a", parent="mid", all_=True),
    ]
    assert faults(validated(groups)) == [(Fault.ALL_ABOVE_SINGLE, "mid", "CompositePodGroup default/root")]


def test_an_absent_disruption_mode_is_single() -> None:
    """Native objects without the default count as single."""
    child = pod_group("a", parent="root", all_=True)
    bare = PodGroup(
        metadata=child.metadata,
        spec=type(child.spec)(
            parent_composite_pod_group_name="root",
            workload_ref=child.spec.workload_ref,
            scheduling_policy=child.spec.scheduling_policy,
        ),
    )
    assert [fault for fault, *_ in faults(validated([composite("root", all_=True), bare]))] == [Fault.ALL_ABOVE_SINGLE]


def test_priorities_are_compared_after_resolution() -> None:
    """The class of a number and a global default of that number are one priority."""
    classes = PriorityClasses(by_name={"high": priority_class("high", 100, default=True)})
    child = pod_group("a", parent="root", priority=None)
    assert validated([named(composite("root", priority=100), "high"), child], classes=classes) == ()
    (problem,) = validated([composite("root", priority=100), child])
    assert (problem.fault, problem.message) == (
        Fault.PRIORITY_DIVERGES,
        (
            "PodGroup default/a has priority 0, its parent CompositePodGroup default/root has 100: "
            "all groups of a tree have one priority"
        ),
    )


def test_a_priority_counts_before_it_is_written_down() -> None:
    """The template's priority applies to a group without one: for its parent, its pods and unknown classes."""
    source = workload([inner_template("root", [replace(leaf_template("a"), priority=100)])])
    groups: list[Group] = [composite("root", priority=100), pod_group("a", parent="root", priority=None)]
    assert validated(groups, source) == ()
    (tree,) = Forest.of([pod_group("a", priority=None, workload="w")]).trees()
    flat = context(workload([replace(leaf_template("a"), priority=100)]))
    (problem,) = validate_members(tree, [(tree.nodes[0].key, pod("p", priority=7))], flat)
    assert "got: 7 and 100" in problem.message
    gone = workload([replace(leaf_template("a"), priority_class_name="gone")])
    assert faults(validate(tree, context(gone))) == [(Fault.PRIORITY_CLASS_UNKNOWN, "a", "PriorityClass gone")]


def test_an_unknown_priority_class_is_reported() -> None:
    """It is a fault of its own; members are not compared with it."""
    group = PodGroup(
        metadata=metadata("gang"),
        spec=type(pod_group("x").spec)(
            scheduling_policy=pod_group("x").spec.scheduling_policy, priority_class_name="gone"
        ),
    )
    assert faults(validated([group])) == [(Fault.PRIORITY_CLASS_UNKNOWN, "gang", "PriorityClass gone")]
    (tree,) = Forest.of([group]).trees()
    assert validate_members(tree, [(key_of(group), pod("p", priority=7))], context()) == ()


def test_a_pod_with_another_priority_is_reported() -> None:
    """In the words of KEP-5710: first the number of the pod, then that of its group. A pod without one has 0."""
    group = pod_group("gang", priority=0)
    (tree,) = Forest.of([group]).trees()
    members = [(key_of(group), pod("p", priority=7)), (key_of(group), pod("q", priority=None))]
    (problem,) = validate_members(tree, members, context())
    assert (problem.fault, problem.other) == (Fault.PRIORITY_DIVERGES, "Pod default/p")
    assert problem.message == (
        "all pods in a single pod group should match the priority of the pod group, got: 7 and 0: "
        "Pod default/p of PodGroup default/gang has 7, the group has 0; "
        "give the pod the priorityClassName of its group"
    )


def test_only_the_number_of_a_pod_counts() -> None:
    """As in KEP-5710: the class from which a pod has its priority may be another."""
    group = named(pod_group("gang", priority=7), "high")
    (tree,) = Forest.of([group]).trees()
    assert validate_members(tree, [(key_of(group), pod("p", priority=7))], context()) == ()


CLASSES = PriorityClasses(
    by_name={
        "high": priority_class("high", 1000),
        "meek": replace(priority_class("meek", 5), preemption_policy="Never"),
        "usual": priority_class("usual", 10, default=True),
    }
)


def of_class(name: str, **spec: Any) -> PodGroup:
    """Return a group of a class, with more in its spec."""
    group = pod_group("g", priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=name, **spec))


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (of_class("high", priority=5), "priority 5, its PriorityClass high has 1000: leave priority empty"),
        (of_class("high", preemption_policy="Never"), "preemptionPolicy Never, its PriorityClass high has Preempt"),
        (of_class("meek", preemption_policy="PreemptLowerPriority"), "its PriorityClass meek has Never"),
        (of_class("", preemption_policy="Never"), "its PriorityClass usual has PreemptLowerPriority"),
    ],
)
def test_a_group_must_not_contradict_its_class(group: PodGroup, words: str) -> None:
    """Neither in the number nor in the preemption policy, for a named class and for the default."""
    (problem,) = validated([group], classes=CLASSES)
    assert problem.fault is Fault.CLASS_DIVERGES
    assert words in problem.message


@pytest.mark.parametrize(
    "group",
    [
        of_class("high", priority=1000, preemption_policy="PreemptLowerPriority"),
        of_class("meek", priority=5, preemption_policy="Never"),
        of_class("", priority=7, preemption_policy="Never"),
        of_class("gone", priority=7, preemption_policy="Never"),
    ],
)
def test_a_group_may_repeat_its_class(group: PodGroup) -> None:
    """An explicit number without a class, or with a deleted class, is not compared."""
    assert validated([group], classes=CLASSES) == ()


def test_a_recreated_class_does_not_affect_existing_groups() -> None:
    """A resolved number is final; only a group younger than the class can contradict it."""
    later = replace(CLASSES.by_name["high"], metadata=metadata("high", created="2026-02-01T00:00:00Z"))
    classes = PriorityClasses(by_name={"high": later})
    group = of_class("high", priority=5)
    assert validated([group], classes=classes) == ()
    newer = replace(group, metadata=metadata("g", created="2026-02-01T00:00:00Z"))
    unborn = replace(group, metadata=replace(group.metadata, creation_timestamp=None))
    assert [one.fault for new in (newer, unborn) for one in validated([new], classes=classes)] == [
        Fault.CLASS_DIVERGES
    ] * 2


def test_a_tree_is_validated_with_the_fields_of_its_templates() -> None:
    """As if they were written down."""
    whole = replace(leaf_template("a"), disruption_mode=disruption(all_=True), priority=3)
    source = workload([replace(inner_template("root", [whole]), disruption_mode=disruption(all_=True), priority=3)])
    groups = [bare(composite("root")), bare(pod_group("a", parent="root"))]
    assert validated(groups, source) == ()
    wrong = pod_group("a", parent="root", priority=3)
    assert faults(validated([groups[0], wrong], source)) == [
        (Fault.ALL_ABOVE_SINGLE, "a", "CompositePodGroup default/root")
    ]


def test_a_tree_that_waits_for_its_templates_is_valid() -> None:
    """Unknown fields are not guessed; the tree reports what it waits for."""
    groups = [composite("root", all_=True, priority=3), bare(pod_group("a", parent="root"))]
    assert validated(groups) == ()
    (tree,) = Forest.of(groups).trees()
    assert tree_wait_message(tree, {}).startswith("waiting for Workload default/w with a template a for a PodGroup")
    assert validate_members(tree, [], context()) == ()
    whole = replace(leaf_template("a"), disruption_mode=disruption(all_=True), priority=3)
    there = workload([inner_template("root", [whole])])
    assert tree_wait_message(tree, {("default", "w"): there}) == ""
    assert validated(groups, there) == ()
    single = bare(pod_group("a", parent="root"))
    single = replace(single, spec=replace(single.spec, disruption_mode=disruption(all_=False)))
    assert [one.fault for one in validated([groups[0], single])] == [Fault.ALL_ABOVE_SINGLE]


LETTERS = "abcdef"


@st.composite
def draw_groups(draw: st.DrawFn) -> list[Group]:
    """Draw groups with any parents, Workloads, templates, modes and priorities."""
    heap: list[Group] = []
    for name in draw(st.lists(st.sampled_from(LETTERS), unique=True, min_size=1)):
        parent = draw(st.none() | st.sampled_from(LETTERS))
        source = draw(st.sampled_from("wv"))
        template = draw(st.sampled_from(["root", "mid", "a", "none"]))
        whole, priority = draw(st.booleans()), draw(st.sampled_from([0, 1]))
        build = pod_group if draw(st.booleans()) else composite
        gang = draw(st.sampled_from([1, None]))
        group = build(name, gang=gang, parent=parent, workload=source, template=template, all_=whole, priority=priority)
        heap.append(named(group, draw(st.sampled_from(["", "high"]))))
    return heap


def slow_faults(tree: Tree) -> Iterator[tuple[Fault, GroupKey]]:
    """Validate a tree group by group, from the parents' names alone."""
    groups = {node.key: node.group for node in tree.nodes}
    if tree.anchor is Anchor.CYCLE:
        yield Fault.CYCLE, min(tree.cycle)
        return
    for key, group in groups.items():
        parent = groups.get(parent_of(group) or key)
        above = parent if parent is not group else None
        yield from ((fault, key) for fault in slow_group_faults(group, above, groups, tree.anchor))


def slow_group_faults(
    group: Group, parent: Group | None, groups: dict[GroupKey, Group], anchor: Anchor
) -> Iterator[Fault]:
    """Validate one group against its parent, with the templates of Workload ``w`` written out."""
    ref = group.spec.workload_ref
    assert ref is not None
    levels = 1
    here: Group | None = group
    while here is not None and (up := parent_of(here)) in groups and up is not None:
        here, levels = groups[up], levels + 1
    if levels == 5:
        yield Fault.TOO_DEEP
    if parent is not None and parent.spec.workload_ref is not None:
        if parent.spec.workload_ref.workload_name != ref.workload_name:
            yield Fault.SEVERAL_WORKLOADS
        if parent.spec.priority != group.spec.priority:
            yield Fault.PRIORITY_DIVERGES
        elif parent.spec.priority_class_name != group.spec.priority_class_name:
            yield Fault.PRIORITY_CLASS_DIVERGES
        if parent.spec.disruption_mode.all is not None and group.spec.disruption_mode.single is not None:  # type: ignore[union-attr]
            yield Fault.ALL_ABOVE_SINGLE
    if ref.workload_name == "w":
        yield from slow_template_faults(group, parent, anchor)


def slow_template_faults(group: Group, parent: Group | None, anchor: Anchor) -> Iterator[Fault]:
    """Validate one group against a table of templates: name, kind, template above."""
    ref = group.spec.workload_ref
    table = {"root": ("CompositePodGroup", None), "mid": ("CompositePodGroup", "root"), "a": ("PodGroup", "mid")}
    if ref is None or ref.template_name not in table:
        yield Fault.TEMPLATE_MISSING
        return
    kind, above = table[ref.template_name]
    if kind != group.kind:
        yield Fault.TEMPLATE_KIND
    elif parent is not None and parent.spec.workload_ref is not None:
        if parent.spec.workload_ref.template_name != above:
            yield Fault.TEMPLATE_PLACE
    elif anchor is Anchor.ROOT and above is not None:
        yield Fault.TEMPLATE_PLACE


@given(draw_groups())
def test_any_groups_have_the_faults_of_the_slow_model(heap: list[Group]) -> None:
    """Validating a whole tree equals validating each group with its parent."""
    for tree in Forest.of(heap).trees():
        problems = validate(tree, context(TEMPLATES))
        assert {(problem.fault, problem.group) for problem in problems} == set(slow_faults(tree))
        assert list(problems) == sorted(problems)
