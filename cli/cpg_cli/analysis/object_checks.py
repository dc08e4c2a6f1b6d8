"""Checks of the objects in a cluster: labels of nodes, groups and schedulers of pods, priority classes, finalizers."""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.membership import group_names, membership
from cpg_api.scheduling.names import FINALIZER, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.analysis.capacity import used_levels
from cpg_cli.analysis.findings import CheckFinding, failure, ok, some, warning
from cpg_cli.cluster.facts import ClusterFacts
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.status.messages.wording import counted

STALE_SECONDS = 300.0
SYSTEM_CLASSES = {"system-node-critical", "system-cluster-critical"}


def topology_checks(facts: ClusterFacts, cache: ClusterCache) -> Iterator[CheckFinding]:
    """Check that nodes have the labels that groups require, and that the domains of one lie inside those of another."""
    if "nodes" in facts.unread:
        return
    nodes: list[Node] = facts.objects.by_kind[Node]
    for key in used_levels(cache):
        lacking = [node.metadata.name for node in nodes if key not in node.metadata.labels]
        text = f"{len(nodes) - len(lacking)} of {len(nodes)} nodes have the label {key}"
        if len(lacking) == len(nodes):
            yield failure("topology", f"{text}, which groups use", "label the nodes, or correct the groups")
        elif lacking:
            yield warning("topology", f"{text}; not {some(lacking)}", "no group that requires it is placed there")
        else:
            yield ok("topology", text)
    for inner, outer in _pairs(cache):
        yield from _straddling(nodes, inner, outer)


def _pairs(cache: ClusterCache) -> Iterator[tuple[str, str]]:
    """Yield the labels of two levels of one tree, the narrower first."""
    found: dict[tuple[str, str], None] = {}
    for store in cache.stores.values():
        for tree in store.forest.trees():
            for node in tree.nodes:
                inner, parent = _required(node.group), node.parent
                while inner and parent is not None:
                    outer = _required(tree.nodes[parent].group)
                    if outer and outer != inner:
                        found[inner, outer] = None
                        break
                    parent = tree.nodes[parent].parent
    yield from found


def _required(group: PodGroup | CompositePodGroup) -> str:
    constraints = group.spec.scheduling_constraints
    return constraints.topology[0].key if constraints is not None and constraints.topology else ""


def _straddling(nodes: list[Node], inner: str, outer: str) -> Iterator[CheckFinding]:
    places: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if inner in node.metadata.labels:
            places[node.metadata.labels[inner]].add(node.metadata.labels.get(outer, ""))
    several = [
        f"{value} in {', '.join(sorted(found - {''}) or ['none'])}" for value, found in places.items() if len(found) > 1
    ]
    if several:
        text = f"values of {inner} are in several domains of {outer}: {some(several)}"
        yield warning(
            "topology", text, "inside a tree they count as different domains; correct the labels if they are one"
        )
    else:
        yield ok("topology", f"each {inner} is in one {outer}")


def pod_checks(facts: ClusterFacts, cache: ClusterCache) -> Iterator[CheckFinding]:
    """Check that pods of our groups have our scheduler, and that the groups of our pods exist."""
    if "pods" in facts.unread:
        return
    pods: list[Pod] = [pod for pod in facts.objects.by_kind[Pod] if not pod.is_terminal]
    foreign = [pod for pod in pods if pod.spec.scheduler_name != SCHEDULER_NAME and _names_ours(pod, cache)]
    if foreign:
        names = some(f"{pod.metadata.key} ({pod.spec.scheduler_name})" for pod in foreign)
        text = f"{counted(len(foreign), 'pod')} in a group with another scheduler: {names}"
        yield failure("pods", text, f"set schedulerName: {SCHEDULER_NAME} in their template")
    lost = [pod for pod in pods if pod.spec.scheduler_name == SCHEDULER_NAME and _is_lost(pod, cache)]
    if lost:
        text = f"{counted(len(lost), 'pod')} with a group that does not exist: {some(pod.metadata.key for pod in lost)}"
        yield warning("pods", text, "create the group, or correct the label")
    if not foreign and not lost:
        yield ok(
            "pods",
            f"{counted(sum(pod.spec.scheduler_name == SCHEDULER_NAME for pod in pods), 'pod')} with our scheduler",
        )


def _names_ours(pod: Pod, cache: ClusterCache) -> bool:
    """Return whether a pod names one of our groups; groups of Kubernetes are also scheduled by its own scheduler."""
    return any(path != "spec.schedulingGroup.podGroupName" for path, _ in group_names(pod)) and bool(cache.stores)


def _is_lost(pod: Pod, cache: ClusterCache) -> bool:
    found = membership(pod)
    key = GroupKey(PodGroup.kind, pod.metadata.namespace, found.group or "")
    is_there = any(key in store for store in cache.stores.values())
    return found.problem is not None or (bool(found.group) and not is_there)


def priority_checks(facts: ClusterFacts, cache: ClusterCache) -> Iterator[CheckFinding]:
    """Check that the priority classes that groups name exist."""
    if "priorityclasses" in facts.unread:
        return
    known = {one.metadata.name for one in facts.objects.by_kind[PriorityClass]} | SYSTEM_CLASSES
    groups = [group for store in cache.stores.values() for group in store]
    missing = {one.spec.priority_class_name for one in groups} - known - {"", None}
    if missing:
        text = f"groups name priority classes that do not exist: {some(str(one) for one in missing)}"
        yield failure("priority classes", text, "create them, or correct the groups")
    elif groups:
        yield ok("priority classes", f"those of {len(groups)} groups exist")


def finalizer_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check that the deletion of groups does not hang."""
    held = [meta for meta in facts.groups if FINALIZER in meta.finalizers]
    stale = [
        meta.key
        for meta in held
        if meta.deletion_timestamp and _age(meta.deletion_timestamp, facts.now) > STALE_SECONDS
    ]
    if stale:
        text = f"{counted(len(stale), 'group')} in deletion for more than 5 minutes: {some(stale)}"
        yield failure(
            "finalizers", text, "their pods may still run; without an operator see `cpg-operator release-finalizers`"
        )
    elif held and facts.processes.get("operator") == []:
        text = f"{counted(len(held), 'group')} with our finalizer, and no operator removes it"
        yield failure("finalizers", text, "run `cpg-operator release-finalizers`, or install the operator")
    elif facts.groups:
        yield ok("finalizers", f"none of {len(facts.groups)} groups hangs in its deletion")


def _age(time: str, now: float) -> float:
    try:
        return now - dt.datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0
