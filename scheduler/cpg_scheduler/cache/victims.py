"""The pods that preemption could evict, in the units in which they are evicted.

The victim unit of a pod is its highest known ancestor with disruption mode ``all``; without one, it is the pod alone.
An ancestor or template that is deleted while pods of it run still counts. Pods that name an unknown group of a kind
that is not read are one unit; where no groups are served at all, they are no victims. So the removal of the CRDs does
not have gangs evicted pod by pod.
Its priority is the highest of its running pods, which admission has resolved from real priority classes. A number in
the spec of a group counts for nothing here: users can write any. Pods of all schedulers are victims; terminating pods
are not.

Every failed attempt asks for victims, so the index is kept up to date by events: a single pod costs a dictionary
write, and a group that has changed is computed anew at the next question. Units are filed by priority, because in most
clusters no pod runs that is less important than the preemptor.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.groups import GroupCache, is_rooted
from cpg_scheduler.cache.pods import PodCache, unread_api
from cpg_scheduler.keys import UnitKey

PartName: TypeAlias = GroupKey | str
"""A PodGroup, or the UID of a single pod."""


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
        self._last_tops: dict[GroupKey, Group] = {}
        """The group that the pods of each PodGroup are evicted with; it may have been deleted since."""
        self._parts: dict[int, dict[PartName, _Part]] = {}
        """The parts by priority, then by name."""
        self._priorities_of: dict[PartName, list[int]] = {}
        self._wholes: dict[Hashable, dict[PartName, _Part]] = {}
        """The parts of each unit that is evicted as a whole, by PodGroup."""
        self._fallen: dict[Hashable, int] = {}
        """The priority that each unit evicted as a whole had before it lost a part of that priority."""
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
            if self._is_evictable(old):
                self._remove(old)
        if new is not None and _is_terminating(new):
            self._terminating[new.metadata.uid] = new
        if new is not None and self._is_evictable(new):
            self._add(new)

    def regroup(self, units: Iterable[UnitKey]) -> None:
        """Compute these units anew at the next question: their groups or templates have changed."""
        self._regrouped.update(units)
        self._has_regrouped = self._has_regrouped or bool(self._regrouped)

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
        # A unit with a part of higher priority lacks that part here.
        found.extend(_merged(parts) for name, parts in whole.items() if len(parts) == len(self._wholes[name]))
        without = frozenset(spared)
        return tuple(unit for unit in found if without.isdisjoint(unit.pods)) if without else tuple(found)

    def victim_unit_of(self, pod: Pod) -> tuple[int, Collection[str]] | None:
        """Return the priority and the pods, by UID, of a pod's unit; None for a pod that cannot be evicted."""
        self._refresh()
        uid, group = pod.metadata.uid, self._pods.group_of(pod)
        if uid not in (self._priorities_of if group is None else self._members.get(group, ())):
            return None
        whole = None if group is None else self._whole_of(group)
        if whole is None:
            return pod.spec.priority or 0, (uid,)
        units = [unit for part in self._wholes[whole].values() for unit in part.units]
        return max(unit.priority for unit in units), {each for unit in units for each in unit.pods}

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

    def _whole_of(self, group: GroupKey) -> Hashable | None:
        """Return the unit that the pods of a group are evicted with as a whole, or None."""
        return self._parts[self._priorities_of[group][0]][group].whole

    def _priority_of_whole(self, whole: Hashable) -> int:
        return max(unit.priority for part in self._wholes[whole].values() for unit in part.units)

    def _lowest_priority_in(self, group: GroupKey) -> int:
        """Return the lowest priority of a unit that pods of a group belong to."""
        whole = self._whole_of(group)
        return min(self._priorities_of[group]) if whole is None else self._priority_of_whole(whole)

    def _refresh(self) -> None:
        self.refresh_regrouped()
        self._refresh_stale()

    def _refresh_stale(self) -> None:
        """Compute the groups of which pods or ancestors have changed.

        Where the priority of a unit has fallen, more preemptors may evict its pods now.
        """
        stale, self._stale = self._stale, set()
        before = {group: self._lowest_priority_in(group) for group in stale if group in self._priorities_of}
        for group in stale:
            self._remove_parts(group)
            self._put_group(group, self._members[group].values())
        fallen = {group for group, priority in before.items() if self._lowest_priority_in(group) < priority}
        for whole, priority in self._fallen.items():
            if whole in self._wholes and self._priority_of_whole(whole) < priority:
                fallen.update(name for name in self._wholes[whole] if isinstance(name, GroupKey))
        self._fallen.clear()
        for node in {pod.spec.node_name for group in fallen for pod in self._members[group].values()}:
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
        self._last_tops.pop(group, None)
        self._stale.discard(group)
        self._remove_parts(group)

    def _put_group(self, leaf: GroupKey, pods: Collection[Pod]) -> None:
        top = self._top_of(leaf)
        is_unread = not self._groups.has_group(leaf) and any(unread_api(pod, self._groups.stores) for pod in pods)
        if top is None and not is_unread:
            for priority in {pod.spec.priority or 0 for pod in pods}:
                equal = [pod for pod in pods if (pod.spec.priority or 0) == priority]
                self._put_part(leaf, priority, _Part(tuple(_pod_unit(pod, priority) for pod in equal)))
            return
        priority = max(pod.spec.priority or 0 for pod in pods)
        unit = VictimUnit(
            key=leaf if top is None else key_of(top),
            priority=priority,
            since=_earliest(pod.status.start_time for pod in pods),
            pods=tuple(pod.metadata.uid for pod in pods),
        )
        self._put_part(leaf, priority, _Part((unit,), whole=(top.metadata.uid if top is not None else "", unit.key)))

    def _top_of(self, leaf: GroupKey) -> Group | None:
        """Return the group that the pods of a PodGroup are evicted with as a whole, or None.

        The last one still counts if it or its template was deleted, unless a higher one is known.
        """
        ancestry, last = self._groups.ancestry_of(leaf), self._last_tops.pop(leaf, None)
        is_there = last is not None and any(group.metadata.uid == last.metadata.uid for group in ancestry)
        top = last if last is not None and not is_there and not is_rooted(ancestry) else None
        for group in ancestry if top is None else ():
            is_last = last is not None and group.metadata.uid == last.metadata.uid
            if _is_disrupted_whole(group) or (is_last and not self._groups.has_template(leaf, group)):
                top = group
        if top is not None:
            self._last_tops[leaf] = top
        return top

    def _is_evictable(self, pod: Pod) -> bool:
        """Return whether a pod runs, and deleting it would free room; without any groups, only if it names none."""
        is_running = bool(pod.spec.node_name) and not pod.is_terminal and not pod.is_terminating
        is_unread = not self._groups.stores and bool(unread_api(pod, ()))
        return is_running and not pod.is_mirror and not is_unread

    def _put_part(self, name: PartName, priority: int, part: _Part) -> None:
        self._parts.setdefault(priority, {})[name] = part
        self._priorities_of.setdefault(name, []).append(priority)
        if part.whole is not None:
            self._wholes.setdefault(part.whole, {})[name] = part

    def _remove_parts(self, name: PartName) -> None:
        for priority in self._priorities_of.pop(name, ()):
            whole = self._parts[priority].pop(name).whole
            if whole is not None:
                self._remove_from_whole(whole, name)
            if not self._parts[priority]:
                del self._parts[priority]

    def _remove_from_whole(self, whole: Hashable, name: PartName) -> None:
        """Remove a part of a unit; if the others have a lower priority, that is noted."""
        before = self._priority_of_whole(whole)
        del self._wholes[whole][name]
        if not self._wholes[whole]:
            del self._wholes[whole]
        elif self._priority_of_whole(whole) < before:
            self._fallen[whole] = max(before, self._fallen.get(whole, before))
            self._has_regrouped = True


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
        priority=max(part.priority for part in parts),
        since=_earliest(part.since for part in parts),
        pods=tuple(uid for part in parts for uid in part.pods),
    )
