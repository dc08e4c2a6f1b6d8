"""What is said of a tree's validity, by the operator about every group of it, and what it takes back.

Two processes write the condition ``…InitiallyScheduled``: the scheduler after attempts, the operator about structure.
So that they never take turns, the operator keeps to this:

1. It says Invalid in the scheduler's very words, and writes only where they do not stand yet.
2. It takes back Invalid alone, once the tree is valid; all other reasons are the scheduler's.
3. Where members name different schedulers or preemption policies, a SchedulerError that stands is left standing: the
   scheduler has found the same and calls it so.
4. True is final.
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
"""What can only be said by who sees the priority classes."""

MAX_PODS_NAMED = 5
"""Pods that are named where they differ; each may do so in its own way."""


class TreeValidity(Struct, frozen=True):
    """What is wrong with a tree, or an empty message; ``differs`` where the scheduler has a word of its own for it.

    ``knows_classes`` tells whether priorities were looked at.
    """

    message: str = ""
    members_differ: bool = False
    knows_classes: bool = True


VALID = TreeValidity()


def initially_scheduled_type(group: Group) -> str:
    """Return the type of the condition that says whether a group was ever placed."""
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED


def check_tree(
    tree: Tree, pods: Iterable[tuple[GroupKey, Pod]], context: ValidationContext, *, knows_classes: bool = True
) -> TreeValidity:
    """Judge a tree and its members, each with its group, in the order in which the scheduler does.

    A tree without its top only waits; one that waits for a template has no members to be judged yet.
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
    """Return the condition to write of a group, or None where what stands may stand; its time is for the caller."""
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


def _needs_classes(said: Condition, found: TreeValidity) -> bool:
    """Tell whether it was said by somebody who sees the priority classes, and is theirs to take back."""
    return not found.knows_classes and "priority" in said.message.lower()


def scheduled_condition(group: Group) -> Condition | None:
    """Return that a group was placed, unless that stands already: for where the scheduler could not say so.

    With a message, because an empty one is left out when applied, and the one that stood would go on standing.
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
    """Say in what the pods of a tree differ that they must have in common."""
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
