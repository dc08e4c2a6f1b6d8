"""The priority class that all groups of a tree share."""

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.forest import Forest, Group
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import Fault, TreeProblem, ValidationContext, validate
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import (
    composite,
    inner_template,
    leaf_template,
    pod_group,
    priority_class,
    workload,
)


def validated(groups: list[Group], *workloads: Workload, classes: PriorityClasses) -> tuple[TreeProblem, ...]:
    """Return the problems of the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    by_name = {(found.metadata.namespace, found.metadata.name): found for found in workloads}
    return validate(tree, ValidationContext(workloads=by_name, classes=classes))


def named(group: Group, class_name: str) -> Group:
    """Return a group with the name of a priority class."""
    return replace(group, spec=replace(group.spec, priority_class_name=class_name))


TWINS = PriorityClasses(by_name={name: priority_class(name, 100) for name in ("high", "twin")})


@pytest.mark.parametrize("gang", [1, None], ids=["gang", "basic"])
@pytest.mark.parametrize("priority", [100, None], ids=["resolved", "open"])
def test_a_tree_has_one_priority_class(gang: int | None, priority: int | None) -> None:
    """Also where the numbers are equal, and under basic policies too."""
    root = named(composite("root", gang=gang, priority=priority), "high")
    child = pod_group("a", parent="root", gang=gang, priority=priority)
    assert validated([root, named(child, "high")], classes=TWINS) == ()
    (problem,) = validated([root, named(child, "twin")], classes=TWINS)
    assert (problem.fault, problem.other) == (Fault.PRIORITY_CLASS_DIVERGES, "CompositePodGroup default/root")
    assert problem.message == (
        "PodGroup default/a has priorityClassName twin, its parent CompositePodGroup default/root has "
        "priorityClassName high: all groups of a tree have one priorityClassName; "
        "create one of the two again with that of the other"
    )


def test_a_number_without_a_class_differs_from_one_with_a_class() -> None:
    """A bare number has no class, whatever the default is; numbers that differ are reported alone."""
    classes = PriorityClasses(by_name={"high": priority_class("high", 100, default=True)})
    source = workload([inner_template("root", [leaf_template("a")])])
    for child in (
        named(pod_group("a", parent="root", priority=100), "high"),
        pod_group("a", parent="root", priority=None),
    ):
        (problem,) = validated([composite("root", priority=100), child], source, classes=classes)
        assert "its parent CompositePodGroup default/root has no priorityClassName" in problem.message
    groups = [composite("root", priority=100), named(pod_group("a", parent="root", priority=5), "gone")]
    assert [one.fault for one in validated(groups, classes=classes)] == [Fault.PRIORITY_DIVERGES]


def test_the_name_of_a_default_may_be_filled_in_group_by_group() -> None:
    """A group that has it and one that does not have it yet are of one class; so are groups and their templates."""
    classes = PriorityClasses(by_name={"usual": priority_class("usual", 10, default=True)})
    filled, empty = named(composite("root", priority=10), "usual"), pod_group("a", parent="root", priority=None)
    assert validated([filled, empty], classes=classes) == ()
    source = workload([inner_template("root", [replace(leaf_template("a"), priority_class_name="high")])])
    assert validated([named(composite("root", priority=100), "high"), empty], source, classes=TWINS) == ()


def test_a_class_that_may_still_come_is_not_compared() -> None:
    """A missing template may name it, and of an unknown class the only fault is that it is unknown."""
    zero = PriorityClasses(by_name={"zero": priority_class("zero", 0)})
    root = named(composite("root", priority=0), "zero")
    assert validated([root, pod_group("a", parent="root", priority=None)], classes=zero) == ()
    root = named(composite("root", priority=None), "high")
    groups = [root, named(pod_group("a", parent="root", priority=None), "gone")]
    assert [one.fault for one in validated(groups, classes=TWINS)] == [Fault.PRIORITY_CLASS_UNKNOWN]
