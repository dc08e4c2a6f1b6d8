"""The slow, obvious model of kube-scheduler's preemption for a single pod: node by node, pod by pod.

It shares nothing with the engine, and models what the oracle models: resources, selectors and taints.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.listed_budgets import DisruptionBudget
from cpg_engine.testing.oracle import Situation, free, has_room, requests, suits

ORDER = ("CompositePodGroup", "PodGroup", "Pod")


class NodeChoice(NamedTuple):
    """A node, its victims, and the keys that it is compared by: a lower rank is better, then a later start."""

    node: str
    victims: frozenset[str]
    rank: tuple[int, int, int, int]
    start: str


def chosen(
    situation: Situation, pod: Pod, units: Sequence[VictimUnit], budgets: Sequence[DisruptionBudget]
) -> tuple[str, frozenset[str]] | None:
    """Return the node for a pod and the UIDs of all victims, or None where no node can be freed."""
    choices = [
        found
        for node in situation.nodes
        if suits(pod, node) and (found := _cleared(situation, pod, node, _lesser(situation, pod, node, units), budgets))
    ]
    if not choices:
        return None
    best = [found for found in choices if found.rank == min(one.rank for one in choices)]
    latest = [found for found in best if found.start == max(one.start for one in best)]
    first = min(latest, key=lambda found: found.node)
    return first.node, first.victims


def _lesser(situation: Situation, pod: Pod, node: Node, units: Iterable[VictimUnit]) -> list[VictimUnit]:
    """Return the units of lower priority with a pod on the node, the most important first."""
    there = {found.metadata.uid for found in situation.pods if found.spec.node_name == node.metadata.name}
    lesser = [unit for unit in units if unit.priority < (pod.spec.priority or 0) and there & set(unit.pods)]
    return sorted(
        lesser,
        key=lambda unit: (-unit.priority, ORDER.index(unit.key.kind), -len(unit.pods), unit.since, unit.key.name),
    )


def _cleared(
    situation: Situation, pod: Pod, node: Node, units: Sequence[VictimUnit], budgets: Iterable[DisruptionBudget]
) -> NodeChoice | None:
    """Return the victims on a node, or None where evicting all units there is not enough."""
    left = free(situation)[node.metadata.name]
    for unit in units:
        for one in _at(situation, node, unit):
            left.update(requests(one))
    if not has_room(pod, left):
        return None
    violators = list(_violators(units, budgets))
    evicted = []
    for unit in [*violators, *(unit for unit in units if unit not in violators)]:
        before = left.copy()
        for one in _at(situation, node, unit):
            left.subtract(requests(one))
        if not has_room(pod, left):
            evicted.append(unit)
            left = before
    highest = max((unit.priority for unit in evicted), default=-(2**31))
    pods = [unit for unit in evicted for _ in unit.pods]
    return NodeChoice(
        node=node.metadata.name,
        victims=frozenset(uid for unit in evicted for uid in unit.pods),
        rank=(
            sum(unit in violators for unit in evicted),
            highest,
            sum(unit.priority + 2**31 for unit in pods),
            len(pods),
        ),
        start=min((unit.since for unit in evicted if unit.priority == highest), default=""),
    )


def _violators(units: Iterable[VictimUnit], budgets: Iterable[DisruptionBudget]) -> Iterator[VictimUnit]:
    """Yield the units that violate a budget where all of them are evicted, the most important first."""
    left = {budget.name: budget.allowed for budget in budgets}
    for unit in units:
        for budget in budgets:
            left[budget.name] -= len(budget.pods.intersection(unit.pods))
        if any(left[budget.name] < 0 and not budget.pods.isdisjoint(unit.pods) for budget in budgets):
            yield unit


def _at(situation: Situation, node: Node, unit: VictimUnit) -> Iterator[Pod]:
    for found in situation.pods:
        if found.metadata.uid in unit.pods and found.spec.node_name == node.metadata.name:
            yield found
