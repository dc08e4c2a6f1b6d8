"""What pods require of other pods: host ports, affinity, anti-affinity, and spreading over domains.

Binds of one batch arrive in any order. Host ports and anti-affinity hold in each order, and are judged at the bind.
Spreading, and being near pods of another kind, is judged when the batch is complete. Labels of nodes that the scheduler
may not have been shown decide nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_simulation.checks.binds import counts, is_selected
from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.cluster import TrackedPod
from cpg_simulation.checks.gangs import BATCH_SECONDS, domains, seen_nodes
from cpg_simulation.checks.values import Expectation, Finding, Rule

Findings = Iterator[Finding | Expectation]
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the word for all addresses of a node


def _free_ports(change: Change) -> Findings:
    """Yield the pods on the node of a pod that use one of its host ports."""
    pod = _judged(change)
    if pod is None:
        return
    for other in _others(change, pod):
        if other.node == pod.node and _shares_port(pod.pod, other.pod):
            yield Finding((str(pod), str(other)), f"{pod} is bound to node {pod.node}, where {other} has its host port")


def _shares_port(some: Pod, others: Pod) -> bool:
    return any(
        number == taken and (address == used or ANY_ADDRESS in (address, used))
        for number, address in _ports(some)
        for taken, used in _ports(others)
    )


def _ports(pod: Pod) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the host ports of a pod, each with its address."""
    sidecars = [found for found in pod.spec.init_containers or () if found.restart_policy == "Always"]
    for container in (*(pod.spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port:
                yield (port.protocol or "TCP", port.host_port), port.host_ip or ANY_ADDRESS


def _anti_affinity(change: Change) -> Findings:
    """Yield the pods that a bound pod must be apart from, by its own terms or by theirs."""
    pod = _judged(change)
    if pod is None:
        return
    for other in _others(change, pod):
        for owner, selected in ((pod, other), (other, pod)):
            for term in _required(_affinity(owner).pod_anti_affinity):
                domain = _sure_domain(change, pod, term.topology_key)
                is_shared = domain and domain == _sure_domain(change, other, term.topology_key)
                if is_shared and _selects(owner, term, selected):
                    yield Finding(
                        (str(pod), str(other)),
                        f"{pod} is bound to {term.topology_key} {domain}, and {owner} has to be apart from {selected}",
                    )


def _affinity_to_pods(change: Change) -> Findings:
    """Yield that a bound pod is not near pods that it has to be near, unless it is the first of its own kind.

    Pods of another kind may be under way in the same batch, and so have some seconds.
    """
    pod = _judged(change)
    terms = _required(_affinity(pod).pod_affinity) if pod is not None else ()
    if pod is None or not terms:
        return
    if not _all_select(pod, terms, pod):
        yield Expectation(BATCH_SECONDS, lambda: _checked_later(change, pod, _far), is_dropped_by_faults=True)
    elif any(_all_select(pod, terms, other) and _is_in_domains(change, other, terms) for other in _others(change, pod)):
        found = _far(change, pod)
        if found is not None:
            yield found


def _far(change: Change, pod: TrackedPod) -> Finding | None:
    """Return that no pod that a pod has to be near is, or was as far as the scheduler may have known."""
    terms = _required(_affinity(pod).pod_affinity)
    known = (*change.cluster.pods.values(), *unseen_losses(change))
    near = [other for other in known if other is not pod and other.node and _all_select(pod, terms, other)]
    for term in terms:
        mine = domains(change, pod, term.topology_key) - {""}
        if not any(mine & domains(change, other, term.topology_key) for other in near):
            problem = f"has to be near pods of which none is in its {term.topology_key}"
            return Finding((str(pod),), f"{pod} is bound to node {pod.node}, and {problem}")
    return None


def _checked_later(
    change: Change, pod: TrackedPod, problem: Callable[[Change, TrackedPod], Finding | None]
) -> Finding | None:
    """Return a problem of a pod that was bound, unless it is gone or other binds of its tree were refused."""
    cluster = change.cluster
    was_refused = cluster.bind_refused_at.get(cluster.tree_name(pod), -math.inf) >= change.sent - BATCH_SECONDS
    return None if was_refused or cluster.pods.get(pod.name) is not pod else problem(change, pod)


def _is_in_domains(change: Change, pod: TrackedPod, terms: Iterable[PodAffinityTerm]) -> bool:
    return all(_sure_domain(change, pod, term.topology_key) for term in terms)


def _spreading(change: Change) -> Findings:
    """Expect that a bound pod is in no domain that is too full, once all pods of its batch are bound."""
    pod = _judged(change)
    if pod is not None and _hard(pod):
        yield Expectation(BATCH_SECONDS, lambda: _checked_later(change, pod, _uneven), is_dropped_by_faults=True)


def _uneven(change: Change, pod: TrackedPod) -> Finding | None:
    """Return which hard constraint a pod breaks.

    Only the pods that were surely known count in its domain, and all others in the emptiest one.
    """
    constraints = _hard(pod)
    nodes = list(_surely_counted(change, pod, [one.topology_key for one in constraints]))
    for constraint in constraints:
        key, matcher = constraint.topology_key, LabelMatcher.compile(constraint.label_selector)
        there = [other for other in change.cluster.pods.values() if _is_spread_with(pod, matcher, other)]
        gone = [other for other in unseen_losses(change) if _is_spread_with(pod, matcher, other)]
        most = Counter(domain for other in (*there, *gone) for domain in domains(change, other, key))
        mine = _sure_domain(change, pod, key)
        known = [other for other in there if counts(change, other) and not other.is_deleting]
        number = sum(_sure_domain(change, other, key) == mine for other in known)
        least = min((most[node.metadata.labels[key]] for node in nodes), default=0)
        if mine and nodes and number - least > constraint.max_skew:
            return Finding(
                (str(pod),), f"{pod} is bound to {key} {mine} with {number} pods, and another one has at most {least}"
            )
    return None


def _surely_counted(change: Change, pod: TrackedPod, keys: Sequence[str]) -> Iterator[Node]:
    """Yield the nodes that surely count for the constraints of a pod: with the same labels since they were shown."""
    for name, known in change.cluster.nodes.items():
        states = change.cluster.node_versions(name, seen_nodes(change))
        present = [node for node in states if node is not None and is_selected(pod, node)]
        labels = [{key: node.metadata.labels.get(key) for key in keys} for node in present]
        was_shown = known[0][0] <= seen_nodes(change) and len(present) == len(states)
        if was_shown and all(labels[0].values()) and all(found == labels[0] for found in labels):
            yield present[0]


def _is_spread_with(pod: TrackedPod, matcher: LabelMatcher, other: TrackedPod) -> bool:
    meta, mine = other.pod.metadata, pod.pod.metadata
    return bool(other.node) and meta.namespace == mine.namespace and matcher.matches(meta.labels)


def _hard(pod: TrackedPod) -> list[TopologySpreadConstraint]:
    constraints = pod.pod.spec.topology_spread_constraints or ()
    return [found for found in constraints if found.when_unsatisfiable == "DoNotSchedule"]


# Pods and their domains.


def _judged(change: Change) -> TrackedPod | None:
    """Return the pod that is bound, unless a restore of etcd may have made void what the scheduler knew."""
    return None if change.is_outdated else change.bound


def _others(change: Change, pod: TrackedPod) -> list[TrackedPod]:
    """Return the other pods on nodes that the scheduler knew."""
    return [other for other in change.cluster.pods.values() if other is not pod and counts(change, other)]


def unseen_losses(change: Change) -> list[TrackedPod]:
    """Return the pods that are gone, and that the scheduler may not have been shown to be."""
    return [pod for revision, pod in change.cluster.gone if not change.view.sees("pods", revision)]


def _sure_domain(change: Change, pod: TrackedPod, key: str) -> str:
    """Return the domain of the node of a pod if the scheduler knew it: it was shown, and has not changed since."""
    known = change.cluster.nodes.get(pod.node)
    states = change.cluster.node_versions(pod.node, seen_nodes(change))
    found = {node.metadata.labels.get(key, "") if node is not None else "" for node in states}
    return found.pop() if known and known[0][0] <= seen_nodes(change) and len(found) == 1 else ""


# Terms.


def _affinity(pod: TrackedPod) -> Affinity:
    return pod.pod.spec.affinity or Affinity()


def _required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return (affinity and affinity.required_during_scheduling_ignored_during_execution) or ()


def _all_select(owner: TrackedPod, terms: Iterable[PodAffinityTerm], other: TrackedPod) -> bool:
    return all(_selects(owner, term, other) for term in terms)


def _selects(owner: TrackedPod, term: PodAffinityTerm, other: TrackedPod) -> bool:
    """Return whether a term selects a pod; terms with a selector of namespaces are not judged."""
    namespaces = term.namespaces or (owner.pod.metadata.namespace,)
    if other.pod.metadata.namespace not in namespaces or term.namespace_selector is not None:
        return False
    return LabelMatcher.compile(term.label_selector).matches(other.pod.metadata.labels)


FREE_PORTS = Rule(
    name="Host ports are free",
    promise="No pod is bound to a node where a pod that its scheduler knew has one of its host ports.",
    check=_free_ports,
)
ANTI_AFFINITY = Rule(
    name="Anti-affinity holds both ways",
    promise="No pod is bound near one that it has to be apart from, or that has to be apart from it, as far as known.",
    check=_anti_affinity,
)
AFFINITY = Rule(
    name="Required affinity holds",
    promise=(
        "A pod is bound near the pods that its affinity requires, or is the first of its kind, as far as known; pods of"
        f" another kind have to be there {BATCH_SECONDS:g} s later, unless something has failed."
    ),
    check=_affinity_to_pods,
    seconds=BATCH_SECONDS,
)
SPREADING = Rule(
    name="Pods are spread",
    promise=(
        f"{BATCH_SECONDS:g} s after a bind the pod keeps its hard topology spread constraints, as far as known, unless"
        " something has failed or other binds of the tree were refused."
    ),
    check=_spreading,
    seconds=BATCH_SECONDS,
)
