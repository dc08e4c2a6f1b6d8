"""What the preemptor needs of each victim."""

from collections.abc import Iterable

from cpg_engine.gangs.unit import Unit
from cpg_engine.preemption.reprieve import AssignedRoom
from cpg_engine.preemption.simulation import PreemptionCandidate, preempted
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.preemption.victims import PotentialVictim
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Domain


def eviction_reasons(snapshot: Snapshot, unit: Unit, candidate: PreemptionCandidate) -> list[EvictionReason]:
    """Return for each victim what the preemptor needs of it: the first node by name, and the first resource there."""
    assignments, victims = candidate.assignments, candidate.victims
    with preempted(snapshot, assignments, victims):
        room = AssignedRoom(snapshot, assignments)
        shortages = [room.shortage(found) for found in victims]
    rows = {row for _, row in assignments}
    return [
        _conflict(snapshot, unit, rows, victim) if short is None else _need(snapshot, unit, *short)
        for victim, short in zip(victims, shortages, strict=True)
    ]


def _need(snapshot: Snapshot, unit: Unit, row: int, resource: str, amount: int) -> EvictionReason:
    return EvictionReason(
        preemptor=unit.nodes[0].key,
        node=snapshot.ledger.cluster.name(row),
        resource=resource,
        amount=amount,
        domain=_domain(snapshot, unit, row),
    )


def _conflict(snapshot: Snapshot, unit: Unit, rows: set[int], victim: PotentialVictim) -> EvictionReason:
    """Return the reason where there is room for the victim, but the pods may not run beside each other."""
    shared = rows.intersection(victim.rows)
    name = snapshot.ledger.cluster.name
    first = _first(snapshot, rows)
    return EvictionReason(
        preemptor=unit.nodes[0].key,
        node=name(_first(snapshot, shared or rows)),
        victim_node="" if shared else name(_first(snapshot, victim.rows)),
        domain=_domain(snapshot, unit, first),
    )


def _first(snapshot: Snapshot, rows: Iterable[int]) -> int:
    return min(rows, key=snapshot.ledger.cluster.name)


def _domain(snapshot: Snapshot, unit: Unit, row: int) -> Domain | None:
    key = unit.nodes[0].required
    if key is None:
        return None
    column = snapshot.ledger.cluster.label(key)
    return Domain(key, column.values[column.codes[row]])
