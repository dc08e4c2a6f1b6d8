"""The pods that preemption could evict, in the units in which they are evicted.

The victim unit of a pod is its highest known ancestor with disruption mode ``all``; without one, it is the pod alone.
Its priority is that of the root group, or for a single pod its own. Where the root's priority is unknown, because its
class or Workload is missing, the highest priority of its pods counts too. Pods of all schedulers are victims;
terminating pods are not.

Every failed attempt asks for victims, so the index is kept up to date by events: a single pod costs a dictionary
write, and a group that has changed is computed anew at the next question. Units are filed by priority, because in most
clusters no pod runs that is less important than the preemptor.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.groups import GroupCache
from cpg_scheduler.cache.pods import PodCache
from cpg_scheduler.keys import UnitKey


class _Part(Struct, frozen=True):
    """The victim units of one PodGroup; or its part of the unit named by ``whole``, which may span several groups."""

    units: tuple[VictimUnit, ...]
    whole: Hashable | None = None


class Victims:
    """The running pods by victim unit, and the terminating ones."""

    def __init__(self, ledger: Ledger, pods: PodCache, groups: GroupCache, events: EventCollector) -> None:
        """Start without pods; a node is noted as freed where the priority of a unit has fallen."""
        self._ledger = ledger
        self._pods = pods
        self._groups = groups
        self._events = events
        self._members: dict[GroupKey, dict[str, Pod]] = {}
        self._parts: dict[int, dict[Hashable, _Part]] = {}
        """The parts by priority, then by PodGroup or by the UID of a single pod."""
        self._priorities_of: dict[Hashable, list[int]] = {}
        self._wholes: dict[Hashable, dict[Hashable, _Part]] = {}
        """The parts of each unit that is evicted as a whole, by PodGroup."""
        self._stale: set[GroupKey] = set()
        self._regrouped: set[UnitKey] = set()
        self._has_regrouped = False
        self._terminating: dict[str, Pod] = {}

    @property
    def terminating(self) -> Mapping[str, Pod]:
        """Return the pods that still hold room of a node and are being deleted, by UID."""
        return self._terminating

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Put the new state of a pod in place of the old one."""
        if old is not None:
            self._terminating.pop(old.metadata.uid, None)
            if _is_evictable(old):
                self._remove(old)
        if new is not None and _is_terminating(new):
            self._terminating[new.metadata.uid] = new
        if new is not None and _is_evictable(new):
            self._add(new)

    def regroup(self, units: Iterable[UnitKey]) -> None:
        """Compute these units anew at the next question: their groups or templates have changed."""
        self._regrouped.update(units)
        self._has_regrouped = self._has_regrouped or bool(self._regrouped)

    def regroup_all(self) -> None:
        """Compute all groups anew at the next question: a priority class has changed."""
        self._stale.update(self._members)
        self._has_regrouped = True

    def refresh_regrouped(self) -> None:
        """Compute anew what changed groups concern, if any group has changed."""
        if not self._has_regrouped:
            return
        current = set(map(self._groups.current_unit, self._regrouped))
        leaves = {key for unit in current for key in self._groups.group_keys_of(unit)}
        leaves.update(unit.key for unit in self._regrouped)
        self._stale.update(self._members.keys() & leaves)
        self._regrouped.clear()
        self._has_regrouped = False
        self._refresh_stale()

    def units(self, below: int, spared: Collection[str] = ()) -> tuple[VictimUnit, ...]:
        """Return the units of lower priority, without those that have a spared pod, by UID."""
        self._refresh()
        found: list[VictimUnit] = []
        whole: dict[Hashable, list[VictimUnit]] = {}
        for priority, parts in self._parts.items():
            if priority >= below:
                continue
            for part in parts.values():
                if part.whole is None:
                    found.extend(part.units)
                else:
                    whole.setdefault(part.whole, []).extend(part.units)
        found.extend(_merged(parts) for name, parts in whole.items() if len(parts) == len(self._wholes[name]))
        without = frozenset(spared)
        return tuple(unit for unit in found if without.isdisjoint(unit.pods)) if without else tuple(found)

    def victim_unit_of(self, pod: Pod) -> tuple[int, Collection[str]] | None:
        """Return the priority and the pods, by UID, of a pod's unit; None for a pod that cannot be evicted."""
        self.refresh_regrouped()
        uid, group = pod.metadata.uid, self._pods.group_of(pod)
        if group is None:
            return (pod.spec.priority or 0, (uid,)) if uid in self._priorities_of else None
        if uid not in self._members.get(group, ()):
            return None
        lineage = self._groups.lineage_of(group)
        if not lineage.groups:
            return pod.spec.priority or 0, (uid,)
        if not any(map(_is_disrupted_whole, lineage.groups)):
            return lineage.priority, (uid,)
        self._refresh()
        whole = self._parts[self._priorities_of[group][0]][group].whole
        parts = self._wholes[whole].values()
        return lineage.priority, {each for part in parts for unit in part.units for each in unit.pods}

    def groups_of(self, unit: VictimUnit) -> list[Group]:
        """Return the groups that a unit is evicted with: its own, and all below it."""
        if unit.key.kind == POD:
            return []
        leaf = self._pods.group_of(self._pods.by_uid[unit.pods[0]])
        return self._groups.descendants_of(unit.key, leaf) if leaf is not None else []

    def uids_on(self, nodes: Iterable[str], below: int) -> list[str]:
        """Return the pods on these nodes, by UID, that terminate or that a preemptor of this priority could evict."""
        self._refresh()
        if not self._terminating and not any(priority < below for priority in self._parts):
            return []
        found = ((uid, self._pods.by_uid.get(uid)) for node in nodes for uid in self._ledger.uids_on_node(node))
        return [uid for uid, pod in found if pod is not None and self._is_below(pod, below)]

    def _is_below(self, pod: Pod, priority: int) -> bool:
        uid = pod.metadata.uid
        part = self._pods.group_of(pod) or uid
        return uid in self._terminating or any(found < priority for found in self._priorities_of.get(part, ()))

    def _refresh(self) -> None:
        self.refresh_regrouped()
        self._refresh_stale()

    def _refresh_stale(self) -> None:
        """Compute the groups of which pods or ancestors have changed."""
        stale, self._stale = self._stale, set()
        for group in stale:
            before = max(self._priorities_of.get(group, ()), default=None)
            self._remove_parts(group)
            pods = self._members[group].values()
            self._put_group(group, pods)
            if before is not None and max(self._priorities_of[group]) < before:
                # More preemptors may evict these pods now.
                for node in {pod.spec.node_name for pod in pods}:
                    self._events.free_node(node)

    def _add(self, pod: Pod) -> None:
        group = self._pods.group_of(pod)
        if group is None:
            priority = pod.spec.priority or 0
            self._put_part(pod.metadata.uid, priority, _Part((_pod_unit(pod, priority),)))
            return
        self._members.setdefault(group, {})[pod.metadata.uid] = pod
        self._stale.add(group)

    def _remove(self, pod: Pod) -> None:
        group = self._pods.group_of(pod)
        if group is None:
            self._remove_parts(pod.metadata.uid)
            return
        members = self._members[group]
        del members[pod.metadata.uid]
        if members:
            self._stale.add(group)
            return
        del self._members[group]
        self._stale.discard(group)
        self._remove_parts(group)

    def _put_group(self, leaf: GroupKey, pods: Collection[Pod]) -> None:
        lineage = self._groups.lineage_of(leaf)
        if not lineage.groups:
            # The PodGroup does not exist, so each pod is evicted alone.
            for priority in {pod.spec.priority or 0 for pod in pods}:
                equal = [pod for pod in pods if (pod.spec.priority or 0) == priority]
                self._put_part(leaf, priority, _Part(tuple(_pod_unit(pod, priority) for pod in equal)))
            return
        top = next((group for group in reversed(lineage.groups) if _is_disrupted_whole(group)), None)
        if top is None:
            self._put_part(leaf, lineage.priority, _Part(tuple(_pod_unit(pod, lineage.priority) for pod in pods)))
            return
        unit = VictimUnit(
            key=key_of(top),
            priority=lineage.priority,
            since=_earliest(pod.status.start_time for pod in pods),
            pods=tuple(pod.metadata.uid for pod in pods),
        )
        self._put_part(leaf, lineage.priority, _Part((unit,), whole=(top.metadata.uid, key_of(top))))

    def _put_part(self, name: Hashable, priority: int, part: _Part) -> None:
        self._parts.setdefault(priority, {})[name] = part
        self._priorities_of.setdefault(name, []).append(priority)
        if part.whole is not None:
            self._wholes.setdefault(part.whole, {})[name] = part

    def _remove_parts(self, name: Hashable) -> None:
        for priority in self._priorities_of.pop(name, ()):
            whole = self._parts[priority].pop(name).whole
            if whole is not None:
                del self._wholes[whole][name]
                if not self._wholes[whole]:
                    del self._wholes[whole]
            if not self._parts[priority]:
                del self._parts[priority]


