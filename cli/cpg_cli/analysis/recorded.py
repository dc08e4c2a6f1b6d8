"""Explain a unit by what is written about it: ``status.attempt``, else the conditions of its groups and pods."""

from collections.abc import Iterator

from msgspec.structs import replace

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.attempts import AttemptFinding, AttemptPreemption, LastAttempt, SuggestedStep
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_SCHEDULED
from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer, TreeName
from cpg_cli.analysis.assessment import OUTCOMES, PreemptionAnswer
from cpg_cli.analysis.explanation import NOMINATED, ON_CHANGE, WHEN_COMPLETE, settled
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.inadmissible import GroupMissing, Inadmissible, PodGated, TreeGated
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.outlook import PreemptionVerdict
from cpg_scheduler.status.attempts import AttemptResult, last_attempt
from cpg_scheduler.status.reasons import REASON_WAITING_FOR_GROUP
from cpg_scheduler.units import build_unit, groups_of, pending_pods

NOTHING_WRITTEN = "nothing is written about it yet: does the scheduler run, and do the pods name it?"


def recorded_attempt(cache: ClusterCache, unit: UnitKey) -> LastAttempt | None:
    """Return the last attempt at a unit as its groups show it: that of the first one that is not placed."""
    attempts = [group.status.attempt for group in groups_of(cache, unit) if group.status.attempt is not None]
    waiting = (one for one in attempts if one.finding != AttemptFinding.PLACED)
    return next(waiting, attempts[0] if attempts else None)


def explain_recorded(scheduler: OfflineScheduler, unit: UnitKey, source: AnswerSource) -> ExplainAnswer:
    """Return what groups and pods say of themselves; the scheduler may have no nodes at all."""
    tree = TreeName(unit.flavour, *unit.key)
    state = settled(scheduler, unit)
    if state is not None:
        return ExplainAnswer(tree=tree, state=state[0], summary=state[1], source=source)
    attempt = recorded_attempt(scheduler.cache, unit)
    condition = next(_conditions(scheduler, unit), None)
    reason, message = (condition.reason, condition.message) if condition is not None else ("", "")
    if attempt is None:
        message, _, step = message.partition(". Next: ")
        written = LastAttempt(reason, next_step=SuggestedStep("", text=step)) if step else None
        attempt = _incomplete(scheduler, unit) or written
    preemption = _preemption(attempt.preemption) if attempt is not None and attempt.preemption is not None else None
    is_nominated = preemption is not None and preemption.outcome == PreemptionVerdict.ONGOING
    if attempt is not None and is_nominated:
        attempt = replace(
            attempt, next_step=SuggestedStep("Wait", text="wait for the end of the pods that are evicted")
        )
    return ExplainAnswer(
        tree=tree,
        state="Nominated" if is_nominated else "Waiting",
        summary=NOMINATED if is_nominated else "waits",
        reason=reason,
        message=message or NOTHING_WRITTEN,
        attempt=attempt,
        preemption=preemption,
        next_attempt=WHEN_COMPLETE if reason == REASON_WAITING_FOR_GROUP else ON_CHANGE,
        source=source,
    )


def _incomplete(scheduler: OfflineScheduler, unit: UnitKey) -> LastAttempt | None:
    """Return what is missing in a unit, as far as the groups and pods of a namespace show it."""
    found = build_unit(scheduler.cache, unit)
    if isinstance(found, Inadmissible) and isinstance(found.problem, GroupMissing | PodGated | TreeGated):
        return last_attempt(AttemptResult(problem=found.problem), unit.key, "")
    return None


def _preemption(said: AttemptPreemption) -> PreemptionAnswer:
    if said.outcome in OUTCOMES:
        return PreemptionAnswer(said.outcome, OUTCOMES[said.outcome])
    number = f" of {said.victims} pod{'s' * (said.victims != 1)}" if said.victims else ""
    return PreemptionAnswer(said.outcome, f"under way: waits for the end{number}")


def _conditions(scheduler: OfflineScheduler, unit: UnitKey) -> Iterator[Condition | PodCondition]:
    """Yield the conditions that say why a unit waits, those of groups before those of pods."""
    holders: list[tuple[Group | Pod, str]] = [
        (group, f"{group.kind}InitiallyScheduled") for group in groups_of(scheduler.cache, unit)
    ]
    holders += [(pod, POD_SCHEDULED) for pod in pending_pods(scheduler.cache, unit)]
    for holder, name in holders:
        found = find_condition(holder.status.conditions, name)
        if found is not None and found.status == "False":
            yield found
