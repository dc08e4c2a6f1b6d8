"""Change conditions by the rules of apimachinery's ``meta.SetStatusCondition``, for groups and pods alike.

The transition time is when the status last changed, not when it was last written. A controller that repeats a condition
changes nothing, and its caller sees that there is nothing to send.
"""

import datetime as dt
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from cpg_api.core.pod import PodCondition
from cpg_api.meta import Condition
from cpg_api.problems import truncate
from cpg_api.scheduling.names import COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED, POD_GROUP_INITIALLY_SCHEDULED

AnyCondition = TypeVar("AnyCondition", bound=Condition | PodCondition)

FINAL_ONCE_TRUE = frozenset({POD_GROUP_INITIALLY_SCHEDULED, COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED})
"""Conditions that stay True: what happens later cannot undo that a group was placed once."""

MAX_MESSAGE_LENGTH = 32_768
"""Characters of a message. The API server refuses a whole status that has a longer one."""


def find_condition(conditions: Iterable[AnyCondition] | None, kind: str) -> AnyCondition | None:
    """Return the condition of a type."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def status_since(conditions: Iterable[Condition] | None, kind: str, status: str = "True") -> float | None:
    """Return when a condition took this status, in seconds of the epoch; None where it has another or is missing."""
    condition = find_condition(conditions, kind)
    if condition is None or condition.status != status or condition.last_transition_time is None:
        return None
    try:
        return dt.datetime.fromisoformat(condition.last_transition_time).timestamp()
    except ValueError:
        return None


def set_condition(
    conditions: tuple[AnyCondition, ...] | None, new: AnyCondition, now: str
) -> tuple[tuple[AnyCondition, ...], bool]:
    """Return the conditions with the new one in its place, and whether that changed anything.

    ``now`` becomes the transition time where the status changes and the new condition has no time of its own. A message
    that is too long for the API server is truncated.
    """
    new = truncate_condition(new)
    before: tuple[AnyCondition, ...] = conditions or ()
    current = find_condition(before, new.type)
    if current is None:
        return (*before, _stamped(new, now)), True
    if _regresses(current, new):
        return before, False
    if current.status == new.status:
        successor = replace(new, last_transition_time=current.last_transition_time)
    else:
        successor = _stamped(new, now)
    if successor == current:
        return before, False
    place = before.index(current)
    return (*before[:place], successor, *before[place + 1 :]), True


def merge_conditions(
    conditions: tuple[AnyCondition, ...] | None, new_conditions: Iterable[AnyCondition], now: str
) -> tuple[tuple[AnyCondition, ...], bool]:
    """Set several conditions one after the other; return them and whether any of them changed."""
    merged: tuple[AnyCondition, ...] = conditions or ()
    changed = False
    for new in new_conditions:
        merged, one_changed = set_condition(merged, new, now)
        changed = changed or one_changed
    return merged, changed


def truncate_condition(new: AnyCondition) -> AnyCondition:
    """Return the condition with a message that the API server accepts."""
    return (
        replace(new, message=truncate(new.message, MAX_MESSAGE_LENGTH))
        if len(new.message) > MAX_MESSAGE_LENGTH
        else new
    )


def _stamped(new: AnyCondition, now: str) -> AnyCondition:
    return replace(new, last_transition_time=new.last_transition_time or now)


def _regresses(current: AnyCondition, new: AnyCondition) -> bool:
    return current.type in FINAL_ONCE_TRUE and current.status == "True" != new.status
