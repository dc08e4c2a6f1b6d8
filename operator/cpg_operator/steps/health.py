"""How does the tree fare? Counts, domains and the condition ``Healthy`` of every group, ``Partial`` of the root."""

from typing import Any

from cpg_api.conditions import find_condition, merge_conditions
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY, Health, Standing
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.repairing import PARTIAL, REASON_BELOW_MINIMUM, chosen_release
from cpg_operator.scenes import Scene
from cpg_operator.writes import Outcome, Verb, Write


def report(scene: Scene) -> Outcome:
    """Bring the status of every group to what is so now."""
    writes = []
    for place, (node, standing) in enumerate(zip(scene.tree.nodes, scene.standings, strict=True)):
        group = node.group
        wanted = [_healthy(group, standing)]
        if place == 0 and standing.health is Health.PARTIAL:
            wanted.append(_partial(group, standing, scene.partial_after))
        merged, _ = merge_conditions(group.status.conditions, wanted, scene.stamp)
        conditions = [find_condition(merged, one.type) for one in wanted]
        has_partial = find_condition(group.status.conditions, PARTIAL) is not None
        if (
            all(one in (group.status.conditions or ()) for one in conditions)
            and has_partial == (len(wanted) > 1)
            and (not scene.ours or _stands(group, standing))
        ):
            continue
        body = {"conditions": conditions, **(_counts(standing) if scene.ours else {})}
        writes.append(
            Write(
                verb=Verb.APPLY_STATUS,
                resource=scene.resource(group),
                target=group.metadata,
                part="health",
                body=body,
            )
        )
    return Outcome(writes=tuple(writes))


def _healthy(group: Group, standing: Standing) -> Condition:
    return Condition(
        type=HEALTHY,
        status="True" if standing.health is Health.MINIMUM_MET else "False",
        reason=standing.health,
        message=standing.message,
        observed_generation=group.metadata.generation,
    )


def _partial(group: Group, standing: Standing, default: float) -> Condition:
    release = chosen_release(group, default)
    policy = release.problem or (
        f"the pods that hold nodes are released after {release.after:.0f} s"
        if release.after is not None
        else "the scheduler goes on trying to complete it"
    )
    return Condition(
        type=PARTIAL,
        status="True",
        reason=REASON_BELOW_MINIMUM,
        message=f"{standing.message}; {policy}",
        observed_generation=group.metadata.generation,
    )


def _stands(group: Group, standing: Standing) -> bool:
    """Tell whether counts and domain are in the status already."""
    status = group.status
    groups = None if isinstance(group, PodGroup) else group.status.groups
    return (status.pods, groups, status.domain) == (standing.pods, standing.groups, standing.domain)


def _counts(standing: Standing) -> dict[str, Any]:
    """Spell counts and domain out: encoded as they are, they would leave their zeros out, and kubectl show blanks."""
    pods, groups = standing.pods, standing.groups
    counted: dict[str, Any] = {"pods": {"desired": pods.desired, "scheduled": pods.scheduled, "running": pods.running}}
    if groups is not None:
        counted["groups"] = {"desired": groups.desired, "ready": groups.ready}
    if standing.domain is not None:
        counted["domain"] = standing.domain
    return counted
