"""PodDisruptionBudgets: they are violated only for a preemptor that finds no room otherwise.

The rule asks for what can be seen without a search: the preemptor's pods require no devices and nothing of domains or
of other pods, and all of them fit on nodes of which pods are evicted that no budget covers. Whatever the scheduler may
not have known, or may have had to leave alone, counts as room that is taken.
"""

from collections import Counter
from collections.abc import Iterator

from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.selectors import LabelMatcher
from cpg_simulation.checks.binds import counts, objection
from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.cluster import BUDGETS, ObservedCluster, TrackedPod
from cpg_simulation.checks.evictions import PreemptorName, newly_marked, preemptor_of, root_uid
from cpg_simulation.checks.gangs import seen_nodes
from cpg_simulation.checks.quantities import amounts
from cpg_simulation.checks.relations import unseen_losses
from cpg_simulation.checks.values import Finding, Rule

QUIET_SECONDS = 3.0
"""In a fault a plan may be carried out long after it was made."""


def _budgets_hold(change: Change) -> Iterator[Finding]:
    """Yield that a pod is marked whose budget allows no eviction, although others would be enough."""
    found = newly_marked(change)
    if found is None or change.pod is None or change.sent < change.disturbed_until + QUIET_SECONDS:
        return
    forbidding = _forbidding(change, change.pod)
    if not forbidding:
        return
    preemptor = _pods_of(change, found)
    if preemptor and _places(change, preemptor) >= len(preemptor):
        yield Finding(
            (str(change.pod), f"{found.kind} {found.name}"),
            f"{change.pod} is evicted for {found.kind} {found.name} against {forbidding}, and other pods are enough",
        )


def _forbidding(change: Change, pod: TrackedPod) -> str:
    """Return a budget that the scheduler was shown and that allows no eviction of a pod."""
    for name, (revision, matcher, allowed) in change.cluster.budgets.items():
        if _covers(name, matcher, pod) and not allowed and change.view.sees(BUDGETS, revision):
            return f"PodDisruptionBudget {name}"
    return ""


def _covers(budget: str, matcher: LabelMatcher, pod: TrackedPod) -> bool:
    meta = pod.pod.metadata
    return budget.startswith(f"{meta.namespace}/") and matcher.matches(meta.labels)


def _pods_of(change: Change, found: PreemptorName) -> list[TrackedPod]:
    """Return the pending pods of a preemptor; none if they or others depend on more than room."""
    cluster = change.cluster
    pods = [pod for pod in cluster.pods.values() if found.uid in (pod.pod.metadata.uid, root_uid(cluster, pod))]
    pending = [pod for pod in pods if cluster.is_pending(pod)]
    is_simple = all(_depends_on_room_alone(cluster, pod) for pod in pods)
    others = [pod for pod in cluster.pods.values() if cluster.is_pending(pod) and pod not in pods]
    is_alone = not any(_may_have_room(change, pod) for pod in others)
    return pending if is_simple and is_alone and _are_all_there(cluster, pods) else []


def _may_have_room(change: Change, pod: TrackedPod) -> bool:
    """Return whether a pending pod is nominated to a node, or its bind may be under way."""
    nominated = pod.raw.get("status", {}).get("nominatedNodeName")
    return bool(nominated) or change.knowledge.has_sent(change.process, pod.name)


def _are_all_there(cluster: ObservedCluster, pods: list[TrackedPod]) -> bool:
    """Return whether no group waits for pods or children that do not exist yet, and may need room, too."""
    tree = cluster.tree_of(pods[0]) if pods else None
    for node in tree.nodes if tree is not None else ():
        is_leaf = isinstance(node.group, PodGroup)
        number = len(cluster.members(node.key)) if is_leaf else len(node.children)
        if number < node.group.minimum:
            return False
    return True


def _depends_on_room_alone(cluster: ObservedCluster, pod: TrackedPod) -> bool:
    spec = pod.pod.spec
    ports = any(container.ports for container in spec.containers or ())
    is_bound_to_domains = any(group.spec.scheduling_constraints for group in cluster.groups_above(pod))
    is_related = spec.affinity or spec.topology_spread_constraints
    return not (is_related or spec.resource_claims or ports or is_bound_to_domains)


def _places(change: Change, preemptor: list[TrackedPod]) -> int:
    """Return how many pods as large as the largest of a preemptor surely find room without violations."""
    largest: Counter[str] = Counter()
    for pod in preemptor:
        largest |= pod.requests
    return sum(_places_on(change, preemptor[0], largest, name) for name in change.cluster.nodes)


def _places_on(change: Change, pod: TrackedPod, needed: Counter[str], node: str) -> int:
    states = change.cluster.node_versions(node, seen_nodes(change))
    if change.cluster.nodes[node][0][0] > seen_nodes(change):
        return 0
    if any(state is None or objection(pod, state) for state in states):
        return 0
    there = [*change.cluster.on_node[node].values(), *(gone for gone in unseen_losses(change) if gone.node == node)]
    if any(other.pod.spec.affinity for other in there):
        return 0
    staying = [other for other in there if not _may_go(change, other, pod.priority)]
    used = sum((other.requests for other in staying), Counter[str]())
    room = [amounts(state.status.allocatable) for state in states if state is not None]
    fitting = [(free[name] - used[name]) // number for free in room for name, number in needed.items() if number]
    return max(min(fitting), 0)


def _may_go(change: Change, pod: TrackedPod, below: int) -> bool:
    """Return whether a pod surely may be evicted without violation, or is this very victim."""
    cluster = change.cluster
    is_known = counts(change, pod) and cluster.pods.get(pod.name) is pod and not pod.is_deleting
    is_whole = any(mode.all for group in cluster.groups_above(pod) if (mode := group.spec.disruption_mode))
    is_covered = any(_covers(name, matcher, pod) for name, (_, matcher, _) in cluster.budgets.items())
    is_excluded = pod.pod.metadata.uid in cluster.refused_victims or preemptor_of(pod.conditions()) is not None
    return is_known and pod.priority < below and not (is_whole or is_covered or is_excluded)


BUDGETS_HOLD = Rule(
    name="Budgets are violated only in need",
    promise=(
        "No pod is evicted against its PodDisruptionBudget if the preemptor depends on room alone and evictions that no"
        " budget forbids make enough of it, as far as known."
    ),
    check=_budgets_hold,
)
