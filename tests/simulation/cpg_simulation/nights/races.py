"""Chooses what meets a decision before it is carried out: a bind under way, or one that waits for a status write."""

from collections.abc import Iterator
from random import Random

from cpg_simulation.nights.plan import LEADER, Fault, FaultKind, NodePlan

SECOND_CHANGES: tuple[FaultKind, ...] = ("cordon", "taint", "shrink", "vanish")


def races(random: Random, nodes: tuple[NodePlan, ...], moments: tuple[float, ...]) -> Iterator[Fault]:
    """Yield the faults of at most one race; ``moments`` are those at which trees are created."""
    at = random.choice(moments)
    match random.choice(("touches", "flapping", "neither")):
        case "touches":
            yield from _touches(random, at)
        case "flapping":
            yield from _flapping(random, at, nodes)


def _touches(random: Random, at: float) -> Iterator[Fault]:
    """Yield that a controller changes pods again and again whose binds take long."""
    kind: FaultKind
    kind, amount = random.choice((("delay", 3.0), ("delay", 20.0), ("lose-request", 0.0), ("fail", 0.0)))
    yield Fault(
        kind=kind,
        at=at,
        seconds=10.0,
        target=LEADER,
        requests="binds",
        share=random.choice((0.5, 1.0)),
        amount=amount,
        trigger="binds",
    )
    yield Fault(kind="touch-pods", at=at, seconds=random.choice((0.5, 5.0, 10.0)), trigger="binds")


def _flapping(random: Random, at: float, nodes: tuple[NodePlan, ...]) -> Iterator[Fault]:
    """Yield that nodes take no pods, then do, and soon do not again, while the pods that they would take say why.

    So a decision of the moment between waits for these writes, and is outdated by the time that they end.
    """
    seconds = random.choice((2.0, 4.0, 8.0))
    again = at + seconds + random.choice((0.05, 0.3, 1.0))
    yield Fault(kind="delay", at=at, seconds=seconds, requests="status", amount=20.0)
    rack = random.choice((*(node.rack for node in nodes), "", ""))
    for node in nodes:
        if rack in {"", node.rack}:
            yield Fault(kind="cordon", at=at, seconds=seconds, target=node.name)
            yield Fault(kind=random.choice(SECOND_CHANGES), at=again, seconds=10.0, target=node.name)
