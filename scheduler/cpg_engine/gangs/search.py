"""The search for a placement of a tree of gangs.

One generator per group of the tree yields the ways to place the group's minimum, best first. The ledger holds a way
until the next one is requested; then it is rolled back. A group places its first child, then the second in what is
left, and so on. When a child has no way, the ones before it are asked for another way (backtracking, within the
budget), and where the minimum allows, a child is left out. Nothing else undoes a placement.

The first pass places minimums only, so that no group takes more than its minimum while a sibling still needs its own.
When the root has its minimum, a second pass adds the minimums of groups that were left out, and a third all other pods,
child by child, without backtracking.

Pods keep the order of importance and age. If a unit with pods of several shapes finds no placement that way, the first
pass is repeated once with the larger pods first.

All domains of a label may pass the bounds and none hold the group. So the effort in such domains is limited. Once it is
used up, only the first domain that a group is offered is tried.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from msgspec import Struct

from cpg_engine.decisions import PlacementCounts
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.affinity_order import AffinityOrder
from cpg_engine.gangs.child_walk import ChildWalk
from cpg_engine.gangs.claim_reach import ClaimReach
from cpg_engine.gangs.diagnosis import Diagnosis
from cpg_engine.gangs.domain_choice import DomainChoice, DomainOffer
from cpg_engine.gangs.exact_leaf import MAX_PODS, ExactLeafSearch
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.placed_tree import GroupPlacement, PlacedTree
from cpg_engine.gangs.placement import PlacedGroup, place_pods
from cpg_engine.gangs.proof import depends_on_choice_of_devices, depends_on_others, is_exhaustive, limitations
from cpg_engine.gangs.search_budget import DEVICE_STEPS_PER_EFFORT, NODE_SCAN_COST, SearchBudget
from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Finding, GroupReport, Limitation
from cpg_engine.weights import Weights


class SearchOptions(Struct, frozen=True):
    """What users of the scheduler may configure."""

    weights: Weights = Weights()
    budget: int = 100
    """How many times in a search a group may be asked for another way."""
    detail: bool = False
    """Whether to scan the nodes for the reasons of a failure."""
    exact: bool = True
    """Whether an exact search follows where the greedy one has found nothing for a few pods."""
    candidates: int = 10
    """How many of the closest domains are reported with detail; with thousands of racks, a full list is unreadable."""


class PlacementSearch:
    """The search for one unit. The ledger holds what it placed until the caller rolls back."""

    def __init__(self, snapshot: Snapshot, unit: Unit, options: SearchOptions, within: Scope | None = None) -> None:
        """Start with nothing placed; with ``within``, nothing is placed outside that scope."""
        self._snapshot = snapshot
        self._within = within
        self._unit = unit
        self._budget = SearchBudget(options.budget, sum(len(node.pending) for node in unit.nodes))
        self._honors_preferences = True
        self._tried = {True: 0, False: 0}
        """How many domains could be filled, and how many could not."""
        self._needs = Needs(unit)
        snapshot.score_cache.reserve_capacity(len(self._needs.classes))
        self._placed = PlacedTree(unit)
        self._domains = DomainChoice(snapshot, self._needs, options.weights)
        self._claim_reach = ClaimReach(snapshot, self._needs)
        self._options = options
        self._order = AffinityOrder(self._needs, snapshot.ledger)
        self._new_diagnosis = partial(
            Diagnosis, snapshot, self._needs, self._order, candidates=options.candidates, detail=options.detail
        )
        self._diagnosis = self._new_diagnosis()
        self.is_excluded = False
        """Whether the bounds leave the unit no place."""

    def run(self) -> Finding:
        """Place the unit, if it has a place; raise ``ContradictionError`` where running members forbid any."""
        if not self._needs.admissible[0]:
            return Finding.INADMISSIBLE
        try:
            self._domains.pin()
        except ContradictionError as error:
            self._diagnosis.add_contradiction(error.contradiction.group)
            raise
        whole = self._within or self._snapshot.topology.whole()
        is_placed = next(self._ways(0, whole), False)
        if not is_placed and self._needs.has_preferences:
            is_placed = self._place_without_preferences(whole)
        if not is_placed:
            self.is_excluded = not self._domains.possible(0, whole)
            if self.is_excluded:
                return Finding.IMPOSSIBLE
            if not self._place_larger_first(whole) and (failure := self._place_exactly(whole)) is not None:
                return failure
        self._add_left_out(0, whole)
        self._extend(0, whole)
        return Finding.PLACED

    def limitations(self, finding: Finding) -> tuple[Limitation, ...]:
        """Return why a finding proves nothing; empty for a finding that does."""
        return limitations(self._snapshot, self._needs, finding)

    @property
    def effort(self) -> int:
        """Return the effort used so far."""
        return self._budget.effort

    def assignments(self) -> Iterator[tuple[PendingPod, int]]:
        """Return the row of each placed pod, in the order of the tree."""
        return self._placed.assignments()

    def reports(self) -> tuple[GroupReport, ...]:
        """Return the report of each group."""
        return self._diagnosis.reports(self._placed.group_placements(range(len(self._unit.nodes))))

    def placement_counts(self) -> PlacementCounts:
        """Return how many domains were offered, and how many of those that were tried could be filled."""
        return PlacementCounts(self._domains.offered, feasible=self._tried[True], infeasible=self._tried[False])

    # The first pass: minimums.

    def _place_without_preferences(self, whole: Scope) -> bool:
        """Search again without preferred topology, which must never keep a tree from being placed."""
        self._honors_preferences = False
        self._budget.renew()
        return next(self._ways(0, whole), False)

    def _place_larger_first(self, whole: Scope) -> bool:
        """Search once more with the larger pods first, within what is left of the budget.

        If that fails, too, the reports are those of the first search.
        """
        if len(self._needs.classes) < 2:
            return False
        first, self._diagnosis = self._diagnosis, self._new_diagnosis()
        self._order = AffinityOrder(self._needs, self._snapshot.ledger, larger_first=True)
        if next(self._ways(0, whole), False):
            return True
        self._diagnosis = first
        return False

    def _place_exactly(self, whole: Scope) -> Finding | None:
        """Place the minimum of a small gang by the exact search; return the finding if that is not possible."""
        node = self._unit.nodes[0]
        if is_exhaustive(self._snapshot, self._needs):
            return Finding.OUT_OF_BUDGET if self._budget.is_exhausted else Finding.IMPOSSIBLE
        if not (node.leaf and self._options.exact and len(node.pending) <= MAX_PODS):
            return Finding.OUT_OF_BUDGET if self._budget.is_exhausted else Finding.NOT_FOUND
        search = ExactLeafSearch(self._snapshot, node.pending)
        for scope in self._domains.required(0, whole).scopes:
            assigned = search.place(scope.rows, self._needs.missing(node))
            if assigned is not None:
                self._placed.scopes[0], self._placed.assigned[0] = scope, assigned
                self._diagnosis.drop(0)
                break
        self._budget.effort += NODE_SCAN_COST * search.steps
        if 0 in self._placed:
            return None
        is_proof = not search.is_exhausted and not depends_on_choice_of_devices(self._snapshot, self._needs)
        return Finding.IMPOSSIBLE if is_proof else Finding.NOT_FOUND

    def _ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield once for each way to place the minimum of a group inside a scope, while the ledger holds it."""
        if not self._needs.admissible[index]:
            return
        self._diagnosis.forget(index)
        offer = self._domains.required(index, scope)
        budget = self._budget
        budget.effort += NODE_SCAN_COST * (1 + len(self._needs.most[index]))
        has_way = False
        for number, domain in enumerate(self._offered_domains(index, scope, offer)):
            if number and budget.is_wasted():
                break
            self._snapshot.pause()
            self._placed.scopes[index] = domain
            is_domain, ways = len(domain.chain) > len(scope.chain), 0
            useful = budget.effort - budget.wasted
            for ways, _ in enumerate(self._ways_inside(index, domain), 1):
                has_way = True
                self._tried[True] += is_domain and ways == 1
                self._diagnosis.drop(index)
                yield True
            if is_domain and not ways:
                self._tried[False] += 1
                budget.wasted = budget.effort - useful
            self._placed.forget(index)
        if has_way:
            self._diagnosis.forget(index)
        else:
            self._diagnosis.add_failure(index, offer)

    def _offered_domains(self, index: int, scope: Scope, offer: DomainOffer) -> Iterator[Scope]:
        """Yield the scopes to try for a group, best first: preferred domains, then required ones, or just the scope."""
        if self._honors_preferences:
            for domain in self._domains.preferred(index, offer.scopes):
                yield from self._claim_reach.scopes(index, domain)
        for domain in offer.scopes:
            yield from self._claim_reach.scopes(index, domain)
        if not offer.scopes and self._needs.met[index]:
            # Its minimum is met by running members and no domain is open: it needs no place.
            yield Scope(chain=scope.chain, rows=scope.rows[:0])

    def _ways_inside(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield once for each way inside one domain, and leave the ledger as it was."""
        ledger = self._snapshot.ledger
        mark = ledger.mark()
        yield from (self._leaf_ways if self._unit.nodes[index].leaf else self._group_ways)(index, scope)
        ledger.rollback(mark)

    def _leaf_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the one way to fill a leaf inside a domain; for identical pods a second way would be no different."""
        node = self._unit.nodes[index]
        needed = self._needs.missing(node)
        placed = self._place_pods(scope, self._order.pods(index), needed)
        if len(placed.assigned) < needed:
            self._diagnosis.add_leaf(index, scope, placed)
        else:
            self._placed.assigned[index] = placed.assigned
            yield True

    def _place_pods(self, scope: Scope, pods: Sequence[PendingPod], limit: int) -> PlacedGroup:
        """Place up to so many pods in a scope, and count the effort."""
        devices = self._snapshot.ledger.device_allocator.rooms.effort
        steps, cuts = devices.steps, devices.cuts
        placed = place_pods(self._snapshot, scope.rows, pods, limit, max_effort=self._budget.effort_left)
        self._budget.effort += placed.effort + (devices.steps - steps) // DEVICE_STEPS_PER_EFFORT
        self._budget.is_exhausted |= placed.is_cut or devices.cuts > cuts
        return placed

    def _group_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the ways to place enough children inside a domain, depth first with an explicit stack."""
        mark = self._snapshot.ledger.mark()
        self._diagnosis.forget_below(index)
        walk = self._walk(index)
        is_first = True
        while True:
            if walk.is_done:
                is_first = False
                for child in walk.untried:
                    self._diagnosis.forget(child)
                yield True
            elif walk.is_open:
                walk.take(self._ways(walk.next_child, scope))
                continue
            elif is_first:
                # Before backtracking over siblings: is there room for enough of them one by one?
                is_first = False
                if not self._could_fit(index, scope, walk, mark):
                    return
                walk = self._walk(index)
                continue
            if not self._backtrack(walk):
                return

    def _walk(self, index: int) -> ChildWalk:
        """Return a walk over the children that can be admitted, in the order in which they are tried.

        They keep their own order, unless all of them are needed anyway. Then children that require a domain come first,
        since the others can take what is left. A child with pods that require those of a sibling comes after it.
        """
        node = self._unit.nodes[index]
        able = self._order.by_size(child for child in node.children if self._needs.admissible[child])
        if node.minimum == len(able):
            able.sort(key=lambda child: not self._needs.requires_topology(child))
        return ChildWalk(self._order.children(index, able), node.minimum)

    def _could_fit(self, index: int, scope: Scope, walk: ChildWalk, mark: int) -> bool:
        """Return whether enough children of a group have room one by one, after its first walk has failed."""
        below = range(index + 1, self._unit.nodes[index].end)
        attempt = self._diagnosis.group_attempt(index, scope, self._placed.group_placements(below))
        self._snapshot.ledger.rollback(mark)
        if not walk.is_empty:
            dependent = self._order.dependent_children(index)
            placements = self._place_alone(walk, scope, dependent)
            if sum(child in placements or child in dependent for child in walk.children) >= walk.minimum:
                self._diagnosis.keep_best(index, attempt)
                self._diagnosis.forget_below(index)
                return True
            attempt = self._diagnosis.group_attempt(index, scope, placements)
        self._diagnosis.keep_best(index, attempt)
        return False

    def _place_alone(self, walk: ChildWalk, scope: Scope, dependent: Collection[int]) -> dict[int, GroupPlacement]:
        """Return what would be placed of the children if each were alone in the scope, until those are enough.

        A child that depends on a sibling cannot be tried alone, and is taken to have room.
        """
        mark = self._snapshot.ledger.mark()
        placements: dict[int, GroupPlacement] = {}
        able = 0
        for child in walk.children:
            if child in dependent:
                able += 1
                self._diagnosis.forget(child)
            elif able < walk.minimum:
                able += next(self._ways(child, scope), False)
                placements |= self._placed.group_placements(range(child, self._unit.nodes[child].end))
                self._snapshot.ledger.rollback(mark)
            self._placed.forget(child)
        return placements

    def _backtrack(self, walk: ChildWalk) -> bool:
        """Go back to the last child that was placed and ask it for another way; return whether that was possible."""
        if not walk.rewind() or self._budget.is_wasted() or not self._budget.take_retry():
            return False
        walk.retry()
        return True

    # The second pass: the minimums of groups that were left out, and the third: all other pods.
    #
    # Both begin where the first pass has put a group, and go on wherever the group may be: that place may be a domain
    # that is only preferred.

    def _add_left_out(self, index: int, outer: Scope) -> None:
        """Place the minimums below a group that the first pass has left out, as far as there is room."""
        scopes = self._scopes_to_extend(index, outer)
        for child in self._order.children(index, self._unit.nodes[index].children):
            if child in self._placed or self._add_child(child, scopes):
                self._add_left_out(child, scopes[-1])

    def _extend(self, index: int, outer: Scope) -> None:
        """Add the pods below a group that are not part of a minimum, as far as there is room."""
        node, scopes = self._unit.nodes[index], self._scopes_to_extend(index, outer)
        if node.leaf:
            self._add_rest(index, scopes)
        for child in self._order.children(index, node.children):
            if child in self._placed:
                self._extend(child, scopes[-1])
        if len(scopes) > 1 and not self._placed.is_inside(index, scopes[0]):
            self._placed.scopes[index] = scopes[-1]

    def _scopes_to_extend(self, index: int, outer: Scope) -> tuple[Scope, ...]:
        """Return the scope of a placed group, and the whole domain that it may use where that is a wider one."""
        scope = self._placed.scopes[index]
        widest = self._domains.widest(index, scope, outer)
        return (scope,) if widest is scope else (scope, widest)

    def _add_child(self, index: int, scopes: Sequence[Scope]) -> bool:
        """Place the minimum of a group that the first pass has left out; return whether that was possible.

        A group that did not fit when less was placed is not tried there again, unless its pods depend on others.
        """
        most = self._needs.most[index]
        if self._diagnosis.has_failed(index) and not depends_on_others(self._snapshot, self._needs, most):
            scopes = scopes[1:]
        return any(next(self._ways(index, scope), False) for scope in scopes)

    def _add_rest(self, index: int, scopes: Sequence[Scope]) -> None:
        """Place the pods of a leaf that have no node yet, as far as there is room."""
        assigned = self._placed.assigned.get(index, ())
        placed_uids = {pod.uid for pod, _ in assigned}
        rest = tuple(pod for pod in self._order.pods(index) if pod.uid not in placed_uids)
        for scope in scopes:
            placed = self._place_pods(scope, rest, len(rest))
            assigned, rest = (*assigned, *placed.assigned), placed.unplaced
        self._placed.assigned[index] = assigned
        if rest:
            self._diagnosis.add_leaf(index, scopes[-1], PlacedGroup(assigned=assigned, unplaced=rest))
