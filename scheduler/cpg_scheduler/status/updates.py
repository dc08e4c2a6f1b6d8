"""What the scheduler reports about pods and groups, as values; the status writer turns them into conditions and events.

An update names its cause beside its message. The message has the numbers of this moment, the cause stays the same while
they change.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.verdicts import Explanation
from cpg_scheduler.binding.batch import BindFailure
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.outlook import PreemptionOutlook
from cpg_scheduler.status.attempts import AttemptResult, search_result
from cpg_scheduler.status.messages.attempts import (
    causes,
    failure_reasons,
    group_messages,
    internal_error_message,
    invalid_pod_messages,
    pod_messages,
)
from cpg_scheduler.status.messages.binding import bind_problem_text
from cpg_scheduler.status.messages.preemption import preemption_cause, preemption_message
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.status.reasons import REASON_INVALID, REASON_SCHEDULER_ERROR
from cpg_scheduler.units import SchedulableUnit


class PodStatusUpdate(Struct, frozen=True):
    """Why a pod is not scheduled.

    The condition of a pod that ``is_nominated`` is written in the same request as its nomination. The update holds as
    long as the pod has no node or, ``while_binding``, as long as its bind is in flight.
    """

    pod: Pod
    reason: str
    message: str
    cause: str = ""
    is_nominated: bool = False
    while_binding: bool = False


class GroupStatusUpdate(Struct, frozen=True):
    """Whether the minimum of a group is placed, and if not, why; with the attempt that has found this."""

    group: Group
    scheduled: bool
    attempt: AttemptResult
    reason: str = ""
    message: str = ""
    cause: str = ""


class GroupRecovered(Struct, frozen=True):
    """A group of a unit was evicted as a whole and has its minimum again; checked once more before it is written."""

    group: Group
    unit: UnitKey


StatusUpdate: TypeAlias = PodStatusUpdate | GroupStatusUpdate | GroupRecovered | OvercommittedNode


def attempt_updates(
    unit: SchedulableUnit,
    explanation: Explanation,
    unplaced: Mapping[str, GroupKey | None],
    *,
    outlook: PreemptionOutlook | None = None,
    nominated: Collection[str] = (),
    number: int | None = None,
) -> Iterator[StatusUpdate]:
    """Yield what an attempt has found: for each pod that was not placed, and each group below its minimum.

    ``unplaced`` are pods by UID, each with its PodGroup. ``outlook`` is what preemption does about it, ``number`` that
    of the attempt.
    """
    reasons = failure_reasons(explanation)
    preemption = preemption_message(outlook)
    messages, invalid = pod_messages(explanation, preemption), invalid_pod_messages(explanation)
    why = causes(explanation, preemption_cause(outlook))
    for uid, group in unplaced.items():
        key = group or explanation.reports[0].key  # of a pod without a group there is one report
        own = invalid.get(uid)
        yield PodStatusUpdate(
            unit.pods[uid],
            REASON_INVALID if own else reasons[key],
            own or messages[key],
            cause=own or why[key],
            is_nominated=uid in nominated,
        )
    about_groups, result = group_messages(explanation, preemption), search_result(explanation, outlook, number)
    for found in unit.groups:
        key = key_of(found)
        message = about_groups.get(key)
        if message:
            yield _failure(found, result, reasons[key], message, why[key])


def bind_updates(
    unit: SchedulableUnit,
    failure: BindFailure,
    concerned: Collection[GroupKey],
    *,
    number: int,
    while_binding: bool,
) -> Iterator[StatusUpdate]:
    """Yield why pods that have been given a node are not bound to it, or not yet, for them and the groups concerned."""
    if failure.problem is None:
        return
    reason, message, cause = bind_problem_text(failure.problem)
    for uid in failure.uids:
        yield PodStatusUpdate(unit.pods[uid], reason, message, cause=cause, while_binding=while_binding)
    result = AttemptResult(number, problem=failure.problem)
    for group in unit.groups:
        if key_of(group) in concerned:
            yield _failure(group, result, reason, message, cause)


def inadmissible_updates(unit: Inadmissible, number: int) -> Iterator[StatusUpdate]:
    """Yield why a unit cannot be attempted, for its pods and groups; gated pods have a condition of the API server."""
    text = inadmissible_text(unit.problem)
    for pod in unit.pods:
        if not pod.spec.scheduling_gates:
            yield PodStatusUpdate(pod, text.reason, text.pod_message, cause=text.cause)
    yield from inadmissible_groups(unit, number)


def inadmissible_groups(unit: Inadmissible, number: int | None = None) -> Iterator[StatusUpdate]:
    """Yield why a unit cannot be attempted, for its groups alone."""
    reason, message, _, cause = inadmissible_text(unit.problem)
    result = AttemptResult(number, problem=unit.problem)
    for group in unit.groups:
        yield _failure(group, result, reason, message, cause)


def error_updates(pods: Iterable[Pod], groups: Iterable[Group], error: Exception) -> Iterator[StatusUpdate]:
    """Yield that the scheduler itself failed at a unit, for its pods and groups."""
    message, result = internal_error_message(error), AttemptResult(problem=error)
    for pod in pods:
        yield PodStatusUpdate(pod, REASON_SCHEDULER_ERROR, message)
    for group in groups:
        yield _failure(group, result, REASON_SCHEDULER_ERROR, message)


def _failure(group: Group, attempt: AttemptResult, reason: str, message: str, cause: str = "") -> GroupStatusUpdate:
    return GroupStatusUpdate(group, scheduled=False, attempt=attempt, reason=reason, message=message, cause=cause)
