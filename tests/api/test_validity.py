"""The condition of invalid trees, and that scheduler and operator do not overwrite each other."""

import pytest
from msgspec.structs import replace

from cpg_api.conditions import MAX_MESSAGE_LENGTH
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Forest, Group, GroupKey, Tree
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
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
from cpg_engine.testing.builders import bare, composite, pod, pod_group, priority_class

AROUND = ValidationContext(workloads={}, classes=PriorityClasses(by_name={"high": priority_class("high", 9)}))
LEAF = GroupKey(PodGroup.kind, "default", "leaf")
WRONG = TreeValidity(message="wrong")
DIFFERS = TreeValidity(message="differs", members_differ=True)


def only_tree(*groups: Group) -> Tree:
    """Return the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    return tree


def check(*pods: Pod, groups: tuple[Group, ...] = (), knows_classes: bool = True) -> TreeValidity:
    """Check a root above a leaf, and more groups, with these members of the leaf."""
    tree = only_tree(composite("root"), pod_group("leaf", parent="root"), *groups)
    return check_tree(tree, [(LEAF, one) for one in pods], AROUND, knows_classes=knows_classes)


def with_condition(group: Group, *values: str) -> Group:
    """Return a group with a first condition of this status, reason and message."""
    status, reason, message = values
    found = Condition(type=initially_scheduled_type(group), status=status, reason=reason, message=message)
    return replace(group, status=replace(group.status, conditions=(found,)))


def test_a_tree_without_faults_is_valid() -> None:
    """With members that agree, and without any."""
    assert check() == VALID
    assert check(pod("a", group="leaf"), pod("b", group="leaf")) == VALID


def test_a_tree_without_its_root_is_valid() -> None:
    """It waits, and the root may resolve every fault."""
    tree = only_tree(pod_group("leaf", parent="gone"), pod_group("other", parent="gone", workload="v"))
    assert check_tree(tree, (), AROUND) == VALID


def test_members_of_a_tree_that_waits_for_a_template_are_not_checked() -> None:
    """As in the scheduler. Its structure is checked, and an existing message about classes stays."""
    waiting = bare(pod_group("other", parent="root"))
    other = replace(pod("b", group="leaf"), spec=replace(pod("b").spec, scheduler_name="other"))
    assert check(pod("a", group="leaf", priority=5), groups=(waiting,)) == VALID
    assert check(pod("a", group="leaf"), other, groups=(waiting,)) == VALID
    assert not check(groups=(waiting,), knows_classes=False).knows_classes
    assert check(groups=(waiting, pod_group("x", parent="root", workload="v"))).message


def test_faults_of_the_structure_come_first() -> None:
    """As in the scheduler. The message has the number of further problems."""
    bad = (pod_group("x", parent="root", workload="v"), pod_group("y", parent="root", workload="v"))
    found = check(pod("a", group="leaf", priority=5), groups=bad)
    assert found.message.startswith("PodGroup default/x is made from Workload v")
    assert found.message.endswith("(and 1 more problem)")


def test_members_with_two_scheduler_names_differ() -> None:
    """The message names one pod of each. Pods that have ended or are being deleted do not count."""
    other = replace(pod("b", group="leaf"), spec=replace(pod("b").spec, scheduler_name="other"))
    found = check(pod("c", group="leaf"), pod("a", group="leaf"), other)
    assert found == TreeValidity(
        message="all pods of a tree need one schedulerName: Pod default/a has cpg-scheduler, Pod default/b has other",
        members_differ=True,
    )
    ended = replace(other, status=PodStatus(phase="Failed"))
    ending = replace(other, metadata=replace(other.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert check(pod("a", group="leaf"), ended, ending) == VALID


def test_only_some_of_many_differing_members_are_named() -> None:
    """The others are counted, so that the message fits into a condition."""
    pods = [pod(f"p{number}", group="leaf") for number in range(300)]
    found = check(*(replace(one, spec=replace(one.spec, scheduler_name=f"s-{one.metadata.name}")) for one in pods))
    assert found.message.count("Pod default/") == 5
    assert found.message.endswith("Pod default/p100 has s-p100, Pod default/p101 has s-p101 (and 295 more)")


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


def test_members_with_two_preemption_policies_differ() -> None:
    """An absent policy is the default of the API server."""
    silent, same = pod("a", group="leaf"), pod("b", group="leaf", preemption_policy="PreemptLowerPriority")
    assert check(silent, same) == VALID
    found = check(silent, pod("c", group="leaf", preemption_policy="Never"))
    assert found.members_differ
    assert "preemptionPolicy: Pod default/c has Never, Pod default/a has PreemptLowerPriority" in found.message


def test_members_with_another_priority_are_a_fault() -> None:
    """The message names the pod and the priority class to set."""
    found = check(pod("a", group="leaf", priority=5))
    assert not found.members_differ
    assert "Pod default/a of PodGroup default/leaf has priority 5" in found.message


def test_faults_of_classes_need_access_to_classes() -> None:
    """An operator that is limited to namespaces may lack access to cluster-scoped objects."""
    unknown = pod_group("x", parent="root", priority=None)
    named = replace(unknown, spec=replace(unknown.spec, priority_class_name="gone"))
    member = pod("a", group="leaf", priority=5)
    assert "names the PriorityClass gone" in check(groups=(named,)).message
    unsure = check(member, groups=(named,), knows_classes=False)
    assert unsure.message == ""
    said = validity_condition(pod_group("x"), check(groups=(named,)))
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


def test_an_existing_scheduler_error_is_kept_where_members_differ() -> None:
    """The scheduler reports as SchedulerError what is Invalid for the operator; neither overwrites the other."""
    group = pod_group("leaf")
    assert validity_condition(with_condition(group, "False", "SchedulerError", "x"), DIFFERS) is None
    assert validity_condition(with_condition(group, "False", "Unschedulable", "x"), DIFFERS) is not None
    assert validity_condition(with_condition(group, "False", "SchedulerError", "x"), WRONG) is not None


@pytest.mark.parametrize("group", [composite("root"), pod_group("leaf")], ids=["inner", "leaf"])
@pytest.mark.parametrize("found", [WRONG, DIFFERS, VALID])
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
