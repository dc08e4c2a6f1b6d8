"""How a unit stands, by what its objects say: whether it is placed and healthy, and why it is not."""

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Tree
from cpg_api.scheduling.health import HealthReason, tree_health
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_SCHEDULED,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.messages.wording import counted
from cpg_scheduler.units import effective_tree_of, pending_pods


def reason_of(cache: ClusterCache, unit: UnitKey) -> str:
    """Return why a unit waits, as its conditions say it; empty if they say nothing."""
    if unit.flavour == SINGLE_POD:
        pod = cache.single_pod(unit.key)
        condition = find_condition(pod.status.conditions, POD_SCHEDULED) if pod is not None else None
        return "" if condition is None or condition.status == "True" else _sentence(condition.reason, condition.message)
    tree = cache.stores[unit.flavour].forest.tree_of(unit.key)
    if not tree.nodes:
        return f"waiting for {unit.key}, which does not exist"
    pods = (find_condition(pod.status.conditions, POD_SCHEDULED) for pod in pending_pods(cache, unit))
    failed = (one for one in (_initially_scheduled(tree), *pods) if one is not None and one.status != "True")
    return next((_sentence(one.reason, one.message) for one in failed), "")


def is_placed(cache: ClusterCache, unit: UnitKey) -> bool:
    """Return whether the minimum of a unit has been placed."""
    if unit.flavour == SINGLE_POD:
        pod = cache.single_pod(unit.key)
        return pod is not None and bool(pod.spec.node_name)
    tree = cache.stores[unit.flavour].forest.tree_of(unit.key)
    placed = _initially_scheduled(tree) if tree.nodes else None
    return placed is not None and placed.status == "True"


def health_problem(cache: ClusterCache, unit: UnitKey) -> str | None:
    """Return why the minimum of a unit does not run now; None if it does."""
    if unit.flavour == SINGLE_POD:
        pod = cache.single_pod(unit.key)
        return _pod_problem(pod) if pod is not None else "the pod does not exist"
    tree = effective_tree_of(cache, unit)
    if not tree.nodes:
        return f"{unit.key} does not exist"
    health = tree_health(tree, lambda key: cache.members(unit.flavour, key), {})[0]
    return None if health.reason is HealthReason.MINIMUM_MET else f"{health.reason}: {health.message}"


def _pod_problem(pod: Pod) -> str | None:
    return None if pod.status.phase in {"Running", "Succeeded"} else f"the pod is {pod.status.phase or 'Pending'}"


def _initially_scheduled(tree: Tree) -> Condition | None:
    root = tree.root
    kind = POD_GROUP_INITIALLY_SCHEDULED if isinstance(root, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED
    return find_condition(root.status.conditions, kind)


def _sentence(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, message)))


def members_left(cache: ClusterCache, unit: UnitKey) -> str:
    """Return how many groups and pods there are of a unit; empty if there are none."""
    if unit.flavour == SINGLE_POD:
        return "1 pod left" if cache.single_pod(unit.key) is not None else ""
    keys = [node.key for node in cache.stores[unit.flavour].forest.tree_of(unit.key).nodes] or [unit.key]
    groups = sum(key in cache.stores[unit.flavour] for key in keys)
    pods = sum(len(list(cache.members(unit.flavour, key))) for key in keys)
    return f"{counted(groups, 'group')} and {counted(pods, 'pod')} left" if groups or pods else ""
