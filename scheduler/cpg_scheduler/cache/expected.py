"""The pods that groups will have, by their annotations, and the room that is reserved for those that do not exist yet.

The room is reserved in the pass that places the first pod of a group. The reservation ends when the expected pods have
nodes, when no pod of the group has a node any more, or after a time limit. The limit counts from the time at which the
first pod of the group got its node. So a new leader finds the same reservations in what the API server has.
"""

import datetime as dt
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod
from cpg_api.scheduling.expected import ExpectedPods, ExpectedPodsError, missing_pods, read_expected_pods
from cpg_api.scheduling.forest import Group, GroupKey, Tree, key_of
from cpg_api.scheduling.names import POD_SCHEDULED
from cpg_engine.decisions import ReservedRoom
from cpg_engine.gangs.unit import GroupPods
from cpg_scheduler.cache.reservations import Reservation, Reservations
from cpg_scheduler.keys import UnitKey

EXPECTED_PODS_SECONDS = 300.0
"""Seconds for which room is reserved for pods that do not exist yet."""


class ExpectedMembers(NamedTuple):
    """The expected pods of a unit, by UID, and until when their room is reserved; None where no group expects any."""

    pods: Mapping[str, Pod] = {}
    until: float | None = None


NOTHING_EXPECTED = ExpectedMembers()


class ExpectedGroup(NamedTuple):
    """The pods that a group expects; ``until`` is the end of its time, and ``is_placed`` says that it has begun."""

    entries: tuple[ExpectedPods, ...]
    until: float
    is_placed: bool


class ExpectedPodsCache:
    """The groups with expected pods, by flavour, and the time limit of their reservations."""

    def __init__(self) -> None:
        """Start without groups."""
        self.timeout = EXPECTED_PODS_SECONDS
        self.wall = time.time
        self._entries: dict[tuple[str, GroupKey], tuple[ExpectedPods, ...]] = {}

    def __bool__(self) -> bool:
        """Return whether any group expects pods."""
        return bool(self._entries)

    def groups(self) -> Iterable[tuple[str, GroupKey]]:
        """Return the groups that expect pods, each with its flavour."""
        return self._entries

    def replace_group(self, flavour: str, old: Group | None, new: Group | None) -> None:
        """Put the new state of a group in place of the old one; a malformed annotation makes its tree invalid."""
        known = new or old
        if known is None:
            return
        try:
            entries = read_expected_pods(new) if new is not None else ()
        except ExpectedPodsError:
            entries = ()
        if entries:
            self._entries[flavour, key_of(known)] = entries
        else:
            self._entries.pop((flavour, key_of(known)), None)

    def add_to(self, flavour: str, tree: Tree, members: dict[GroupKey, GroupPods]) -> ExpectedMembers:
        """Add the expected pods to the members of a tree, and return them."""
        found = self.open_groups(flavour, tree, members)
        for key, group in found.items():
            own = members[key]
            missing = missing_pods(key, group.entries, (*own.pending, *own.scheduled))
            needed = 0 if group.is_placed else sum(entry.count for entry in group.entries)
            members[key] = GroupPods(own.pending, own.scheduled, missing, needed)
        if not found:
            return NOTHING_EXPECTED
        pods = {pod.metadata.uid: pod for key in found for pod in members[key].expected}
        return ExpectedMembers(pods, max(group.until for group in found.values()))

    def open_groups(
        self, flavour: str, tree: Tree, members: Mapping[GroupKey, GroupPods]
    ) -> dict[GroupKey, ExpectedGroup]:
        """Return the groups of a tree that expect pods, without those of which the time is over.

        A group without pods expects them once a sibling has some.
        """
        found: dict[GroupKey, ExpectedGroup] = {}
        now = self.wall()
        for node in tree.nodes:
            entries = self._entries.get((flavour, node.key))
            if entries is None:
                continue
            own = members[node.key]
            family = [own] if own.pending or own.scheduled else _siblings(tree, node.parent, members)
            placed = [pod for group in family for pod in group.scheduled if not pod.is_terminal]
            until = min((_placed_at(pod, now) for pod in placed), default=now) + self.timeout
            if until > now and (placed or any(group.pending for group in family)):
                found[node.key] = ExpectedGroup(entries, until, is_placed=bool(placed))
        return found


class ExpectedRoom:
    """The room that is reserved for pods that do not exist yet, by unit."""

    def __init__(self, reservations: Reservations) -> None:
        """Start without any."""
        self._reservations = reservations
        self._held: dict[UnitKey, tuple[float, dict[str, Pod]]] = {}

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._held

    def changed(self, units: Collection[UnitKey]) -> list[UnitKey]:
        """Return which of these units have reserved room."""
        return [key for key in self._held if key in units]

    def pods(self, key: UnitKey) -> Mapping[str, Pod]:
        """Return the pods of a unit, by UID, for which room is reserved."""
        return self._held[key][1]

    def reserve(
        self, key: UnitKey, priority: int, pods: Mapping[str, Pod], places: Collection[ReservedRoom], until: float
    ) -> None:
        """Reserve the room of a decision for pods of a unit, in place of what was reserved before."""
        self.release(key)
        for place in places:
            self._reservations.put(pods[place.uid], Reservation(place.node, key, priority))
        if places:
            self._held[key] = until, {place.uid: pods[place.uid] for place in places}

    def release(self, key: UnitKey, uids: Collection[str] | None = None) -> None:
        """Give up the room for some pods of a unit, by default for all of them."""
        held = self._held.get(key, (0.0, {}))[1]
        for uid in tuple(held) if uids is None else uids:
            del held[uid]
            self._reservations.remove(uid)
        if not held:
            self._held.pop(key, None)

    def expire(self, now: float) -> None:
        """Give up the room of which the time is over."""
        for key in [key for key, (until, _) in self._held.items() if until <= now]:
            self.release(key)

    def next_end(self) -> float | None:
        """Return when the time of the next unit is over."""
        return min((until for until, _ in self._held.values()), default=None)


def _siblings(tree: Tree, parent: int | None, members: Mapping[GroupKey, GroupPods]) -> list[GroupPods]:
    """Return the pods of the groups below one parent."""
    if parent is None:
        return []
    return [members[tree.nodes[child].key] for child in tree.nodes[parent].children]


def _placed_at(pod: Pod, now: float) -> float:
    """Return when a pod got its node; now for an assumed pod."""
    condition = find_condition(pod.status.conditions, POD_SCHEDULED)
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return now
    try:
        return dt.datetime.fromisoformat(condition.last_transition_time).timestamp()
    except ValueError:
        return now
