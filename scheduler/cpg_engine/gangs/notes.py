"""What a search remembers for the explanation, and how the reports are made of it.

The search calls these methods where something fails; they keep, per group, the attempt that came furthest. Counting
is cheap and always done. Looking at the nodes for reasons costs more than a small gang's whole cycle, so that is done
only where the options ask for detail.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from cpg_engine.filters import fit
from cpg_engine.gangs.feasibility import Needs, could_hold
from cpg_engine.gangs.placing import Placed, hopeless, reasons
from cpg_engine.gangs.unit import Unit, UnitNode
from cpg_engine.gangs.world import World
from cpg_engine.topology.domains import Partition, Scope
from cpg_engine.verdicts import Candidate, Counts, NodeReport, Reason, Status

CANDIDATES_TOLD = 10
"""Domains listed per group in an explanation; with thousands of racks, nobody reads them all."""


class Outcome(Struct, frozen=True):
    """Where a group was placed, and how many of its pods or children."""

    scope: Scope
    placed: int


class Notes:
    """The attempts that came furthest, by position in the unit."""

    def __init__(self, world: World, unit: Unit, needs: Needs, *, detail: bool) -> None:
        """Start with nothing noted."""
        self._world = world
        self._unit = unit
        self._needs = needs
        self._detail = detail
        self._reports: dict[int, NodeReport] = {}

    def leaf(self, index: int, scope: Scope, placed: Placed, scheduled: int) -> None:
        """Note that a leaf did not fit into a scope."""
        before = self._reports.get(index)
        if before is not None and before.nodes and before.counts.scheduled >= scheduled:
            return
        node = self._unit.nodes[index]
        kinds = {member.pod_class.index: member.pod_class for member in placed.left}
        doomed = {found: hopeless(self._world, kind, scope.rows) for found, kind in kinds.items()}
        unresolvable = sum(doomed[member.pod_class.index] for member in placed.left)
        counts = Counts(
            minimum=node.minimum,
            scheduled=scheduled,
            unschedulable=len(placed.left) - unresolvable,
            unresolvable=unresolvable + len(node.refused),
        )
        why = reasons(self._world, placed.left[0].pod_class, scope.rows) if self._detail else ()
        candidates = before.candidates if before else ()
        self._reports[index] = NodeReport(
            key=node.key, counts=counts, candidates=candidates, nodes=len(scope.rows), reasons=why
        )

    def domains(self, index: int, partition: Partition, fits: NDArray[np.int64]) -> None:
        """Note that no domain has room for the minimum of a node, and which come closest."""
        before = self._reports.get(index)
        if before is not None and before.candidates:
            return
        best = np.argsort(-fits, kind="stable")[:CANDIDATES_TOLD].tolist()
        candidates = tuple(self._candidate(index, partition.scopes[place], int(fits[place])) for place in best)
        if before is None:
            before = NodeReport(key=self._unit.nodes[index].key, counts=self._cut_off(index, partition))
        self._reports[index] = replace(before, candidates=candidates)

    def group(self, index: int, tried: Sequence[tuple[int, bool]]) -> None:
        """Note which children kept a group below its minimum; ``tried`` says of each whether it was placed."""
        node = self._unit.nodes[index]
        out = [child for child, was_placed in tried if not was_placed]
        scheduled = len(tried) - len(out)
        before = self._reports.get(index)
        if before is not None and before.blockers and before.counts.scheduled >= scheduled:
            return
        unresolvable = sum(self._failed(child).status is Status.UNRESOLVABLE for child in out)
        self._reports[index] = NodeReport(
            key=node.key,
            counts=Counts(
                minimum=node.minimum,
                scheduled=scheduled,
                remaining=len(node.children) - len(tried),
                unschedulable=len(out) - unresolvable,
                unresolvable=unresolvable,
            ),
            candidates=before.candidates if before else (),
            blockers=tuple(self._unit.nodes[child].key for child in out),
        )

    def reports(self, outcomes: Mapping[int, Outcome]) -> tuple[NodeReport, ...]:
        """Return the report of every group: of its place where it has one, else what was noted on the way."""
        return tuple(
            self._placed(index, outcomes[index]) if index in outcomes else self._failed(index)
            for index in range(len(self._unit.nodes))
        )

    def _candidate(self, index: int, scope: Scope, fits: int) -> Candidate:
        why: tuple[Reason, ...] = ()
        if self._detail:
            first = self._needs.classes[next(iter(self._needs.most[index]))]
            why = reasons(self._world, first, scope.rows)
        return Candidate(
            domain=scope.chain[-1], nodes=len(scope.rows), fits=fits, wanted=self._needs.total[index], reasons=why
        )

    def _placed(self, index: int, outcome: Outcome) -> NodeReport:
        node = self._unit.nodes[index]
        noted = self._reports.get(index)
        have = node.settled + len(node.pending) if node.leaf else len(node.children)
        left = have - outcome.placed
        unresolvable = min(noted.counts.unresolvable, left) if noted else 0
        return NodeReport(
            key=node.key,
            counts=Counts(
                minimum=node.minimum,
                scheduled=outcome.placed,
                unschedulable=left - unresolvable,
                unresolvable=unresolvable,
            ),
            domain=outcome.scope.chain[-1] if outcome.scope.chain else None,
            nodes=noted.nodes if noted and left else 0,
            reasons=noted.reasons if noted and left else (),
            refused=node.refused,
        )

    def _failed(self, index: int) -> NodeReport:
        node = self._unit.nodes[index]
        noted = self._reports.get(index) or self._idle(node)
        return replace(noted, refused=node.refused) if node.refused else noted

    def _idle(self, node: UnitNode) -> NodeReport:
        """Return the report of a node that never had its turn: it may wait for a sibling, or cannot be admitted."""
        if node.leaf:
            counts = Counts(
                minimum=node.minimum,
                scheduled=node.settled,
                remaining=len(node.pending),
                unresolvable=len(node.refused),
            )
            return NodeReport(key=node.key, counts=counts)
        out = [child for child in node.children if not self._needs.admissible[child]]
        able = len(node.children) - len(out)
        counts = Counts(minimum=node.minimum, remaining=able, unresolvable=len(out))
        blockers = tuple(self._unit.nodes[child].key for child in out) if able < node.minimum else ()
        return NodeReport(key=node.key, counts=counts, blockers=blockers)

    def _cut_off(self, index: int, partition: Partition) -> Counts:
        """Return the counts of a node that the bound turned away, by whether an empty domain could hold it."""
        node = self._unit.nodes[index]
        empty = {found: partition.sums(self._empty_slots(found)) for found in self._needs.most[index]}
        could = bool(could_hold(self._needs, index, empty, len(partition.scopes)).any())
        number = len(node.pending) if node.leaf else len(node.children)
        return Counts(
            minimum=node.minimum,
            scheduled=node.settled,
            unschedulable=number if could else 0,
            unresolvable=(0 if could else number) + len(node.refused),
        )

    def _empty_slots(self, found: int) -> NDArray[np.int64]:
        pod_class = self._needs.classes[found]
        rows = np.arange(self._world.ledger.cluster.size)
        return fit.empty_slots(pod_class, self._world.ledger, rows) * self._world.boards.of(pod_class).feasible
