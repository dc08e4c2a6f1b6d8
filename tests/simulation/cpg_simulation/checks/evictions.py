"""Which pods the scheduler may evict, and that units are evicted as a whole."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.names import DISRUPTION_TARGET
from cpg_api.scheduling.podgroup import PodGroup
from cpg_simulation.checks.changes import SCHEDULER, Change
from cpg_simulation.checks.cluster import ObservedCluster, TrackedPod
from cpg_simulation.checks.values import Expectation, Finding, Object, Rule, SentRequest

Findings = Iterator[Finding | Expectation]
_PREEMPTOR = re.compile(r"\S+: preempting to accommodate a higher priority (\w+) (\S+) (\S+)")
_POD = re.compile(r"/api/v1/namespaces/([^/]+/)pods/([^/]+)(?:/status)?")
NEVER = "Never"
WHOLE_UNIT_SECONDS = 60.0


class PreemptorName(NamedTuple):
    """The preemptor that a condition names."""

    kind: str
    name: str
    uid: str


def preemptor_of(conditions: list[Object]) -> PreemptorName | None:
    """Return for which preemptor an object says that it is evicted; None if it says nothing of the kind."""
    for condition in conditions:
        if condition["type"] == DISRUPTION_TARGET and condition["status"] == "True":
            match = _PREEMPTOR.fullmatch(condition.get("message", ""))
            return PreemptorName(*match.groups()) if match else None
    return None


def victim_of(request: SentRequest) -> str:
    """Return the name of the pod that a request deletes, or marks as a victim; empty for another request."""
    found = _POD.fullmatch(request.path)
    if found is None or request.method not in {"DELETE", "PATCH"}:
        return ""
    if request.method == "PATCH":
        conditions = json.loads(request.body).get("status", {}).get("conditions", [])
        if preemptor_of(conditions) is None:
            return ""
    return "".join(found.groups())


def _marked_first(change: Change) -> Findings:
    """Yield that a deleted pod named no preemptor; a restore of etcd may have taken back that it did."""
    pod = change.evicted
    if pod is not None and not change.is_outdated and preemptor_of(_conditions_before(change)) is None:
        yield Finding((str(pod),), f"{pod} is deleted by the scheduler, and its conditions name no preemptor")


def _only_lower_priority(change: Change) -> Findings:
    """Yield that a pod is marked or deleted for a preemptor without a higher priority."""
    pod, marked = change.evicted, newly_marked(change)
    found = preemptor_of(_conditions_before(change)) if pod is not None else marked
    if found is None or change.pod is None:
        return
    priority = change.cluster.priorities.get(found.uid)
    if priority is not None and change.pod.priority >= priority:
        yield Finding(
            (str(change.pod), f"{found.kind} {found.name}"),
            f"{change.pod} of priority {change.pod.priority} is evicted for {found.kind} {found.name} of {priority}",
        )


def _never_preempts(change: Change) -> Findings:
    """Yield that a pod is marked for a preemptor that never preempts."""
    found = newly_marked(change)
    if found is None or change.pod is None:
        return
    refusing = _refusing(change, found)
    if refusing:
        yield Finding(
            (str(change.pod), refusing),
            f"{change.pod} is evicted for {found.kind} {found.name}, and {refusing} never preempts",
        )


def _refusing(change: Change, found: PreemptorName) -> str:
    """Return what of a preemptor has the policy Never, as far as the scheduler knew it."""
    cluster = change.cluster
    for group in (group for store in cluster.stores.values() for group in store):
        if group.metadata.uid == found.uid and group.spec.preemption_policy == NEVER:
            return str(key_of(group))
    for pod in cluster.pods.values():
        is_of_preemptor = pod.pod.metadata.uid == found.uid or root_uid(cluster, pod) == found.uid
        is_known = cluster.is_pending(pod) and change.view.sees("pods", pod.created_at)
        if is_of_preemptor and is_known and pod.pod.spec.preemption_policy == NEVER:
            return str(pod)
    return ""


def root_uid(cluster: ObservedCluster, pod: TrackedPod) -> str:
    """Return the UID of the highest group of a pod; empty for a pod without a group."""
    above = cluster.groups_above(pod)
    return above[-1].metadata.uid if above else ""


def _units_go_whole(change: Change) -> Findings:
    """Expect that the other pods of a unit follow one that is evicted.

    Pods that join the unit later may stay. So may all where the leader has changed while each group had its minimum
    without those that were evicted: the next leader finds no trace of the eviction then.
    """
    pod = change.evicted
    if pod is None:
        return
    unit = change.cluster.unit_of(pod)
    rest = [
        UnitPod(other, other.pod.metadata.uid, other.group, _minimum_of(change.cluster, other))
        for other in unit
        if other is not pod and other.takes_room and change.view.sees("pods", other.bound_at)
    ]
    if rest:
        yield Expectation(WHOLE_UNIT_SECONDS, lambda: _left_over(change, pod, rest))


class UnitPod(NamedTuple):
    """A pod of a unit, as it was when another one was evicted."""

    pod: TrackedPod
    uid: str
    group: GroupKey | None
    minimum: int
    """The minimum of its group then."""


def _left_over(change: Change, pod: TrackedPod, rest: list[UnitPod]) -> Finding | None:
    """Return which pods of a unit are still there although one of them was evicted, and their eviction not refused."""
    cluster, lease = change.cluster, change.leases.state(SCHEDULER, float("inf"))
    there = [one for one in rest if _still_runs(cluster, one.pod, one.uid)]
    if lease.holder != change.process and all(_had_minimum(cluster, one, rest, lease.revision) for one in there):
        return None
    staying = [one.pod for one in there]
    if not staying:
        return None
    names = ", ".join(map(str, staying))
    return Finding((str(pod), *map(str, staying)), f"{pod} was evicted, and of its unit {names} still run")


def _still_runs(cluster: ObservedCluster, pod: TrackedPod, uid: str) -> bool:
    is_there = cluster.pods.get(pod.name) is pod and pod.pod.metadata.uid == uid
    return is_there and pod.takes_room and not pod.is_deleting and uid not in cluster.refused_victims


def _minimum_of(cluster: ObservedCluster, pod: TrackedPod) -> int:
    """Return the minimum of the PodGroup of a pod; 0 where there is none."""
    above = cluster.groups_above(pod)
    return above[0].minimum if above and isinstance(above[0], PodGroup) and pod.group is not None else 0


def _had_minimum(cluster: ObservedCluster, one: UnitPod, rest: list[UnitPod], revision: int) -> bool:
    """Return whether the PodGroup of a pod had its minimum at a revision; later a user may have changed it."""
    minimum = min(one.minimum, _minimum_of(cluster, one.pod))
    members = {other.pod for other in rest if other.group == one.group}
    if one.group is not None:
        members.update(other for other in cluster.members(one.group) if other.node and other.bound_at <= revision)
    return sum(member.left_at > revision for member in members) >= minimum


def newly_marked(change: Change) -> PreemptorName | None:
    """Return the preemptor for which this write of the scheduler marks a pod; None if it marks none."""
    if change.pod is None or change.role != SCHEDULER or change.write.new is None or change.write.old is None:
        return None
    found = preemptor_of(change.pod.conditions())
    return None if found == preemptor_of(_conditions_before(change)) else found


def _conditions_before(change: Change) -> list[Object]:
    return (change.write.old or {}).get("status", {}).get("conditions") or []


MARKED_FIRST = Rule(
    name="Victims are marked before they are deleted",
    promise="The scheduler deletes a pod only after its condition DisruptionTarget has named the preemptor.",
    check=_marked_first,
)
ONLY_LOWER_PRIORITY = Rule(
    name="Only lower priorities are evicted",
    promise="No pod of equal or higher priority is marked or deleted for a preemptor.",
    check=_only_lower_priority,
)
NEVER_PREEMPTS = Rule(
    name="The policy Never is respected",
    promise="No pod is marked if the root or a pod of the preemptor has the preemptionPolicy Never.",
    check=_never_preempts,
)
UNITS_GO_WHOLE = Rule(
    name="Units are evicted as a whole",
    promise=(
        f"When a pod of a unit is evicted, the others follow within {WHOLE_UNIT_SECONDS:g} s, unless theirs is refused."
    ),
    check=_units_go_whole,
    seconds=WHOLE_UNIT_SECONDS,
)
