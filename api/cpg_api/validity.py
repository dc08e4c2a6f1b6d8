"""The condition ``…InitiallyScheduled`` of invalid trees, as the operator writes it.

Two processes write this condition: the scheduler after attempts, the operator about structure. The operator follows
four rules, so that the two never overwrite each other in turns:

1. It uses the scheduler's message for Invalid, and does not repeat a message that is already there.
2. It takes back the reason Invalid alone, once the tree is valid. All other reasons are the scheduler's.
3. Where members name different schedulers or preemption policies, it keeps an existing SchedulerError: the scheduler
   has found the same fault and reports it by that reason.
4. A status of True is final.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from cpg_api.conditions import find_condition, truncate_condition
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    REASON_INVALID,
    REASON_PENDING,
    REASON_SCHEDULED,
    REASON_SCHEDULER_ERROR,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.validation import (
    Fault,
    ValidationContext,
    summarize,
    tree_wait_message,
    validate,
    validate_members,
)

PRIORITY_CLASS_FAULTS = frozenset({Fault.PRIORITY_CLASS_UNKNOWN, Fault.PRIORITY_DIVERGES, Fault.CLASS_DIVERGES})
"""Faults that only a process with read access to PriorityClasses can report."""

MAX_PODS_NAMED = 5
"""Pods that a message names where they differ."""


class TreeValidity(Struct, frozen=True):
    """The problems of a tree in one message, empty for a valid tree.

    ``members_differ`` marks the fault that the scheduler reports as SchedulerError. ``knows_classes`` is False where
    priorities could not be checked.
    """

    message: str = ""
    members_differ: bool = False
    knows_classes: bool = True


VALID = TreeValidity()


def initially_scheduled_type(group: Group) -> str:
    """Return the condition type that says whether a group was ever placed."""
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED


def check_tree(
    tree: Tree, pods: Iterable[tuple[GroupKey, Pod]], context: ValidationContext, *, knows_classes: bool = True
) -> TreeValidity:
    """Validate a tree and its members, each with its group, in the scheduler's order.

    A tree without its root only waits, so it is valid. While a tree waits for a template, its members are not checked.
    """
    if tree.anchor is Anchor.MISSING:
        return VALID
    problems = [one for one in validate(tree, context) if knows_classes or one.fault not in PRIORITY_CLASS_FAULTS]
    if problems:
        return TreeValidity(message=summarize([problem.message for problem in problems]))
    if tree_wait_message(tree, context.workloads):
        return TreeValidity(knows_classes=knows_classes)
    living = [(leaf, pod) for leaf, pod in pods if not pod.is_terminal and not pod.is_terminating]
    differing = _divergence([pod for _, pod in living])
    if differing:
        return TreeValidity(message=differing, members_differ=True)
    diverging = validate_members(tree, living, context) if knows_classes else ()
    message = summarize([problem.message for problem in diverging]) if diverging else ""
    return TreeValidity(message=message, knows_classes=knows_classes)


def validity_condition(group: Group, found: TreeValidity) -> Condition | None:
    """Return the condition to write for a group, without its time; None where nothing is to be written."""
    kind = initially_scheduled_type(group)
    current = find_condition(group.status.conditions, kind)
    if current is not None and current.status == "True":
        return None
    reason = current.reason if current is not None else ""
    if not found.message:
        if current is None or reason != REASON_INVALID or _needs_classes(current, found):
            return None
        return _new_condition(group, "Unknown", REASON_PENDING, "Valid again; no scheduling attempt since.")
    if found.members_differ and reason == REASON_SCHEDULER_ERROR:
        return None
    new = _new_condition(group, "False", REASON_INVALID, found.message)
    if current is not None and (current.status, reason, current.message) == ("False", REASON_INVALID, new.message):
        return None
    return new


def _needs_classes(condition: Condition, found: TreeValidity) -> bool:
    """Return whether a message is about priorities, which only a process that reads PriorityClasses may take back."""
    return not found.knows_classes and "priority" in condition.message.lower()


def scheduled_condition(group: Group) -> Condition | None:
    """Return the condition that a group was placed, or None where it says so already. The scheduler may have missed it.

    It has a message, because an apply leaves an empty one out, and the old message would stay.
    """
    current = find_condition(group.status.conditions, initially_scheduled_type(group))
    if current is not None and current.status == "True":
        return None
    return _new_condition(group, "True", REASON_SCHEDULED, "its minimum has been placed")


def _new_condition(group: Group, status: str, reason: str, message: str) -> Condition:
    new = Condition(
        type=initially_scheduled_type(group),
        status=status,
        reason=reason,
        message=message,
        observed_generation=group.metadata.generation,
    )
    return truncate_condition(new)


def _divergence(pods: list[Pod]) -> str:
    """Return a message about a field that all pods of a tree must share and do not."""
    choices: dict[str, Callable[[Pod], str]] = {
        "schedulerName": lambda pod: pod.spec.scheduler_name,
        "preemptionPolicy": lambda pod: pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY,
    }
    for field, chosen in choices.items():
        found = sorted({chosen(pod) for pod in pods})
        if len(found) > 1:
            named, more = found[:MAX_PODS_NAMED], len(found) - MAX_PODS_NAMED
            firsts = ((min(pod.metadata.key for pod in pods if chosen(pod) == value), value) for value in named)
            listed = ", ".join(f"Pod {key} has {value}" for key, value in firsts)
            return f"all pods of a tree need one {field}: {listed}" + (f" (and {more} more)" if more > 0 else "")
    return ""
