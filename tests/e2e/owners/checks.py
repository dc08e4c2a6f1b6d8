"""What must hold after a quiet time, and for every bind before it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.e2e.owners.model import Owner, Slot, group_of
from tests.e2e.owners.observer import Seen

from cpg_lab.nodes import NodePool

Plain = dict[str, Any]
SECONDS_BEHIND = 3.0
"""A decision may rest on groups as they were so many seconds before the bind is seen."""


class Places:
    """The nodes of a run, and how many pods of one size each of them holds."""

    def __init__(self, pool: NodePool, slots_of_node: int) -> None:
        """Take nodes in blocks and racks."""
        self.rack = {pool.name(place): place[:2] for place in pool.positions()}
        self._slots = slots_of_node

    def free(self, nodes: Sequence[str]) -> Counter[tuple[int, ...]]:
        """Return the free room of each rack while pods are on these nodes."""
        found: Counter[tuple[int, ...]] = Counter()
        used = Counter(nodes)
        for node, rack in self.rack.items():
            found[rack] += self._slots - used[node]
        return found


def overcommitted(places: Places, nodes: Sequence[str], slots_of_node: int) -> list[str]:
    """Return the nodes that have more pods than they hold, or are not of the run."""
    return [
        f"{node} has {count} pods" for node, count in Counter(nodes).items()
        if count > slots_of_node or node not in places.rack
    ]  # fmt: skip


def domain_problems(owner: Owner, nodes: Mapping[str, str], slots: Sequence[Slot], places: Places) -> Iterator[str]:
    """Yield the units of an owner in several racks, and owners in several blocks; ``nodes`` are by slot."""
    racks = defaultdict(set)
    for slot in slots:
        unit = owner.rack_of(slot.group)
        if unit and nodes.get(slot.name):
            racks[unit].add(places.rack[nodes[slot.name]])
    yield from (f"{owner.name}: {unit} is in racks {sorted(found)}" for unit, found in racks.items() if len(found) > 1)
    blocks = {places.rack[node][0] for node in nodes.values() if node}
    if owner.block() and len(blocks) > 1:
        yield f"{owner.name} is in blocks {sorted(blocks)}"


def fits(
    owner: Owner, waiting: Sequence[Slot], nodes: Mapping[str, str], places: Places, free: Counter[tuple[int, ...]]
) -> bool:
    """Return whether all these pods of an owner have room beside those that are bound, by trying all racks."""
    blocks = {places.rack[node][0] for node in nodes.values() if node} if owner.block() else set()
    tried = [blocks] if blocks or not owner.block() else [{rack[0]} for rack in free]
    bound_in: dict[str, tuple[int, ...]] = {}
    for slot in owner.slots():
        if nodes.get(slot.name):
            bound_in[owner.rack_of(slot.group)] = places.rack[nodes[slot.name]]
    units = Counter(owner.rack_of(slot.group) for slot in waiting)
    spread = units.pop("", 0)
    for allowed in tried:
        room = Counter({rack: count for rack, count in free.items() if not allowed or rack[0] in allowed})
        if _all_fit([*units.items()], bound_in, room, spread):
            return True
    return False


def _all_fit(
    units: Sequence[tuple[str, int]],
    bound_in: Mapping[str, tuple[int, ...]],
    room: Counter[tuple[int, ...]],
    spread: int,
) -> bool:
    if not units:
        return room.total() >= spread
    (unit, size), rest = units[0], units[1:]
    for rack in [bound_in[unit]] if unit in bound_in else list(room):
        if room[rack] >= size:
            room[rack] -= size
            if _all_fit(rest, bound_in, room, spread):
                return True
            room[rack] += size
    return False


class BindHistory:
    """Replays the changes of a namespace: every bind needs its group, and gangs are bound as a whole."""

    def __init__(self) -> None:
        """Start without objects."""
        self.problems: list[str] = []
        self._minimums: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
        """All minimums of a group with their times; None from when it does not exist."""
        self._bound: dict[str, set[str]] = defaultdict(set)
        self._placed: dict[str, str] = {}
        self._complete: set[str] = set()
        self._reduced: set[str] = set()

    def replay(self, history: Sequence[Seen]) -> list[str]:
        """Return the problems of a history."""
        for seen in sorted(history):
            if seen.kind == "Pod":
                self._on_pod(seen)
            elif seen.kind == "PodGroup":
                self._on_group(seen)
        partial = [
            f"{group}: only {len(pods)} pods of a gang are bound: {sorted(pods)}"
            for group, pods in self._bound.items()
            if pods and group not in self._complete | self._reduced
        ]
        return self.problems + partial

    def _on_group(self, seen: Seen) -> None:
        minimum = None
        if seen.object is not None:
            minimum = seen.object["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
        self._minimums[seen.name].append((seen.at, minimum))
        self._note(seen.name, seen.at)

    def _on_pod(self, seen: Seen) -> None:
        if seen.object is None:
            self._on_gone(seen)
        elif seen.object["spec"].get("nodeName") and seen.uid not in self._placed:
            group = group_of(seen.object)
            self._placed[seen.uid] = group
            self._bound[group].add(seen.uid)
            if not self._recent(group, seen.at):
                self.problems.append(f"{seen.name} was bound while its group {group} did not exist")
            self._note(group, seen.at)

    def _on_gone(self, seen: Seen) -> None:
        group = self._placed.get(seen.uid)
        if group is None:
            return
        self._bound[group].discard(seen.uid)
        if not self._bound[group]:
            self._complete.discard(group)
            self._reduced.discard(group)
        elif group not in self._complete:
            self._reduced.add(group)

    def _recent(self, group: str, now: float) -> list[int]:
        """Return the minimums that a decision may have seen."""
        found = self._minimums[group]
        ends = [*(at for at, _ in found[1:]), now]
        pairs = zip(found, ends, strict=False)
        return [minimum for (_, minimum), end in pairs if minimum is not None and end >= now - SECONDS_BEHIND]

    def _note(self, group: str, now: float) -> None:
        recent = self._recent(group, now)
        if recent and len(self._bound[group]) >= min(recent):
            self._complete.add(group)
