"""Potential victims: the units that may be evicted, and the order of their importance."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.preemption.values import VictimUnit

KIND_RANK = {CompositePodGroup.kind: 2, PodGroup.kind: 1}
"""The importance of a unit's kind; a single pod has none of these and ranks lowest."""
UNKNOWN_START = "~"
"""Sorts after every time stamp: kube-scheduler takes a unit without a start time for the youngest."""


class PotentialVictim(Struct, frozen=True, eq=False):
    """A unit of lower priority with pods on nodes: their UIDs, and the class and row of each.

    ``is_covered`` marks a unit that a budget may protect from eviction.
    """

    unit: VictimUnit
    uids: tuple[str, ...]
    locations: tuple[tuple[PodClass, int], ...]
    is_covered: bool = False

    @property
    def rows(self) -> list[int]:
        """Return the rows of its pods, each once, in the order of the pods."""
        return list(dict.fromkeys(row for _, row in self.locations))


def importance(unit: VictimUnit) -> tuple[int, int, int, str, str, str, str]:
    """Return a key that sorts the most important unit first: by priority, kind, size, age, and then by name."""
    key = unit.key
    return (
        -unit.priority,
        -KIND_RANK.get(key.kind, 0),
        -len(unit.pods),
        unit.since or UNKNOWN_START,
        key.namespace,
        key.name,
        key.kind,
    )


def potential_victims(ledger: Ledger, units: Iterable[VictimUnit], priority: int = 2**31) -> list[PotentialVictim]:
    """Return the units below a priority that hold room, the most important first."""
    found = []
    for unit in sorted((unit for unit in units if unit.priority < priority), key=importance):
        locations = {uid: location for uid in unit.pods if (location := ledger.location_of(uid)) is not None}
        if locations:
            found.append(PotentialVictim(unit, tuple(locations), tuple(locations.values())))
    return found


def uids_of(victims: Iterable[PotentialVictim]) -> list[str]:
    """Return the UIDs of the pods of all victims."""
    return [uid for found in victims for uid in found.uids]


def without(victims: Sequence[PotentialVictim], others: Iterable[PotentialVictim]) -> list[PotentialVictim]:
    """Return the victims that are not among the others, in their order."""
    removed = set(map(id, others))
    return [found for found in victims if id(found) not in removed]


def violators_first(victims: Sequence[PotentialVictim], violates: Sequence[bool]) -> list[PotentialVictim]:
    """Return the victims in the order of reprieve, given which of them violate a budget."""
    pairs = list(zip(victims, violates, strict=True))
    return [found for found, violating in pairs if violating] + [found for found, violating in pairs if not violating]


def start_ranks(victims: Iterable[PotentialVictim]) -> Mapping[str, int]:
    """Return a number for each start time; a later start has a larger number."""
    times = {found.unit.since or UNKNOWN_START for found in victims}
    return {time: number for number, time in enumerate(sorted(times))}
