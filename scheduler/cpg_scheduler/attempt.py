"""An attempt at a unit, as a value, and what follows from it."""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.decisions import Decision
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.results import PreemptionResult
from cpg_scheduler.preemption.terminating import OVERDUE_SECONDS
from cpg_scheduler.queueing.hints import ANY_CHANGE, FailedAttempt, failed_attempt
from cpg_scheduler.status.updates import StatusUpdate, attempt_updates
from cpg_scheduler.units import SchedulableUnit


class Attempt(Struct, frozen=True):
    """A decision about a unit: the nodes of the pods that it places, by UID, and the other pods."""

    key: UnitKey
    unit: SchedulableUnit
    decision: Decision
    nodes: Mapping[str, str]
    unplaced: Mapping[str, Pod]
    began: float
    seconds: float
    """How long the engine took."""
    number: int
    """How many attempts at the unit there have been, with this one."""


def attempt_of(
    key: UnitKey, unit: SchedulableUnit, decision: Decision, *, began: float, ended: float, number: int
) -> Attempt:
    """Return the attempt in which the engine has made a decision."""
    nodes = {bind.uid: bind.node for bind in decision.binds}
    unplaced = {uid: pod for uid, pod in unit.pods.items() if uid not in nodes}
    return Attempt(key, unit, decision, nodes, unplaced, began, ended - began, number)


def bind_batch(attempt: Attempt, batch_id: int) -> BindBatch:
    """Return the binds of an attempt."""
    return BindBatch(
        id=batch_id,
        unit=attempt.key,
        pods={uid: attempt.unit.pods[uid] for uid in attempt.nodes},
        nodes=attempt.nodes,
        allocations={bind.uid: bind.allocations for bind in attempt.decision.binds if bind.allocations},
    )


def failure_of(cache: ClusterCache, attempt: Attempt, preemption: PreemptionResult) -> FailedAttempt:
    """Return what the queue remembers of an attempt that has not placed all pods.

    A unit that waits for its victims is equivalent to no other, and any change may help it: room elsewhere as well as
    the end of its victims.
    """
    failure = failed_attempt(cache.snapshot, attempt.unit, attempt.decision, attempt.unplaced)
    outlook, hint = preemption.outlook, failure.hint
    if preemption.is_waiting:
        return replace(failure, hint=ANY_CHANGE, signature=None, outlook=outlook, retry_after=OVERDUE_SECONDS)
    if preemption.is_unproven:
        return replace(failure, hint=ANY_CHANGE, outlook=outlook)
    if hint is not None and attempt.unit.preempts:
        hint = replace(hint, preempts_below=attempt.unit.priority)
    return replace(failure, hint=hint, outlook=outlook)


def status_updates(cache: ClusterCache, attempt: Attempt, preemption: PreemptionResult) -> Iterator[StatusUpdate]:
    """Return what an attempt says about the pods that were not placed, and the groups below their minimum."""
    unplaced = {uid: cache.group_of(pod) for uid, pod in attempt.unplaced.items()}
    explanation = attempt.decision.explanation
    return attempt_updates(
        attempt.unit,
        explanation,
        unplaced,
        outlook=preemption.outlook,
        nominated=preemption.nominated,
        number=attempt.number,
    )


def log_fields(attempt: Attempt, preemption: PreemptionResult) -> dict[str, object]:
    """Return the fields of the log line about an attempt."""
    fields = {"preemption": preemption.outcome, "victims": preemption.victims} if preemption.outcome else {}
    return {
        "root": str(attempt.key.key),
        "flavour": attempt.key.flavour,
        "finding": attempt.decision.explanation.finding.value,
        "pods": len(attempt.unit.pods),
        "binds": len(attempt.nodes),
        "milliseconds": round(attempt.seconds * 1000, 3),
        **fields,
    }