def _is_evictable(pod: Pod) -> bool:
    """Return whether a pod has a node, neither terminates nor has ended, and deleting it would free room."""
    return bool(pod.spec.node_name) and not pod.is_terminal and not pod.is_terminating and not pod.is_mirror


def _is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted and still takes room."""
    return bool(pod.spec.node_name) and not pod.is_terminal and pod.is_terminating


def _is_disrupted_whole(group: Group) -> bool:
    mode = group.spec.disruption_mode
    return mode is not None and mode.all is not None


def _earliest(times: Iterable[str | None]) -> str:
    """Return the earliest time; empty where none is known, because no kubelet has started the pod yet."""
    return min(filter(None, times), default="")


def _pod_unit(pod: Pod, priority: int) -> VictimUnit:
    key = GroupKey(POD, pod.metadata.namespace, pod.metadata.name)
    return VictimUnit(key=key, priority=priority, since=pod.status.start_time or "", pods=(pod.metadata.uid,))


def _merged(parts: Sequence[VictimUnit]) -> VictimUnit:
    """Return one unit of the parts that several groups contribute."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return VictimUnit(
        key=first.key,
        priority=first.priority,
        since=_earliest(part.since for part in parts),
        pods=tuple(uid for part in parts for uid in part.pods),
    )
