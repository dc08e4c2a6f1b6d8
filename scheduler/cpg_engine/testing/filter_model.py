"""The slow, obvious model of filters that depend on other pods: for one pod and one node, plain loops over all others.

It shares nothing with the engine and reads selectors as they stand in the objects, which have to be valid.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.affinity import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.node import Node
from cpg_api.core.pod import ContainerPort, Pod
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.selectors import LabelMatcher, NodeMatcher
from cpg_api.tolerations import first_untolerated_taint

Labels = Mapping[str, str]


class PlacedPods(Struct, frozen=True):
    """Nodes, the pods on them, each with its node, and the labels of namespaces.

    Pods with a UID that begins with ``nominated/`` may never come.
    """

    nodes: tuple[Node, ...]
    pods: tuple[tuple[Pod, Node], ...]
    namespaces: Mapping[str, Labels]

    def if_all_come(self) -> "PlacedPods":
        """Return the same with all nominated pods running."""
        return replace(self, pods=tuple((_come(pod), host) for pod, host in self.pods))

    def if_none_comes(self) -> "PlacedPods":
        """Return the same without the nominated pods."""
        return replace(self, pods=tuple((pod, host) for pod, host in self.pods if _come(pod) is pod))


def _come(pod: Pod) -> Pod:
    uid = pod.metadata.uid.removeprefix("nominated/")
    return pod if uid == pod.metadata.uid else replace(pod, metadata=replace(pod.metadata, uid=uid))


def chosen(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether a selector selects these labels."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        _holds(expression, labels) for expression in selector.match_expressions or ()
    )


def _holds(expression: LabelSelectorRequirement, labels: Labels) -> bool:
    there, value, values = expression.key in labels, labels.get(expression.key), expression.values or ()
    answers = {"Exists": there, "DoesNotExist": not there, "In": value in values, "NotIn": value not in values}
    return answers[expression.operator]


# Host ports.


def ports_free(placed: PlacedPods, pod: Pod, node: Node) -> bool:
    """Return whether no pod on the node has a port that conflicts with those of this pod."""
    taken = [port for other, host in placed.pods if host is node for port in _ports(other)]
    return not any(_clash(port, other) for port in _ports(pod) for other in taken)


def _ports(pod: Pod) -> list[ContainerPort]:
    lasting = [found for found in pod.spec.init_containers or () if found.restart_policy == "Always"]
    containers = [*(pod.spec.containers or ()), *lasting]
    return [port for container in containers for port in container.ports or () if port.host_port]


def _clash(one: ContainerPort, other: ContainerPort) -> bool:
    addresses = {one.host_ip or "0.0.0.0", other.host_ip or "0.0.0.0"}  # noqa: S104 - nothing is bound here
    same = (one.host_port, one.protocol) == (other.host_port, other.protocol)
    return same and (len(addresses) == 1 or "0.0.0.0" in addresses)  # noqa: S104 - nothing is bound here


# Pod affinity.


def affinity_rejection(placed: PlacedPods, pod: Pod, node: Node) -> str | None:
    """Return the rule that rejects the node: ``required``, ``anti`` or ``existing``."""
    if not all(_satisfies_required(case, pod, node) for case in (placed.if_all_come(), placed.if_none_comes())):
        return "required"
    for other, host in placed.pods:
        terms = (term for term in _required_anti(pod) if _selects(placed, term, pod, other))
        if any(_share_domain(term.topology_key, node, host) for term in terms):
            return "anti"
    for other, host in placed.pods:
        terms = (term for term in _required_anti(other) if _selects(placed, term, other, pod))
        if any(_share_domain(term.topology_key, node, host) for term in terms):
            return "existing"
    return None


def _satisfies_required(placed: PlacedPods, pod: Pod, node: Node) -> bool:
    terms = _required(pod)
    if not terms:
        return True
    if any(term.topology_key not in node.metadata.labels for term in terms):
        return False
    wanted = [host for other, host in placed.pods if all(_selects(placed, term, pod, other) for term in terms)]
    if all(any(_share_domain(term.topology_key, node, host) for host in wanted) for term in terms):
        return True
    is_first = not any(term.topology_key in host.metadata.labels for term in terms for host in wanted)
    return is_first and all(_selects(placed, term, pod, pod) for term in terms)


def preference_sum(placed: PlacedPods, pod: Pod, node: Node, hard_weight: int = 1) -> int:
    """Return the sum of the preferences between the pod and the pods around the node."""
    total = 0
    for other, host in placed.pods:
        for weight, term in _preferred(pod):
            total += weight * (_selects(placed, term, pod, other) and _share_domain(term.topology_key, node, host))
        for weight, term in (*_preferred(other), *((hard_weight, term) for term in _required(other))):
            total += weight * (_selects(placed, term, other, pod) and _share_domain(term.topology_key, node, host))
    return total


def preference_scores(placed: PlacedPods, pod: Pod, nodes: Sequence[Node], hard_weight: int = 1) -> list[int]:
    """Return the score of each node, from 0 for the lowest sum of preferences to 100 for the highest."""
    raw = [preference_sum(placed, pod, node, hard_weight) for node in nodes]
    span = max(raw, default=0) - min(raw, default=0)
    return [int(100 * ((number - min(raw)) / span)) if span else 0 for number in raw]


def _share_domain(key: str, node: Node, other: Node) -> bool:
    return key in node.metadata.labels and node.metadata.labels[key] == other.metadata.labels.get(key)


def _selects(placed: PlacedPods, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Return whether a term of the owner selects the other pod."""
    namespace = other.metadata.namespace
    if term.namespaces is None and term.namespace_selector is None:
        near = namespace == owner.metadata.namespace
    else:
        near = namespace in (term.namespaces or ()) or chosen(
            term.namespace_selector, placed.namespaces.get(namespace, {})
        )
    mine, theirs = owner.metadata.labels, other.metadata.labels
    return (
        near
        and chosen(term.label_selector, theirs)
        and all(theirs.get(key) == mine[key] for key in term.match_label_keys or () if key in mine)
        and all(theirs.get(key) != mine[key] for key in term.mismatch_label_keys or () if key in mine)
    )


