"""Running pods in the units in which they are evicted, and the budgets that cover them; the slow and obvious way."""

from collections.abc import Iterable, Mapping

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.listed_budgets import DisruptionBudget
from cpg_engine.testing.scenario_forms import BudgetForm


def units_of(groups: Iterable[Group], pods: Iterable[Pod]) -> list[VictimUnit]:
    """Return all running pods: by the highest ancestor that is evicted as a whole, else pod by pod."""
    by_key = {key_of(group): group for group in groups}
    members: dict[GroupKey, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_terminal:
            members.setdefault(_unit_of(pod, by_key), []).append(pod)
    return [
        VictimUnit(
            key=key,
            priority=max(pod.spec.priority or 0 for pod in some),
            since=min(pod.metadata.creation_timestamp or "" for pod in some),
            pods=tuple(pod.metadata.uid for pod in some),
        )
        for key, some in members.items()
    ]


def _unit_of(pod: Pod, groups: Mapping[GroupKey, Group]) -> GroupKey:
    """Return the key of the unit of a pod."""
    unit = GroupKey(POD, pod.metadata.namespace, pod.metadata.name)
    name = membership(pod).group
    group = groups.get(GroupKey(PodGroup.kind, pod.metadata.namespace, name)) if name else None
    while group is not None:
        if group.spec.disruption_mode is not None and group.spec.disruption_mode.all is not None:
            unit = key_of(group)
        parent = parent_of(group)
        group = groups.get(parent) if parent else None
    return unit


def budgets_of(forms: Mapping[str, BudgetForm], pods: Iterable[Pod]) -> list[DisruptionBudget]:
    """Return the budgets, each with the pods that it covers."""
    found = list(pods)
    return [
        DisruptionBudget(
            name=name,
            allowed=form.allowed,
            pods=frozenset(pod.metadata.uid for pod in found if form.labels.items() <= pod.metadata.labels.items()),
        )
        for name, form in forms.items()
    ]


def never_preempts(pods: Iterable[Pod]) -> bool:
    """Return whether pods may not preempt."""
    return any(pod.spec.preemption_policy == "Never" for pod in pods)
