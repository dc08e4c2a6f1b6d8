"""What the status of each group should say, counted from its pods by slow and obvious code of our own."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cpg_api.scheduling.forest import Anchor, GroupKey, Tree, key_of
from cpg_api.scheduling.health import HealthReason
from cpg_api.scheduling.podgroup import PodGroup
from cpg_simulation.checks.cluster import GROUP_KINDS, ObservedCluster, TrackedPod
from cpg_simulation.checks.values import Object


@dataclass(frozen=True)
class GroupState:
    """A group of a tree with what its status should say, computed from its pods."""

    key: GroupKey
    api_group: str
    raw: Object
    pods: dict[str, int]
    groups: dict[str, int] | None
    domain: dict[str, str] | None
    reason: str
    is_root: bool
    members: tuple[TrackedPod, ...]
    root_reason: str = ""
    """The reason that the root of its tree should have."""

    @property
    def status(self) -> Object:
        """The status that it has."""
        return self.raw.get("status") or {}

    def condition(self, kind: str) -> Object | None:
        """Return a condition that it has."""
        return condition_of(self.status.get("conditions"), kind)


def group_states(cluster: ObservedCluster) -> Iterator[GroupState]:
    """Yield all groups of all trees with a root."""
    for api_group, tree in cluster.trees():
        if tree.anchor is Anchor.ROOT:
            states = _Reader(cluster, api_group, tree).read(0)
            yield from (replace(state, root_reason=states[0].reason) for state in states)


class _Reader:
    """Counts a tree from the leaves to the root."""

    def __init__(self, cluster: ObservedCluster, api_group: str, tree: Tree) -> None:
        self._cluster = cluster
        self._api_group = api_group
        self._tree = tree

    def read(self, place: int) -> list[GroupState]:
        """Return a group and all groups below it."""
        node = self._tree.nodes[place]
        if isinstance(node.group, PodGroup):
            return [self._leaf(place, node.group)]
        children = [self.read(child) for child in node.children]
        tops = [found[0] for found in children]
        pods: Counter[str] = Counter()
        for top in tops:
            pods.update(top.pods)
        ready = sum(top.reason == HealthReason.MINIMUM_MET for top in tops)
        placed = sum(top.reason in {HealthReason.MINIMUM_MET, HealthReason.STARTING} for top in tops)
        members = tuple(pod for top in tops for pod in top.members)
        reason = _reason(ready, placed, node.group.minimum, members)
        groups = {"desired": len(tops), "ready": ready}
        counts = {name: pods[name] for name in ("desired", "scheduled", "running")}
        own = self._state(place, counts, groups, reason, members)
        return [own, *(state for found in children for state in found)]

    def _leaf(self, place: int, group: PodGroup) -> GroupState:
        members = tuple(self._cluster.members(key_of(group), self._api_group))
        counted = [pod for pod in members if pod.phase != "Failed" and not pod.is_deleting]
        placed = [pod for pod in counted if pod.node or pod.phase == "Succeeded"]
        running = sum(pod.phase in {"Running", "Succeeded"} for pod in placed)
        reason = _reason(running, len(placed), group.minimum, members)
        pods = {"desired": len(counted), "scheduled": len(placed), "running": running}
        return self._state(place, pods, None, reason, members)

    def _state(
        self,
        place: int,
        pods: dict[str, int],
        groups: dict[str, int] | None,
        reason: str,
        members: tuple[TrackedPod, ...],
    ) -> GroupState:
        key = self._tree.nodes[place].key
        raw, domain = raw_group(self._cluster, self._api_group, key), self._domain(place, members)
        return GroupState(key, self._api_group, raw, pods, groups, domain, reason, place == 0, members)

    def _domain(self, place: int, members: tuple[TrackedPod, ...]) -> dict[str, str] | None:
        """Return the domain of the pods below a group, by its preferred topology or else by the required one."""
        constraints = self._tree.nodes[place].group.spec.scheduling_constraints
        if constraints is None:
            return None
        labels = {node.metadata.name: node.metadata.labels for node in self._cluster.present_nodes()}
        nodes = {pod.node for pod in members if pod.node and pod.phase != "Failed" and not pod.is_deleting}
        for constraint in (*(constraints.preferred_topology or ()), *(constraints.topology or ())):
            values = {labels.get(node, {}).get(constraint.key) for node in nodes}
            if len(values) == 1 and (value := values.pop()) is not None:
                return {"key": constraint.key, "value": value}
        return None


def _reason(met: int, placed: int, minimum: int, members: tuple[TrackedPod, ...]) -> str:
    """Return what the condition Healthy should say."""
    if met >= minimum:
        return HealthReason.MINIMUM_MET
    if placed >= minimum:
        return HealthReason.STARTING
    holds = any(pod.takes_room and not pod.is_deleting for pod in members)
    return HealthReason.PARTIAL if holds else HealthReason.PENDING


def raw_group(cluster: ObservedCluster, api_group: str, key: GroupKey) -> Object:
    """Return a group as it is stored."""
    plural = next(plural for plural, kind in GROUP_KINDS.items() if kind.kind == key.kind)
    return cluster.raw[f"{plural}.{api_group}"][f"{key.namespace}/{key.name}"]


def condition_of(conditions: list[Object] | None, kind: str) -> Object | None:
    """Return the condition of a type."""
    return next((one for one in conditions or () if one["type"] == kind), None)
