"""The condition ``…InitiallyScheduled`` of invalid trees, as the operator writes it.

Two processes write this condition: the scheduler after attempts, the operator about faults between groups. What is
wrong with pods is the scheduler's finding alone. The operator follows three rules, so that the two never overwrite
each other in turns:

1. It uses the scheduler's message for Invalid, and does not repeat a message that is already there.
2. It takes back the reason Invalid alone, once the groups are valid. All other reasons are the scheduler's.
3. A status of True is final.
"""

from msgspec import Struct

from cpg_api.conditions import find_condition, truncate_condition
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Anchor, Group, Tree
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    REASON_INVALID,
    REASON_PENDING,
    REASON_SCHEDULED,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.validation import Fault, ValidationContext, summarize, validate

PRIORITY_CLASS_FAULTS = frozenset(
    {Fault.PRIORITY_CLASS_UNKNOWN, Fault.PRIORITY_DIVERGES, Fault.PRIORITY_CLASS_DIVERGES, Fault.CLASS_DIVERGES}
)
"""Faults that only a process with read access to PriorityClasses can report."""


class TreeValidity(Struct, frozen=True):
    """The problems of a tree in one message, empty for a valid tree.

    ``knows_classes`` is False where priorities could not be checked.
    """

    message: str = ""
    knows_classes: bool = True


VALID = TreeValidity()


def initially_scheduled_type(group: Group) -> str:
    """Return the condition type that says whether a group was ever placed."""
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED


def check_tree(tree: Tree, context: ValidationContext, *, knows_classes: bool = True) -> TreeValidity:
    """Validate the groups of a tree. A tree without its root only waits, so it is valid."""
    if tree.anchor is Anchor.MISSING:
        return VALID
    problems = [one for one in validate(tree, context) if knows_classes or one.fault not in PRIORITY_CLASS_FAULTS]
    message = summarize([problem.message for problem in problems]) if problems else ""
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
