"""Writes the one condition that scheduler and operator write in turn: whether the tree is invalid, or was placed.

``cpg_api.validity`` has the rules by which the two never contradict each other. A write goes only over the version that
it was made from, because between two reconciles the scheduler may have written the final True.
"""

import re
from collections.abc import Iterator

from cpg_api.conditions import find_condition, set_condition, status_since
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Anchor, Group
from cpg_api.scheduling.health import HEALTHY, HealthReason
from cpg_api.scheduling.names import EVENT_VALID, REASON_INVALID
from cpg_api.scheduling.statuses import pending_status
from cpg_api.validity import check_tree, initially_scheduled_type, scheduled_condition, validity_condition
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import (
    NOTHING,
    REMEMBERED_SECONDS,
    VALIDATION_MANAGER,
    EventSpec,
    StepResult,
    Verb,
    Write,
)

VARIABLE_TEXT = re.compile(r"\bPod \S+|\d+|s\b")
"""The parts in which two messages about the same fault may differ."""

CONFIRMATION_SECONDS = 5.0
"""For this time a tree has to be healthy before the operator reports in the scheduler's place that it was placed: the
scheduler may have died between its last bind and its report, or a user has erased the status."""


def validate(context: ReconcileContext) -> StepResult:
    """Report on every group that the tree is invalid, or withdraw that; nothing on a tree of another scheduler."""
    if context.is_foreign:
        return _take_back(context)
    found = check_tree(context.tree, context.surroundings, knows_classes=context.knows_classes)
    writes = [
        _write(context, node.group, condition, _event(node.group, condition))
        for node in context.tree.nodes
        if (condition := validity_condition(node.group, found)) is not None
    ]
    if writes or found.message or context.tree.anchor is not Anchor.ROOT:
        return StepResult(writes=tuple(writes))
    return _confirm_placement(context)


def _take_back(context: ReconcileContext) -> StepResult:
    """Undo the reason Invalid on the groups of a tree that has turned out to be foreign.

    A merge removes it whichever of our processes wrote it, and leaves no field manager behind: our API shows its
    default again, without an attempt, the native one nothing. It is done once, because the operator of another kube-cpg
    may say Invalid of its own tree.
    """
    writes = []
    for node in context.tree.nodes:
        kind, conditions = initially_scheduled_type(node.group), node.group.status.conditions or ()
        found = find_condition(conditions, kind)
        if found is None or found.reason != REASON_INVALID:
            continue
        default = pending_status(kind)["conditions"] if context.is_crd else []
        attempt = {"attempt": None} if context.is_crd else {}
        write = Write(
            verb=Verb.MERGE_STATUS,
            resource=context.resource(node.group),
            target=node.group.metadata,
            part="validity",
            body={"conditions": [*(one for one in conditions if one is not found), *default], **attempt},
            unchanged=True,
            once=True,
        )
        writes.append(write)
    return StepResult(writes=tuple(writes), requeue_after=REMEMBERED_SECONDS if writes else None)


def _confirm_placement(context: ReconcileContext) -> StepResult:
    """Report that a tree was placed, where it has its minimum and the scheduler has not reported so."""
    if context.health[0].reason is not HealthReason.MINIMUM_MET:
        return NOTHING
    missing = list(_missing_conditions(context))
    if not missing:
        return NOTHING
    since = status_since(context.tree.root.status.conditions, HEALTHY)
    waited = context.seconds_since(since) if since is not None else 0.0
    if waited < CONFIRMATION_SECONDS:
        return StepResult(requeue_after=CONFIRMATION_SECONDS - waited)
    return StepResult(writes=tuple(_write(context, group, condition, None) for group, condition in missing))


def _missing_conditions(context: ReconcileContext) -> Iterator[tuple[Group, Condition]]:
    for node, health in zip(context.tree.nodes, context.health, strict=True):
        if health.reason is HealthReason.MINIMUM_MET and (condition := scheduled_condition(node.group)) is not None:
            yield node.group, condition


def _write(context: ReconcileContext, group: Group, condition: Condition, event: EventSpec | None) -> Write:
    merged, _ = set_condition(group.status.conditions, condition, context.timestamp)
    return Write(
        verb=Verb.APPLY_STATUS,
        resource=context.resource(group),
        target=group.metadata,
        part="validity",
        body={"conditions": [find_condition(merged, condition.type)]},
        manager=VALIDATION_MANAGER,
        unchanged=True,
        event=event,
    )


def _event(group: Group, condition: Condition) -> EventSpec | None:
    """Return the event about a condition; the same fault with another number or pod gets none."""
    before = find_condition(group.status.conditions, initially_scheduled_type(group))
    if condition.reason == REASON_INVALID:
        if before and before.reason == REASON_INVALID and _fault(before.message) == _fault(condition.message):
            return None
        return EventSpec(reason=REASON_INVALID, note=condition.message, warning=True)
    return EventSpec(reason=EVENT_VALID, note=f"no longer invalid: {before.message}" if before else "valid")


def _fault(message: str) -> str:
    return VARIABLE_TEXT.sub("", message)
