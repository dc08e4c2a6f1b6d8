"""Who may be evicted at all, and in which order they matter."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.preemption.values import VictimUnit

KINDS = {CompositePodGroup.kind: 2, PodGroup.kind: 1}
"""The larger matters more; a single pod is of no kind here."""
NOW = "~"
"""Stands for the start of a unit that nobody knows, as kube-scheduler takes it: after all others."""


class PotentialVictim(Struct, frozen=True, eq=False):
    """A unit of lower priority that takes room: its pods that are at a node, and the class and row of each.

    ``is_covered`` marks those that budgets may not allow to go.
    """

    unit: VictimUnit
    uids: tuple[str, ...]
    homes: tuple[tuple[PodClass, int], ...]
    is_covered: bool = False

    @property
    def rows(self) -> list[int]:
        """Return the rows that it has pods at, each once, in the order of its pods."""
        return list(dict.fromkeys(row for _, row in self.homes))


def importance(unit: VictimUnit) -> tuple[int, int, int, str, str, str, str]:
    """Return what sorts the most important first: by priority, kind, size and age; names make the order total."""
    key = unit.key
    return (
        -unit.priority,
        -KINDS.get(key.kind, 0),
        -len(unit.pods),
        unit.since or NOW,
        key.namespace,
        key.name,
        key.kind,
    )


def potential_victims(ledger: Ledger, units: Iterable[VictimUnit], priority: int = 2**31) -> list[PotentialVictim]:
    """Return the units below a priority that take room, the most important first."""
    found = []
    for unit in sorted((unit for unit in units if unit.priority < priority), key=importance):
        homes = {uid: home for uid in unit.pods if (home := ledger.location_of(uid)) is not None}
        if homes:
            found.append(PotentialVictim(unit, tuple(homes), tuple(homes.values())))
    return found


def uids_of(some: Iterable[PotentialVictim]) -> list[str]:
    """Return the pods of some candidates."""
    return [uid for found in some for uid in found.uids]


def without(some: Sequence[PotentialVictim], others: Iterable[PotentialVictim]) -> list[PotentialVictim]:
    """Return the candidates, in their order, that are not among others."""
    out = set(map(id, others))
    return [found for found in some if id(found) not in out]


def violators_first(some: Sequence[PotentialVictim], violated: Sequence[tuple[str, ...]]) -> list[PotentialVictim]:
    """Return candidates in the order of reprieve, given which budgets each violates."""
    pairs = list(zip(some, violated, strict=True))
    return [found for found, names in pairs if names] + [found for found, names in pairs if not names]


def ages(some: Iterable[PotentialVictim]) -> Mapping[str, int]:
    """Return for each time that a unit started a number that is the larger, the later it is."""
    times = {found.unit.since or NOW for found in some}
    return {time: number for number, time in enumerate(sorted(times))}
