"""Is the tree valid, and was it placed? The one condition that scheduler and operator write in turn.

``cpg_api.validity`` has the rules by which the two never fight. A write goes only over the very state that it
was made from, because between two looks the scheduler may have said the final True.
"""

import re
from collections.abc import Iterator

from cpg_api.conditions import find_condition, set_condition, status_since
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Anchor, Group
from cpg_api.scheduling.health import HEALTHY, HealthReason
from cpg_api.scheduling.names import EVENT_VALID, REASON_INVALID
from cpg_api.validity import check_tree, initially_scheduled_type, scheduled_condition, validity_condition
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import NOTHING, VALIDATION, EventSpec, StepResult, Verb, Write

PASSING = re.compile(r"\bPod \S+|\d+|s\b")
"""What words about the same fault may differ in."""
GRACE = 5.0
"""Seconds for which a tree has been healthy before it is said for the scheduler that it was placed: it may have died
between its last bind and its report, or the status may have been erased by hand."""


def judge(scene: ReconcileContext) -> StepResult:
    """Say of every group that the tree is invalid, or take that back."""
    found = check_tree(scene.tree, scene.pods(), scene.surroundings, knows_classes=scene.knows_classes)
    writes = [
        _write(scene, node.group, condition, _word(node.group, condition))
        for node in scene.tree.nodes
        if (condition := validity_condition(node.group, found)) is not None
    ]
    if writes or found.message or scene.tree.anchor is not Anchor.ROOT:
        return StepResult(writes=tuple(writes))
    return _confirmed(scene)


def _confirmed(scene: ReconcileContext) -> StepResult:
    """Say that a tree was placed which is whole and of which nobody has said so."""
    if scene.standings[0].reason is not HealthReason.MINIMUM_MET:
        return NOTHING
    unsaid = list(_unsaid(scene))
    if not unsaid:
        return NOTHING
    since = status_since(scene.tree.root.status.conditions, HEALTHY)
    waited = scene.now - since if since is not None else 0.0
    if waited < GRACE:
        return StepResult(again_in=GRACE - waited)
    return StepResult(writes=tuple(_write(scene, group, condition, None) for group, condition in unsaid))


def _unsaid(scene: ReconcileContext) -> Iterator[tuple[Group, Condition]]:
    for node, standing in zip(scene.tree.nodes, scene.standings, strict=True):
        if standing.reason is HealthReason.MINIMUM_MET and (condition := scheduled_condition(node.group)) is not None:
            yield node.group, condition


def _write(scene: ReconcileContext, group: Group, condition: Condition, word: EventSpec | None) -> Write:
    merged, _ = set_condition(group.status.conditions, condition, scene.stamp)
    return Write(
        verb=Verb.APPLY_STATUS,
        resource=scene.resource(group),
        target=group.metadata,
        part="validity",
        body={"conditions": [find_condition(merged, condition.type)]},
        manager=VALIDATION,
        unchanged=True,
        word=word,
    )


def _word(group: Group, condition: Condition) -> EventSpec | None:
    """Return the event about a verdict; another number, or another pod of the same sort, is none."""
    before = find_condition(group.status.conditions, initially_scheduled_type(group))
    if condition.reason == REASON_INVALID:
        if before and before.reason == REASON_INVALID and _gist(before.message) == _gist(condition.message):
            return None
        return EventSpec(reason=REASON_INVALID, note=condition.message, warning=True)
    return EventSpec(reason=EVENT_VALID, note=f"no longer invalid: {before.message}" if before else "valid")


def _gist(message: str) -> str:
    return PASSING.sub("", message)
