"""What has to hold of pods at the end of a night: what fits is bound, and what waits says why."""

from collections.abc import Iterator

from cpg_api.scheduling.names import (
    DISRUPTION_TARGET,
    POD_SCHEDULED,
    REASON_INVALID,
    REASON_PLACEMENT_NOT_FOUND,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
    REASON_WAITING_FOR_GROUP,
)
from cpg_scheduler.preemption.planner import REFUSED_VICTIM_TTL_SECONDS
from cpg_scheduler.status.reasons import REASON_BIND_IN_DOUBT, REASON_WAITING_FOR_DEVICES, REASON_WAITING_FOR_VOLUMES
from cpg_simulation.checks.cluster import ObservedCluster, TrackedPod
from cpg_simulation.checks.evictions import preemptor_of
from cpg_simulation.checks.group_states import condition_of
from cpg_simulation.checks.night_end import QUIET_SECONDS, NightEnd
from cpg_simulation.checks.second_opinion import agree
from cpg_simulation.checks.values import Finding, Object, Rule

REASONS = frozenset(
    {
        REASON_UNSCHEDULABLE,
        REASON_WAITING_FOR_GROUP,
        REASON_PLACEMENT_NOT_FOUND,
        REASON_SCHEDULER_ERROR,
        REASON_WAITING_FOR_VOLUMES,
        REASON_WAITING_FOR_DEVICES,
        REASON_BIND_IN_DOUBT,
        REASON_INVALID,
    }
)


def _what_fits_is_bound(end: NightEnd) -> Iterator[Finding]:
    """Yield the units of which a scheduler that starts now would bind pods."""
    for unit, binds in end.opinion.binds.items():
        yield Finding((unit, *binds), f"{unit} waits, and a scheduler that starts now would bind {', '.join(binds)}")


def _preemptors_evict(end: NightEnd) -> Iterator[Finding]:
    """Yield the units for which a scheduler that starts now would evict pods."""
    for unit, victims in end.opinion.evictions.items():
        yield Finding(
            (unit, *victims), f"{unit} waits, and a scheduler that starts now would evict {', '.join(victims)} for it"
        )


def _pending_pods_say_why(end: NightEnd) -> Iterator[Finding]:
    """Yield the pending pods without a reason and a message, or with another reason than a new scheduler would give."""
    for pod in filter(end.cluster.is_pending, end.cluster.pods.values()):
        if pod.pod.spec.scheduling_gates:
            continue
        condition = condition_of(pod.conditions(), POD_SCHEDULED)
        problem = _problem(condition) if condition is not None else "has no condition PodScheduled"
        expected = end.opinion.pods.get(pod.name)
        if not (problem or expected is None or condition is None or agree(condition["reason"], expected.reason)):
            problem = (
                f"says {condition['reason']} ({condition['message']}), and a scheduler that starts now would say"
                f" {expected.reason} ({expected.message})"
            )
        if problem:
            yield Finding((str(pod),), f"{pod} is pending and {problem}")


def _problem(condition: Object) -> str:
    """Return what is wrong with the condition of a pending pod by itself."""
    if condition["status"] != "False":
        return f"says PodScheduled={condition['status']}"
    if condition.get("reason") not in REASONS:
        return f"has the reason {condition.get('reason')!r}, which is none of ours"
    return "" if condition.get("message") else "has no message"


def _no_stale_nomination(end: NightEnd) -> Iterator[Finding]:
    """Yield the pods that are nominated although no victim of theirs is left."""
    awaited = {found.uid for pod in end.cluster.pods.values() if (found := preemptor_of(pod.conditions()))}
    for pod in filter(end.cluster.is_pending, end.cluster.pods.values()):
        node = pod.raw.get("status", {}).get("nominatedNodeName")
        is_ours = (pod.pod.metadata.uid, node) not in end.cluster.foreign_nominations
        if node and is_ours and preemptor_uid(end.cluster, pod) not in awaited:
            yield Finding((str(pod),), f"{pod} is nominated to node {node}, and no pod is being evicted for it")


def _no_stale_victim(end: NightEnd) -> Iterator[Finding]:
    """Yield the running pods that say that they are evicted, and are not being deleted."""
    for pod in end.cluster.pods.values():
        found = preemptor_of(pod.conditions())
        if found is not None and pod.takes_room and not pod.is_deleting:
            yield Finding((str(pod),), f"{pod} runs and has {DISRUPTION_TARGET} for {found.kind} {found.name}")


def preemptor_uid(cluster: ObservedCluster, pod: TrackedPod) -> str:
    """Return the UID of what preempts on behalf of a pod: the root of its tree, or the pod."""
    above = cluster.groups_above(pod)
    return above[-1].metadata.uid if above else pod.pod.metadata.uid


WHAT_FITS_IS_BOUND = Rule(
    name="What fits is bound",
    promise=f"After {QUIET_SECONDS:g} quiet seconds a scheduler that starts anew finds nothing to bind.",
    check=_what_fits_is_bound,
    seconds=QUIET_SECONDS,
)
PREEMPTORS_EVICT = Rule(
    name="Higher priorities get their room",
    promise=(
        f"After {QUIET_SECONDS:g} quiet seconds a scheduler that starts anew finds nothing to evict, apart from pods of"
        f" which an eviction was refused in the last {REFUSED_VICTIM_TTL_SECONDS / 60:g} minutes."
    ),
    check=_preemptors_evict,
    seconds=QUIET_SECONDS,
)
PENDING_PODS_SAY_WHY = Rule(
    name="Pending pods say why",
    promise=(
        f"After {QUIET_SECONDS:g} quiet seconds each pending pod has PodScheduled=False with a message, and with the"
        " reason that a scheduler would give that starts anew."
    ),
    check=_pending_pods_say_why,
    seconds=QUIET_SECONDS,
)
NO_STALE_NOMINATION = Rule(
    name="No nomination is left over",
    promise=(
        f"After {QUIET_SECONDS:g} quiet seconds the scheduler nominates a pod only while pods are being evicted for it."
    ),
    check=_no_stale_nomination,
    seconds=QUIET_SECONDS,
)
NO_STALE_VICTIM = Rule(
    name="No running pod calls itself a victim",
    promise=f"After {QUIET_SECONDS:g} quiet seconds a pod has DisruptionTarget only while it is being deleted.",
    check=_no_stale_victim,
    seconds=QUIET_SECONDS,
)
