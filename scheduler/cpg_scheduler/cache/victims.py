"""Who could be evicted: all pods that run, in the units in which they go.

A unit is the highest ancestor of a pod whose disruption mode is ``all``, as far as its ancestors are there, else the
pod itself. Its priority is that of the root, for a pod of its own its own; where the root's is not known, because its
class or Workload is not there, the highest of its pods' counts too. Pods of all schedulers count; those that terminate
already cannot be evicted once more.

Asked for at every failed attempt, so it is kept up to date by events: a pod costs a dictionary write, and a group whose
pods or ancestors have changed is looked at anew when somebody asks. Units lie by priority, because in most clusters
nobody runs who is less important than who asks.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit


class Lineage(Struct, frozen=True):
    """A PodGroup and its ancestors, from below, as far as they are there; and the priority of the last of them."""

    groups: Sequence[Group] = ()
    priority: int = 0


class _Piece(Struct, frozen=True):
    """Units of one group; or a part of a unit that goes with ``whole``, whatever other groups it has pods in."""

    units: tuple[VictimUnit, ...]
    whole: Hashable | None = None


class Victims:
    """The pods that run, by what they would be evicted with."""

    def __init__(
        self,
        leaf_of: Callable[[Pod], GroupKey | None],
        lineage: Callable[[GroupKey], Lineage],
        fell: Callable[[Iterable[Pod]], None] = lambda _: None,
    ) -> None:
        """Start with nobody; pods are asked for their group when they come, groups for theirs when it matters.

        ``fell`` is told of pods of a group that are less important than before.
        """
        self._leaf_of = leaf_of
        self._lineage = lineage
        self._fell = fell
        self._members: dict[GroupKey, dict[str, Pod]] = {}
        self._pieces: dict[int, dict[Hashable, _Piece]] = {}
        self._priorities_of: dict[Hashable, list[int]] = {}
        self._wholes: dict[Hashable, dict[Hashable, _Piece]] = {}
        """The pieces of each unit that goes whole, by where they lie."""
        self._stale: set[GroupKey] = set()
        self.leaving: dict[str, Pod] = {}
        """Who still has a node, and is about to leave it whatever we do, by UID."""

    def swap(self, old: Pod | None, new: Pod | None) -> None:
        """Take the new state of a pod in place of the old."""
        if old is not None:
            self.leaving.pop(old.metadata.uid, None)
            if _runs(old):
                self._remove(old)
        if new is not None and _leaves(new):
            self.leaving[new.metadata.uid] = new
        if new is not None and _runs(new):
            self._add(new)

    def regroup(self, leaves: Iterable[GroupKey] | None = None) -> None:
        """Look at these groups anew, or at all: what is above them, or its priority, may be another now."""
        self._stale.update(self._members.keys() if leaves is None else self._members.keys() & set(leaves))

    def refresh(self) -> None:
        """Look at the groups that have changed, as is done whenever somebody asks."""
        stale, self._stale = self._stale, set()
        for leaf in stale:
            before = max(self._priorities_of.get(leaf, ()), default=None)
            self._take(leaf)
            pods = self._members[leaf].values()
            self._put_group(leaf, pods)
            if before is not None and max(self._priorities_of[leaf]) < before:
                self._fell(pods)

    def units(self, below: int, spared: Collection[str] = ()) -> tuple[VictimUnit, ...]:
        """Return the units of lower priority, but for those with a pod that is spared, by UID."""
        self.refresh()
        found: list[VictimUnit] = []
        whole: dict[Hashable, list[VictimUnit]] = {}
        for priority, pieces in self._pieces.items():
            if priority >= below:
                continue
            for piece in pieces.values():
                if piece.whole is None:
                    found.extend(piece.units)
                else:
                    whole.setdefault(piece.whole, []).extend(piece.units)
        found.extend(_merged(parts) for name, parts in whole.items() if len(parts) == len(self._wholes[name]))
        without = frozenset(spared)
        return tuple(unit for unit in found if without.isdisjoint(unit.pods)) if without else tuple(found)

    def unit_of(self, pod: Pod) -> tuple[int, Collection[str]] | None:
        """Return how important the unit is that a pod goes with, and its pods, by UID; None for who does not run."""
        uid, leaf = pod.metadata.uid, self._leaf_of(pod)
        if leaf is None:
            return (pod.spec.priority or 0, (uid,)) if uid in self._priorities_of else None
        if uid not in self._members.get(leaf, ()):
            return None
        lineage = self._lineage(leaf)
        if not lineage.groups:
            return pod.spec.priority or 0, (uid,)
        if not any(map(_goes_whole, lineage.groups)):
            return lineage.priority, (uid,)
        self.refresh()
        whole = self._pieces[self._priorities_of[leaf][0]][leaf].whole
        parts = self._wholes[whole].values()
        return lineage.priority, {each for part in parts for unit in part.units for each in unit.pods}

    def any_below(self, priority: int) -> bool:
        """Tell whether there is anybody of whom ``is_below`` is so."""
        self.refresh()
        return bool(self.leaving) or any(found < priority for found in self._pieces)

    def is_below(self, pod: Pod, priority: int) -> bool:
        """Tell whether a pod leaves its node anyway, or goes with a unit that is less important than that."""
        self.refresh()
        leaf = self._leaf_of(pod)
        place = pod.metadata.uid if leaf is None else leaf
        return pod.metadata.uid in self.leaving or any(found < priority for found in self._priorities_of.get(place, ()))

    def _add(self, pod: Pod) -> None:
        leaf = self._leaf_of(pod)
        if leaf is None:
            self._put(pod.metadata.uid, pod.spec.priority or 0, _Piece((_single(pod, pod.spec.priority or 0),)))
            return
        self._members.setdefault(leaf, {})[pod.metadata.uid] = pod
        self._stale.add(leaf)

    def _remove(self, pod: Pod) -> None:
        leaf = self._leaf_of(pod)
        if leaf is None:
            self._take(pod.metadata.uid)
            return
        members = self._members[leaf]
        del members[pod.metadata.uid]
        if members:
            self._stale.add(leaf)
            return
        del self._members[leaf]
        self._stale.discard(leaf)
        self._take(leaf)

    def _put_group(self, leaf: GroupKey, pods: Collection[Pod]) -> None:
        lineage = self._lineage(leaf)
        if not lineage.groups:
            # Its group is gone or not there yet, so nothing binds it to others.
            for priority in {pod.spec.priority or 0 for pod in pods}:
                alike = [pod for pod in pods if (pod.spec.priority or 0) == priority]
                self._put(leaf, priority, _Piece(tuple(_single(pod, priority) for pod in alike)))
            return
        top = next((group for group in reversed(lineage.groups) if _goes_whole(group)), None)
        if top is None:
            self._put(leaf, lineage.priority, _Piece(tuple(_single(pod, lineage.priority) for pod in pods)))
            return
        unit = VictimUnit(
            key=key_of(top),
            priority=lineage.priority,
            since=_first(pod.status.start_time for pod in pods),
            pods=tuple(pod.metadata.uid for pod in pods),
        )
        self._put(leaf, lineage.priority, _Piece((unit,), whole=(top.metadata.uid, key_of(top))))

    def _put(self, place: Hashable, priority: int, piece: _Piece) -> None:
        self._pieces.setdefault(priority, {})[place] = piece
        self._priorities_of.setdefault(place, []).append(priority)
        if piece.whole is not None:
            self._wholes.setdefault(piece.whole, {})[place] = piece

    def _take(self, place: Hashable) -> None:
        for priority in self._priorities_of.pop(place, ()):
            whole = self._pieces[priority].pop(place).whole
            if whole is not None:
                del self._wholes[whole][place]
                if not self._wholes[whole]:
                    del self._wholes[whole]
            if not self._pieces[priority]:
                del self._pieces[priority]


def _runs(pod: Pod) -> bool:
    """Tell whether a pod has a node, neither its end nor its deletion has come, and deleting it would free room."""
    return bool(pod.spec.node_name) and not pod.is_terminal and not pod.is_terminating and not pod.is_mirror


def _leaves(pod: Pod) -> bool:
    """Tell whether a pod still takes the room of its node, and is being deleted."""
    return bool(pod.spec.node_name) and not pod.is_terminal and pod.is_terminating


def _goes_whole(group: Group) -> bool:
    mode = group.spec.disruption_mode
    return mode is not None and mode.all is not None


def _first(times: Iterable[str | None]) -> str:
    """Return the earliest; empty where none is known, because no node has said yet that it has started anything."""
    return min(filter(None, times), default="")


def _single(pod: Pod, priority: int) -> VictimUnit:
    key = GroupKey(POD, pod.metadata.namespace, pod.metadata.name)
    return VictimUnit(key=key, priority=priority, since=pod.status.start_time or "", pods=(pod.metadata.uid,))


def _merged(parts: Sequence[VictimUnit]) -> VictimUnit:
    """Return the unit that some groups go as."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return VictimUnit(
        key=first.key,
        priority=first.priority,
        since=_first(part.since for part in parts),
        pods=tuple(uid for part in parts for uid in part.pods),
    )
