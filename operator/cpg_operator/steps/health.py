"""Writes counts, domain and the condition ``Healthy`` of every group, and ``Partial`` of the root."""

from typing import Any

from cpg_api.conditions import find_condition, merge_conditions
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY, GroupHealth, HealthReason
from cpg_api.scheduling.partial_release import PARTIAL, REASON_BELOW_MINIMUM, read_partial_release
from cpg_api.scheduling.podgroup import PodGroup
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import StepResult, Verb, Write


def report_health(context: ReconcileContext) -> StepResult:
    """Return the writes that bring the status of every group up to date."""
    writes = (
        _write(context, node.group, health, is_top=place == 0)
        for place, (node, health) in enumerate(zip(context.tree.nodes, context.health, strict=True))
    )
    return StepResult(writes=tuple(write for write in writes if write is not None))


def _write(context: ReconcileContext, group: Group, health: GroupHealth, *, is_top: bool) -> Write | None:
    """Return the write that brings the status of a group up to date, or None.

    What we applied is removed by the next apply without it. Anything left after that belongs to another manager, and is
    removed from exactly the version in which it was seen.
    """
    wanted = [_healthy(group, health)]
    if is_top and health.reason is HealthReason.PARTIAL:
        wanted.append(_partial(group, health, context.partial_after))
    merged, _ = merge_conditions(group.status.conditions, wanted, context.timestamp)
    conditions = [find_condition(merged, one.type) for one in wanted]
    surplus = _surplus(group, health, wants_partial=len(wanted) > 1)
    is_current = all(one in (group.status.conditions or ()) for one in conditions)
    is_current = is_current and (not context.is_crd or _has_counts(group, health))
    if is_current and not surplus:
        return None
    return Write(
        verb=Verb.MERGE_STATUS if is_current else Verb.APPLY_STATUS,
        resource=context.resource(group),
        target=group.metadata,
        part="health",
        body=surplus if is_current else {"conditions": conditions, **(_counts(health) if context.is_crd else {})},
        unchanged=is_current,
    )


def _surplus(group: Group, health: GroupHealth, *, wants_partial: bool) -> dict[str, Any]:
    """Return the merge that removes what should not be in the status of a group."""
    status, found = group.status, dict[str, Any]()
    if not wants_partial and find_condition(status.conditions, PARTIAL) is not None:
        found["conditions"] = [one for one in status.conditions or () if one.type != PARTIAL]
    if health.domain is None and status.domain is not None:
        found["domain"] = None
    return found


def _healthy(group: Group, health: GroupHealth) -> Condition:
    return Condition(
        type=HEALTHY,
        status="True" if health.reason is HealthReason.MINIMUM_MET else "False",
        reason=health.reason,
        message=health.message,
        observed_generation=group.metadata.generation,
    )


def _partial(group: Group, health: GroupHealth, default: float) -> Condition:
    release = read_partial_release(group, default)
    policy = release.problem or (
        f"the pods that hold nodes are deleted after {release.after_seconds:.0f} s"
        if release.after_seconds is not None
        else "the scheduler keeps trying to complete it"
    )
    return Condition(
        type=PARTIAL,
        status="True",
        reason=REASON_BELOW_MINIMUM,
        message=f"{health.message}; {policy}",
        observed_generation=group.metadata.generation,
    )


def _has_counts(group: Group, health: GroupHealth) -> bool:
    """Return whether the status has these counts, and the domain where there is one."""
    status = group.status
    groups = None if isinstance(group, PodGroup) else group.status.groups
    domain = status.domain if health.domain is not None else None
    return (status.pods, groups, domain) == (health.pods, health.groups, health.domain)


def _counts(health: GroupHealth) -> dict[str, Any]:
    """Return counts and domain with their zeros, which the encoder would omit and kubectl would show as blanks."""
    pods, groups = health.pods, health.groups
    counted: dict[str, Any] = {"pods": {"desired": pods.desired, "scheduled": pods.scheduled, "running": pods.running}}
    if groups is not None:
        counted["groups"] = {"desired": groups.desired, "ready": groups.ready}
    if health.domain is not None:
        counted["domain"] = health.domain
    return counted
