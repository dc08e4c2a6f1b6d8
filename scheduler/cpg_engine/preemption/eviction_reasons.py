"""Why units have to be evicted, in a sentence each for their owners."""

from collections.abc import Sequence

from cpg_api.quantity import format_quantity
from cpg_engine.gangs.unit import Unit
from cpg_engine.preemption.reprieve import AssignedRoom
from cpg_engine.preemption.simulation import PreemptionCandidate, preempted
from cpg_engine.preemption.victims import PotentialVictim
from cpg_engine.snapshot import Snapshot

WORDS = {"cpu": "{} CPU", "memory": "{} of memory", "ephemeral-storage": "{} of ephemeral storage", "pods": "room"}


def eviction_reasons(snapshot: Snapshot, unit: Unit, candidate: PreemptionCandidate) -> list[str]:
    """Return for each victim what the preemptor needs of it, and where.

    The reason names the first node by name, and the first resource that is short there.
    """
    assignments, victims = candidate.assignments, candidate.victims
    with preempted(snapshot, assignments, victims):
        room = AssignedRoom(snapshot, assignments)
        shortages = [room.shortage(found) for found in victims]
    taken = {row for _, row in assignments}
    first = _first(snapshot, taken)
    return [
        f"{unit.nodes[0].key} {_need(snapshot, short) if short else _conflict(snapshot, found, taken, first)}"
        f"{_domain(snapshot, unit, short[0] if short else first)}"
        for found, short in zip(victims, shortages, strict=True)
    ]


def _need(snapshot: Snapshot, short: tuple[int, str, int]) -> str:
    row, resource, number = short
    words = WORDS.get(resource, "{} " + resource).format(format_quantity(resource, number))
    return f"needs its {words} on {snapshot.ledger.cluster.name(row)}"


def _conflict(snapshot: Snapshot, found: PotentialVictim, taken: set[int], first: int) -> str:
    """Return which node cannot be shared, not for want of room but because of what the pods require of each other."""
    shared = taken.intersection(found.rows)
    if shared:
        return f"cannot run beside it on {snapshot.ledger.cluster.name(_first(snapshot, shared))}"
    names = snapshot.ledger.cluster.name
    return f"cannot run on {names(first)} while it runs on {names(_first(snapshot, found.rows))}"


def _first(snapshot: Snapshot, rows: set[int] | Sequence[int]) -> int:
    return min(rows, key=snapshot.ledger.cluster.name)


def _domain(snapshot: Snapshot, unit: Unit, row: int) -> str:
    key = unit.nodes[0].required
    if key is None:
        return ""
    column = snapshot.ledger.cluster.label(key)
    return f" ({key} {column.values[column.codes[row]]})"
