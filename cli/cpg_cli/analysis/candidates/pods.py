"""Changes of pods: gates, names and priorities that keep the tree from being attempted, and constraints on nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from cpg_api.core.node import Taint
from cpg_api.core.pod import Container, Pod, Toleration
from cpg_api.scheduling.templates import effective_class_name, resolved_priority
from cpg_api.tolerations import untolerated_taints
from cpg_cli.analysis.assessment import named
from cpg_cli.analysis.candidates.case import Case, Counterfactual
from cpg_cli.analysis.changes import ObjectChange, pod_with
from cpg_scheduler.inadmissible import (
    PodGated,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TreeGated,
)

MAX_TAINTS = 3
"""Taints that are tried one by one, those of the most nodes first."""
MAX_NODES_NAMED = 3


def without_gates(case: Case) -> Iterator[Counterfactual]:
    """Remove the scheduling gates."""
    if isinstance(case.problem, PodGated | TreeGated):
        gated = [pod for pod in case.pods if pod.spec.scheduling_gates]
        gates = sorted({gate.name for pod in gated for gate in pod.spec.scheduling_gates or ()})
        text = f"scheduling gate {named(gates)} of {_count(gated)} is removed"
        yield from _if_fits(case, "Gates", text, _changed(gated, scheduling_gates=None))


def mended_pods(case: Case) -> Iterator[Counterfactual]:
    """Make the pods of a tree agree in what they must have in common."""
    members = [pod for key in case.groups for pod in case.members(key)] if case.groups else []
    waiting = [pod for pod in members or case.pods if not pod.spec.node_name and not pod.is_terminal]
    ours = case.cache.scheduler_name
    match case.problem:
        case SchedulerNamesDiffer():
            wrong = [pod for pod in waiting if pod.spec.scheduler_name != ours]
            changes = _changed(wrong, scheduler_name=ours)
            yield from _if_fits(case, "SchedulerName", f"schedulerName {ours} for {_count(wrong)}", changes)
        case PrioritiesDiffer():
            root, classes = next(iter(case.groups.values())), case.cache.priority_classes
            workloads = case.cache.workloads[case.flavour]
            priority = resolved_priority(root, workloads, classes) or 0
            name = effective_class_name(root, workloads, classes) or ""
            wrong = [pod for pod in waiting if (pod.spec.priority or 0) != priority]
            text = f"priority {priority}{f' ({name})' if name else ''}, that of the tree, for {_count(wrong)}"
            yield from _if_fits(case, "Priority", text, _changed(wrong, priority=priority, priority_class_name=name))
        case PreemptionPoliciesDiffer():
            changes = _changed(waiting, preemption_policy=None)
            yield from _if_fits(case, "PreemptionPolicy", "one preemptionPolicy for all pods", changes)


def tolerated_taints(case: Case) -> Iterator[Counterfactual]:
    """Tolerate a taint, or remove it from its nodes."""
    if case.unit is None or not case.pods:
        return
    nodes = [node for node in case.cache.snapshot.ledger.cluster.nodes if node is not None]
    on: dict[Taint, list[str]] = {}
    borne = {pod.spec.tolerations for pod in case.pods}
    for node in nodes:
        for taint in {found for one in borne for found in untolerated_taints(node.spec.taints, one)}:
            on.setdefault(taint, []).append(node.metadata.name)
    for taint in sorted(on, key=lambda found: -len(on[found]))[:MAX_TAINTS]:
        toleration = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        changes = tuple(
            ObjectChange(pod, pod_with(pod, tolerations=(*(pod.spec.tolerations or ()), toleration)))
            for pod in case.pods
        )
        where = f"{len(on[taint])} nodes" if len(on[taint]) > MAX_NODES_NAMED else named(sorted(on[taint]))
        yield from _if_fits(case, "Taint", f"taint {_shown(taint)} tolerated, or removed from {where}", changes)


@dataclass(frozen=True)
class _Constraint:
    """A constraint of pods that can be removed."""

    kind: str
    text: str
    without: Callable[[Pod], Pod]


def _without_affinity(part: str) -> Callable[[Pod], Pod]:
    def without(pod: Pod) -> Pod:
        affinity = pod.spec.affinity
        if affinity is None or getattr(affinity, part) is None:
            return pod
        return pod_with(pod, affinity=replace(affinity, **{part: None}))

    return without


def _without_ports(pod: Pod) -> Pod:
    containers = pod.spec.containers or ()
    if not any(port.host_port for one in containers for port in one.ports or ()):
        return pod
    return pod_with(pod, containers=tuple(map(_without_host_ports, containers)))


def _without_host_ports(container: Container) -> Container:
    kept = tuple(port for port in container.ports or () if not port.host_port)
    return replace(container, ports=kept or None)


CONSTRAINTS = (
    _Constraint("NodeSelector", "nodeSelector removed", lambda pod: _cleared(pod, "node_selector")),
    _Constraint("NodeAffinity", "node affinity removed", _without_affinity("node_affinity")),
    _Constraint("PodAffinity", "pod affinity removed", _without_affinity("pod_affinity")),
    _Constraint("PodAntiAffinity", "pod anti-affinity removed", _without_affinity("pod_anti_affinity")),
    _Constraint(
        "TopologySpread", "topologySpreadConstraints removed", lambda pod: _cleared(pod, "topology_spread_constraints")
    ),
    _Constraint("HostPorts", "host ports removed", _without_ports),
)


def without_constraints(case: Case) -> Iterator[Counterfactual]:
    """Remove one constraint of the pods; of a selector with several labels, one label if that is enough."""
    if case.unit is None:
        return
    counts = Counter(key for pod in case.pods for key in pod.spec.node_selector or ())
    for key in counts if len(counts) > 1 else ():
        changes = _each(case.pods, partial(_without_selected, key))
        if case.fits(changes):
            yield Counterfactual("NodeSelector", f"nodeSelector without {key}", changes)
            return
    for constraint in CONSTRAINTS:
        yield from _if_fits(case, constraint.kind, constraint.text, _each(case.pods, constraint.without))


def _without_selected(key: str, pod: Pod) -> Pod:
    selector = {name: value for name, value in (pod.spec.node_selector or {}).items() if name != key}
    return pod_with(pod, node_selector=selector or None)


def _cleared(pod: Pod, field: str) -> Pod:
    return pod_with(pod, **{field: None}) if getattr(pod.spec, field) else pod


def _each(pods: Iterable[Pod], changed: Callable[[Pod], Pod]) -> tuple[ObjectChange, ...]:
    found = ((pod, changed(pod)) for pod in pods)
    return tuple(ObjectChange(before, after) for before, after in found if before != after)


def _changed(pods: Iterable[Pod], **fields: object) -> tuple[ObjectChange, ...]:
    return tuple(ObjectChange(pod, pod_with(pod, **fields)) for pod in pods)


def _if_fits(case: Case, kind: str, text: str, changes: tuple[ObjectChange, ...]) -> Iterator[Counterfactual]:
    if case.fits(changes):
        yield Counterfactual(kind, text, changes)


def _shown(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _count(pods: list[Pod]) -> str:
    return pods[0].metadata.name if len(pods) == 1 else f"{len(pods)} pods"