def _required(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return (affinity.required_during_scheduling_ignored_during_execution if affinity else None) or ()


def _required_anti(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return (affinity.required_during_scheduling_ignored_during_execution if affinity else None) or ()


def _preferred(pod: Pod) -> Iterator[tuple[int, PodAffinityTerm]]:
    if pod.spec.affinity:
        yield from _weighted(pod.spec.affinity.pod_affinity, 1)
        yield from _weighted(pod.spec.affinity.pod_anti_affinity, -1)


def _weighted(affinity: PodAffinity | None, sign: int) -> Iterator[tuple[int, PodAffinityTerm]]:
    for found in (affinity.preferred_during_scheduling_ignored_during_execution if affinity else None) or ():
        yield sign * found.weight, found.pod_affinity_term


# Spreading.


def spread_rejection(placed: PlacedPods, pod: Pod, node: Node) -> str | None:
    """Return what rejects the node: ``unlabelled`` or ``uneven``."""
    constraints = _constraints(pod, "DoNotSchedule")
    for constraint in constraints:
        if constraint.topology_key not in node.metadata.labels:
            return "unlabelled"
        numbers = _numbers(placed, pod, constraint, constraints)
        lasting = _numbers(placed.if_none_comes(), pod, constraint, constraints)
        least = min(lasting.values()) if len(lasting) >= (constraint.min_domains or 1) else 0
        here = numbers.get(node.metadata.labels[constraint.topology_key], 0)
        if here + _counts(constraint, pod, pod.metadata.labels) - least > constraint.max_skew:
            return "uneven"
    return None


def spread_scores(placed: PlacedPods, pod: Pod, nodes: Sequence[Node]) -> list[int]:
    """Return the score of each node, all of which are candidates: the emptier its domains, the higher."""
    constraints = _constraints(pod, "ScheduleAnyway")
    scored = [node for node in nodes if all(found.topology_key in node.metadata.labels for found in constraints)]
    raw = {node.metadata.name: math.floor(sum(_fullness(placed, pod, node, scored)) + 0.5) for node in scored}
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    worth = {name: 100 * (most + least - number) // most if most else 100 for name, number in raw.items()}
    return [worth.get(node.metadata.name, 0) for node in nodes]


def _fullness(placed: PlacedPods, pod: Pod, node: Node, scored: Sequence[Node]) -> Iterator[float]:
    constraints = _constraints(pod, "ScheduleAnyway")
    for constraint in constraints:
        key = constraint.topology_key
        if key == "kubernetes.io/hostname":
            number = sum(host is node and _counts_pod(constraint, pod, other) for other, host in placed.pods)
            size = len(scored)
        else:
            number = _numbers(placed, pod, constraint, constraints).get(node.metadata.labels[key], 0)
            size = len({found.metadata.labels[key] for found in scored})
        yield number * math.log(size + 2) + constraint.max_skew - 1


def _constraints(pod: Pod, action: str) -> list[TopologySpreadConstraint]:
    return [found for found in pod.spec.topology_spread_constraints or () if found.when_unsatisfiable == action]


def _numbers(
    placed: PlacedPods, pod: Pod, constraint: TopologySpreadConstraint, all_: Sequence[TopologySpreadConstraint]
) -> dict[str, int]:
    """Return how many pods count in each domain that has a node the constraint counts."""
    found: dict[str, int] = {}
    for node in placed.nodes:
        labels = node.metadata.labels
        if all(other.topology_key in labels for other in all_) and _counts_node(constraint, pod, node):
            here = sum(host is node and _counts_pod(constraint, pod, other) for other, host in placed.pods)
            value = labels[constraint.topology_key]
            found[value] = found.get(value, 0) + here
    return found


def _counts_node(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    suits = LabelMatcher.exact(pod.spec.node_selector).matches(node.metadata.labels) and (
        terms is None or NodeMatcher.compile(terms).matches(node.metadata.labels, node.metadata.name)
    )
    tolerates = first_untolerated_taint(node.spec.taints, pod.spec.tolerations) is None
    return (suits or constraint.node_affinity_policy == "Ignore") and (
        tolerates or constraint.node_taints_policy != "Honor"
    )


def _counts_pod(constraint: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    """Return whether another pod counts; under an empty selector none does, as in kube-scheduler."""
    selector = constraint.label_selector
    empty = selector is not None and not selector.match_labels and not selector.match_expressions
    if empty and not any(key in pod.metadata.labels for key in constraint.match_label_keys or ()):
        return False
    same = other.metadata.namespace == pod.metadata.namespace and other.metadata.deletion_timestamp is None
    return same and _counts(constraint, pod, other.metadata.labels)


def _counts(constraint: TopologySpreadConstraint, pod: Pod, labels: Labels) -> bool:
    mine = pod.metadata.labels
    return chosen(constraint.label_selector, labels) and all(
        labels.get(key) == mine[key] for key in constraint.match_label_keys or () if key in mine
    )
