"""A higher priority, or a policy that allows evictions, and the pods that would be evicted for it."""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cache, partial

from msgspec.structs import replace

from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.scheduling.forest import key_of
from cpg_api.schema import HIGHEST_USER_PRIORITY
from cpg_cli.analysis.assessment import evictions_text, is_part_of, planned_evictions
from cpg_cli.analysis.candidates.case import Case, Counterfactual, smallest
from cpg_cli.analysis.changes import ObjectChange, group_with, pod_with
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_scheduler.preemption.results import is_due
from cpg_scheduler.units import SchedulableUnit


def higher_priority(case: Case) -> Iterator[Counterfactual]:
    """Give the unit the lowest priority with which evictions make enough room."""
    unit, decision = case.unit, case.assessment.decision
    if unit is None or decision is None or not is_due(decision, unit.pods):
        return
    if case.assessment.preemption is None or case.assessment.preemption.outcome in {"WouldEvict", "Ongoing"}:
        return
    if not unit.preempts and (plan := _plan(case, unit, unit.priority)) is not None:
        text = f"preemptionPolicy {PREEMPT_LOWER_PRIORITY}"
        changes = _changes(case, preemption_policy=PREEMPT_LOWER_PRIORITY)
        yield _found(case, "PreemptionPolicy", text, changes, plan)
        return
    units = case.cache.victims.units(HIGHEST_USER_PRIORITY)
    levels = sorted({found.priority + 1 for found in units if found.priority >= unit.priority})
    classes = [_class_of(case, level) for level in levels]
    plans = [cache(partial(_plan, case, unit, priority)) for _, priority in classes]
    place = smallest(range(len(levels)), lambda one: plans[one]() is not None)
    plan = plans[place]() if place is not None else None
    if place is not None and plan is not None:
        name, priority = classes[place]
        fields: dict[str, object] = {"priority": priority, "priority_class_name": name}
        policy = "" if unit.preempts else f" with preemptionPolicy {PREEMPT_LOWER_PRIORITY}"
        changes = _changes(case, **fields, **({"preemption_policy": PREEMPT_LOWER_PRIORITY} if policy else {}))
        yield _found(case, "Priority", f"priority {_shown(name, priority)}{policy}", changes, plan)


def _plan(case: Case, unit: SchedulableUnit, priority: int) -> PreemptionPlan | None:
    """Return the plan with a priority, unless there is none, or it would evict a part of the unit itself."""
    case.check_time()
    key = case.assessment.unit
    plan = case.scheduler.preemption.explain(key, replace(unit, priority=priority, preempts=True))
    evicts_itself = any(is_part_of(case.scheduler, key, found.unit) for found in plan.evictions)
    return plan if plan.outcome is PlanOutcome.PLANNED and not evicts_itself else None


def _found(case: Case, kind: str, text: str, changes: tuple[ObjectChange, ...], plan: PreemptionPlan) -> Counterfactual:
    evictions = planned_evictions(case.scheduler, plan)
    return Counterfactual(kind, f"{text}, evicting {evictions_text(evictions)}", changes, evictions)


def _class_of(case: Case, least: int) -> tuple[str, int]:
    """Return the lowest class that is high enough, or no class and the number; the highest is the cluster's own."""
    classes = sorted((one.value, one.metadata.name) for one in case.cache.priority_classes.by_name.values())
    place = bisect_left(classes, (least, ""))
    if place < len(classes) and classes[place][0] < HIGHEST_USER_PRIORITY:
        value, name = classes[place]
        return name, value
    return "", least


def _shown(name: str, priority: int) -> str:
    return f"{priority} ({name})" if name else str(priority)


def _changes(case: Case, **fields: object) -> tuple[ObjectChange, ...]:
    """Return the change of all groups and pods of the unit."""
    groups = (case.change_group(key_of(group), group_with(group, **fields)) for group in case.groups.values())
    return (*groups, *(ObjectChange(pod, pod_with(pod, **fields)) for pod in case.pods))
