"""The condition of invalid trees, and that scheduler and operator do not overwrite each other."""

import pytest
from msgspec.structs import replace

from cpg_api.conditions import MAX_MESSAGE_LENGTH
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Forest, Group, Tree
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext
from cpg_api.validity import (
    VALID,
    TreeValidity,
    check_tree,
    initially_scheduled_type,
    scheduled_condition,
    validity_condition,
)
from cpg_engine.testing.builders import bare, composite, pod_group, priority_class

AROUND = ValidationContext(workloads={}, classes=PriorityClasses(by_name={"high": priority_class("high", 9)}))
WRONG = TreeValidity(message="wrong")


def only_tree(*groups: Group) -> Tree:
    """Return the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    return tree


def check(*groups: Group, knows_classes: bool = True) -> TreeValidity:
    """Check a root above a leaf, and more groups."""
    tree = only_tree(composite("root"), pod_group("leaf", parent="root"), *groups)
    return check_tree(tree, AROUND, knows_classes=knows_classes)


def with_condition(group: Group, *values: str) -> Group:
    """Return a group with a first condition of this status, reason and message."""
    status, reason, message = values
    found = Condition(type=initially_scheduled_type(group), status=status, reason=reason, message=message)
    return replace(group, status=replace(group.status, conditions=(found,)))


def test_a_tree_without_faults_is_valid() -> None:
    """What is wrong with its pods is the scheduler's finding."""
    assert check() == VALID


def test_a_tree_without_its_root_is_valid() -> None:
    """It waits, and the root may resolve every fault."""
    tree = only_tree(pod_group("leaf", parent="gone"), pod_group("other", parent="gone", workload="v"))
    assert check_tree(tree, AROUND) == VALID


def test_a_tree_that_waits_for_a_template_is_checked_as_well() -> None:
    """Its structure is; an existing message about classes stays where they cannot be read."""
    waiting = bare(pod_group("other", parent="root"))
    assert check(waiting) == VALID
    assert not check(waiting, knows_classes=False).knows_classes
    assert check(waiting, pod_group("x", parent="root", workload="v")).message


def test_the_message_has_the_first_fault_and_the_number_of_others() -> None:
    """Users see the next one after the first is repaired."""
    found = check(pod_group("x", parent="root", workload="v"), pod_group("y", parent="root", workload="v"))
    assert found.message.startswith("PodGroup default/x is made from Workload v")
    assert found.message.endswith("(and 1 more problem)")


def test_an_overlong_message_is_written_once() -> None:
    """It is truncated, and the truncated message counts as the same."""
    group = pod_group("leaf")
    said = validity_condition(group, TreeValidity(message="x" * 40_000))
    assert said is not None
    assert len(said.message) == MAX_MESSAGE_LENGTH
    assert (
        validity_condition(
            replace(group, status=PodGroupStatus(conditions=(said,))), TreeValidity(message="x" * 40_000)
        )
        is None
    )


def test_faults_of_classes_need_access_to_classes() -> None:
    """An operator that is limited to namespaces may lack access to cluster-scoped objects."""
    unknown = pod_group("x", parent="root", priority=None)
    named = replace(unknown, spec=replace(unknown.spec, priority_class_name="gone"))
    assert "names the PriorityClass gone" in check(named).message
    unsure = check(named, knows_classes=False)
    assert unsure.message == ""
    said = validity_condition(pod_group("x"), check(named))
    assert said is not None
    told = PodGroupStatus(conditions=(said,))
    assert validity_condition(replace(pod_group("x"), status=told), unsure) is None
    assert validity_condition(replace(pod_group("x"), status=told), VALID) is not None


@pytest.mark.parametrize("group", [composite("root"), pod_group("leaf")], ids=["inner", "leaf"])
def test_a_fault_is_written_once(group: Group) -> None:
    """An existing message is not written again, by any writer."""
    found = validity_condition(group, WRONG)
    assert found is not None
    assert (found.type, found.status, found.reason, found.message) == (
        initially_scheduled_type(group),
        "False",
        "Invalid",
        "wrong",
    )
    assert validity_condition(with_condition(group, "False", "Invalid", "wrong"), WRONG) is None
    assert validity_condition(with_condition(group, "False", "Invalid", "other"), WRONG) == found
    assert validity_condition(with_condition(group, "False", "Unschedulable", "no room"), WRONG) == found


def test_true_is_final() -> None:
    """A tree that becomes invalid later keeps the condition True."""
    done = with_condition(pod_group("leaf"), "True", "Scheduled", "")
    assert validity_condition(done, WRONG) is None
    assert validity_condition(done, VALID) is None
    assert scheduled_condition(done) is None


def test_only_the_reason_invalid_is_taken_back() -> None:
    """All other reasons are the scheduler's."""
    group = pod_group("leaf")
    found = validity_condition(with_condition(group, "False", "Invalid", "wrong"), VALID)
    assert found is not None
    assert (found.status, found.reason) == ("Unknown", "Pending")
    assert validity_condition(group, VALID) is None
    for reason in ("Unschedulable", "SchedulerError", "Pending"):
        assert validity_condition(with_condition(group, "False", reason, "x"), VALID) is None


@pytest.mark.parametrize("group", [composite("root"), pod_group("leaf")], ids=["inner", "leaf"])
@pytest.mark.parametrize("found", [WRONG, VALID])
@pytest.mark.parametrize("reason", ["", "Invalid", "SchedulerError", "Unschedulable"])
def test_a_written_condition_is_stable(group: Group, found: TreeValidity, reason: str) -> None:
    """Checking the written condition again writes nothing."""
    before = with_condition(group, "False", reason, "x") if reason else group
    condition = validity_condition(before, found)
    if condition is not None:
        after = replace(before, status=replace(before.status, conditions=(condition,)))
        assert validity_condition(after, found) is None


def test_a_placed_group_gets_the_condition_true() -> None:
    """Whatever its condition was before."""
    found = scheduled_condition(with_condition(pod_group("leaf"), "False", "Unschedulable", "x"))
    assert found is not None
    assert (found.status, found.reason) == ("True", "Scheduled")
