"""All or nothing, and in one domain: what has to hold of the groups above a pod that is bound."""

import math
from collections.abc import Iterator

from cpg_api.scheduling.forest import Tree
from cpg_api.scheduling.podgroup import PodGroup
from cpg_simulation.checks.binds import counts
from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.cluster import ObservedCluster, TrackedPod
from cpg_simulation.checks.values import Expectation, Finding, Rule

BATCH_SECONDS = 10.0


def places_above(cluster: ObservedCluster, pod: TrackedPod) -> tuple[Tree | None, list[int]]:
    """Return the tree of a pod, and the places of its groups from the leaf up."""
    tree = cluster.tree_of(pod)
    place = next((place for place, node in enumerate(tree.nodes) if node.key == pod.group), None) if tree else None
    found = []
    while tree is not None and place is not None:
        found.append(place)
        place = tree.nodes[place].parent
    return tree, found


def has_minimum(cluster: ObservedCluster, tree: Tree, place: int, seen: float = math.inf) -> bool:
    """Return whether a group has its minimum: pods with a node, or children that have theirs.

    Pods count, too, that have left it after a revision of the pods that was ``seen``.
    """
    node = tree.nodes[place]
    if isinstance(node.group, PodGroup):
        found = {pod.pod.metadata.uid for pod in cluster.members(node.key) if pod.is_placed}
        found.update(uid for uid, revision in cluster.left[node.key].items() if revision > seen)
        return len(found) >= node.group.minimum
    return sum(has_minimum(cluster, tree, child, seen) for child in node.children) >= node.group.minimum


def _all_or_nothing(change: Change) -> Iterator[Finding | Expectation]:
    """Expect that all groups above a pod that is bound have their minimum soon, unless others go meanwhile.

    A bind that has no conclusive answer is repeated, while others of its batch may have been refused long ago, or the
    tree may have lost pods since the first request, which may still arrive. Then the unit is attempted again after a
    back-off that takes longer than this rule waits. A batch that has waited, such as for its devices, is bound by the
    minimums that the scheduler was shown before it sent the first bind. And while its watch is late, the scheduler
    relies on pods that have left.
    """
    pod, cluster = change.bound, change.cluster
    if pod is None or pod.group is None:
        return
    tree = cluster.tree_name(pod)
    if cluster.lost_at.get(tree, -math.inf) >= change.first_sent:
        return
    if tree in cluster.changed_by and not change.view.sees(*cluster.changed_by[tree]):
        return
    losses, seen = cluster.losses[tree], change.view.revisions.get("pods", change.write.revision)

    def broken() -> Finding | None:
        was_refused = cluster.bind_refused_at.get(tree, -math.inf) >= change.sent - BATCH_SECONDS
        return None if was_refused or cluster.losses[tree] != losses else _below_minimum(cluster, pod, seen)

    yield Expectation(BATCH_SECONDS, broken, is_dropped_by_faults=True)


def _below_minimum(cluster: ObservedCluster, pod: TrackedPod, seen: float) -> Finding | None:
    tree, places = places_above(cluster, pod)
    for place in places if tree is not None else ():
        if tree is not None and not has_minimum(cluster, tree, place, seen):
            key = tree.nodes[place].key
            return Finding((str(pod), str(key)), f"{pod} was bound, and {key} is below its minimum")
    return None


def _one_domain(change: Change) -> Iterator[Finding | Expectation]:
    """Yield the groups above a pod that is bound with pods in several domains, as the scheduler was shown them."""
    pod, cluster = change.bound, change.cluster
    tree, places = places_above(cluster, pod) if pod is not None else (None, [])
    for place in places:
        if pod is None or tree is None:
            return
        constraints = tree.nodes[place].group.spec.scheduling_constraints
        members = [other for other in cluster.pods_below(tree, place) if other is pod or _pins(change, other)]
        for constraint in (constraints and constraints.topology) or ():
            if not _share_a_domain(change, members, constraint.key):
                found = sorted({domains(change, other, constraint.key).pop() or "no domain" for other in members})
                yield Finding(
                    (str(pod), str(tree.nodes[place].key)),
                    f"{pod} is bound, and the pods of {tree.nodes[place].key} are in {', '.join(found)} of"
                    f" {constraint.key}",
                )


def _pins(change: Change, member: TrackedPod) -> bool:
    """Return whether a pod pins domains: it stays, and the scheduler was not shown in time that its node is gone."""
    shown = change.knowledge.seen(change.process, "nodes", change.sent)
    states = change.cluster.node_versions(member.node, seen_nodes(change), shown)
    return counts(change, member) and not member.is_deleting and bool(states) and None not in states


def _share_a_domain(change: Change, members: list[TrackedPod], key: str) -> bool:
    """Return whether there is a domain in which all of these pods are, by the labels that could be known."""
    shared = set.intersection(*(domains(change, pod, key) for pod in members))
    return bool(shared - {""})


def domains(change: Change, pod: TrackedPod, key: str) -> set[str]:
    """Return the domains in which the node of a pod has been since the scheduler was shown it."""
    states = change.cluster.node_versions(pod.node, seen_nodes(change))
    return {node.metadata.labels.get(key, "") for node in states if node is not None} or {""}


def seen_nodes(change: Change) -> float:
    """Return the newest revision of the nodes that the scheduler was surely shown before it decided."""
    return change.view.revisions.get("nodes", change.write.revision)


ALL_OR_NOTHING = Rule(
    name="All or nothing",
    promise=(
        f"{BATCH_SECONDS:g} s after a bind all groups above the pod have their minimum, where pods count that had left"
        " and that its scheduler still knew, unless something has failed or the tree has lost pods since the bind was"
        " first sent, its groups have changed and the scheduler was not shown that in time, or other binds of the tree"
        f" were refused up to {BATCH_SECONDS:g} s before."
    ),
    check=_all_or_nothing,
    seconds=BATCH_SECONDS,
)
ONE_DOMAIN = Rule(
    name="Each group is in one domain",
    promise="A bind keeps the pods of each group above, as far as they were shown, in one domain of its topology.",
    check=_one_domain,
)
