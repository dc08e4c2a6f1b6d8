"""How does the tree fare? Counts, domains and the condition ``Healthy`` of every group, ``Partial`` of the root."""

from typing import Any

from cpg_api.conditions import find_condition, merge_conditions
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY, GroupHealth, HealthReason
from cpg_api.scheduling.partial_release import PARTIAL, REASON_BELOW_MINIMUM, read_partial_release
from cpg_api.scheduling.podgroup import PodGroup
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import StepResult, Verb, Write


def report(scene: ReconcileContext) -> StepResult:
    """Bring the status of every group to what is so now."""
    writes = (
        _due(scene, node.group, standing, is_top=place == 0)
        for place, (node, standing) in enumerate(zip(scene.tree.nodes, scene.standings, strict=True))
    )
    return StepResult(writes=tuple(write for write in writes if write is not None))


def _due(scene: ReconcileContext, group: Group, standing: GroupHealth, *, is_top: bool) -> Write | None:
    """Return what brings the status of a group to what is so.

    What we applied goes with the next apply that leaves it out; what stands on after it is somebody else's, and taken
    away from the very state in which it was seen.
    """
    wanted = [_healthy(group, standing)]
    if is_top and standing.reason is HealthReason.PARTIAL:
        wanted.append(_partial(group, standing, scene.partial_after))
    merged, _ = merge_conditions(group.status.conditions, wanted, scene.stamp)
    conditions = [find_condition(merged, one.type) for one in wanted]
    surplus = _surplus(group, standing, wants_partial=len(wanted) > 1)
    stands = all(one in (group.status.conditions or ()) for one in conditions)
    stands = stands and (not scene.ours or _counts_stand(group, standing))
    if stands and not surplus:
        return None
    return Write(
        verb=Verb.MERGE_STATUS if stands else Verb.APPLY_STATUS,
        resource=scene.resource(group),
        target=group.metadata,
        part="health",
        body=surplus if stands else {"conditions": conditions, **(_counts(standing) if scene.ours else {})},
        unchanged=stands,
    )


def _surplus(group: Group, standing: GroupHealth, *, wants_partial: bool) -> dict[str, Any]:
    """Return what is in the status of a group and should not be, as a merge would take it away."""
    status, found = group.status, dict[str, Any]()
    if not wants_partial and find_condition(status.conditions, PARTIAL) is not None:
        found["conditions"] = [one for one in status.conditions or () if one.type != PARTIAL]
    if standing.domain is None and status.domain is not None:
        found["domain"] = None
    return found


def _healthy(group: Group, standing: GroupHealth) -> Condition:
    return Condition(
        type=HEALTHY,
        status="True" if standing.reason is HealthReason.MINIMUM_MET else "False",
        reason=standing.reason,
        message=standing.message,
        observed_generation=group.metadata.generation,
    )


def _partial(group: Group, standing: GroupHealth, default: float) -> Condition:
    release = read_partial_release(group, default)
    policy = release.problem or (
        f"the pods that hold nodes are released after {release.after_seconds:.0f} s"
        if release.after_seconds is not None
        else "the scheduler goes on trying to complete it"
    )
    return Condition(
        type=PARTIAL,
        status="True",
        reason=REASON_BELOW_MINIMUM,
        message=f"{standing.message}; {policy}",
        observed_generation=group.metadata.generation,
    )


def _counts_stand(group: Group, standing: GroupHealth) -> bool:
    """Tell whether counts are in the status already, and the domain, where there is one."""
    status = group.status
    groups = None if isinstance(group, PodGroup) else group.status.groups
    domain = status.domain if standing.domain is not None else None
    return (status.pods, groups, domain) == (standing.pods, standing.groups, standing.domain)


def _counts(standing: GroupHealth) -> dict[str, Any]:
    """Spell counts and domain out: encoded as they are, they would leave their zeros out, and kubectl show blanks."""
    pods, groups = standing.pods, standing.groups
    counted: dict[str, Any] = {"pods": {"desired": pods.desired, "scheduled": pods.scheduled, "running": pods.running}}
    if groups is not None:
        counted["groups"] = {"desired": groups.desired, "ready": groups.ready}
    if standing.domain is not None:
        counted["domain"] = standing.domain
    return counted
