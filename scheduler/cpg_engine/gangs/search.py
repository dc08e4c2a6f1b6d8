"""The search for the places of a tree of gangs.

One generator per node of the tree yields the ways to place the node's minimum, best first. While a way is looked at,
the ledger holds it; asking for the next one takes it back. A group asks its first child for a way, then, in what is
left, the second, and so on; when one finds none, the ones before are asked for other ways (backtracking, as long as
the budget lasts), and where the minimum allows, a child is left out. Nothing is ever undone anywhere else.

The first pass places minimums only, so that no group takes more than its share while a sibling still needs its own.
When the root has its minimum, a second pass adds everybody else, child by child, without backtracking.

All domains of a label may pass the bounds and none hold the group. So what is done in a domain in vain is counted, in
units that no machine and no clock has a part in, and once that is more than the budget stands for, only the first
domain that a group is offered is tried.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from cpg_engine.decisions import PlacementCounts
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.company import AffinityOrder
from cpg_engine.gangs.diagnosis import Diagnosis, GroupPlacement
from cpg_engine.gangs.domain_choice import DomainChoice, DomainOffer
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.placement import PlacedGroup, depends_on_other_pods, place_pods
from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Finding, GroupReport
from cpg_engine.weights import Weights

LOOK = 8
"""What it costs to look at the nodes for a class of pods, where one alike that is placed beside costs one."""

EFFORT = 500
"""What may be done in domains in vain for each retry that is allowed, and once more: a hundred make a second or so."""


class SearchOptions(Struct, frozen=True):
    """What an operator of the scheduler may choose."""

    weights: Weights = Weights()
    budget: int = 100
    """How many times in a search a group may be asked for another way."""
    detail: bool = False
    """Whether to look at the nodes for the reasons of a failure."""
    candidates: int = 10
    """How many of the domains that come closest are then told of; with thousands of racks, nobody reads them all."""


class PlacementSearch:
    """The search for one unit. It leaves the ledger holding what it placed; the caller takes it back."""

    def __init__(self, snapshot: Snapshot, unit: Unit, options: SearchOptions, within: Scope | None = None) -> None:
        """Look at the unit; nothing is placed yet. Nothing will be outside the scope, if there is one."""
        self._snapshot = snapshot
        self._within = within
        self._unit = unit
        self._options = options
        self._budget = options.budget
        self._is_spent = False
        self._prefer = True
        self.effort = 0
        """What has been done so far."""
        self._vain = 0
        """How much of it was done in domains that did not hold a group."""
        self._tried = {True: 0, False: 0}
        """How many domains could be filled, and how many could not."""
        self._needs = Needs(unit)
        snapshot.score_cache.reserve_capacity(len(self._needs.classes))
        self._scopes: dict[int, Scope] = {}
        self._seats: dict[int, tuple[tuple[PendingPod, int], ...]] = {}
        self._choices = DomainChoice(snapshot, self._needs, options.weights)
        self._company = AffinityOrder(self._needs, snapshot.ledger)
        self._notes = Diagnosis(
            snapshot, self._needs, self._company, candidates=options.candidates, detail=options.detail
        )

    def run(self) -> Finding:
        """Place the unit, or find out that it has no place; raise ``ContradictionError`` where members forbid any."""
        if not self._needs.admissible[0]:
            return Finding.INADMISSIBLE
        self._pin()
        whole = self._within or self._snapshot.topology.whole()
        if self._place(whole) or (self._has_preferences() and self._place_anyhow(whole)):
            self._extend(0, whole)
            return Finding.PLACED
        if not self._choices.possible(0, whole):
            return Finding.IMPOSSIBLE
        if self._is_spent:
            return Finding.OUT_OF_BUDGET
        return Finding.IMPOSSIBLE if self._is_exhaustive() else Finding.NOT_FOUND

    def assignments(self) -> Iterator[tuple[PendingPod, int]]:
        """Yield who was placed at which row, in the order of the tree."""
        for index in sorted(self._seats):
            yield from self._seats[index]

    def reports(self) -> tuple[GroupReport, ...]:
        """Return what became of each group."""
        return self._notes.reports(self._outcomes(range(len(self._unit.nodes))))

    def tries(self) -> PlacementCounts:
        """Return how much it took."""
        return PlacementCounts(self._choices.offered, feasible=self._tried[True], infeasible=self._tried[False])

    def _pin(self) -> None:
        try:
            self._choices.pin()
        except ContradictionError as error:
            self._notes.contradict(error.contradiction.group)
            raise

    def _outcomes(self, places: range) -> dict[int, GroupPlacement]:
        """Return where some nodes are placed at present, as far as they are."""
        return {
            place: GroupPlacement(self._scopes[place], len(self._seats.get(place, ())))
            for place in places
            if place in self._scopes
        }

    # The first pass: minimums.

    def _place(self, whole: Scope) -> bool:
        return next(self._ways(0, whole), False)

    def _has_preferences(self) -> bool:
        return any(node.preferred for node in self._unit.nodes)

    def _place_anyhow(self, whole: Scope) -> bool:
        """Try again without preferences, which must never keep a tree from being placed."""
        self._prefer = False
        self._budget = self._options.budget
        self._vain = 0
        self._is_spent = False
        return self._place(whole)

    def _ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield once for each way to place the minimum of a node inside a scope, while the ledger holds it."""
        if not self._needs.admissible[index]:
            return
        self._notes.ask(index)
        offer = self._choices.required(index, scope)
        self.effort += LOOK * (1 + len(self._needs.most[index]))
        fits = False
        for number, domain in enumerate(self._domains(index, scope, offer)):
            if number and self._is_tired():
                break
            self._scopes[index] = domain
            is_domain, ways = len(domain.chain) > len(scope.chain), 0
            useful = self.effort - self._vain
            for ways, _ in enumerate(self._ways_inside(index, domain), 1):
                fits = True
                self._tried[True] += is_domain and ways == 1
                self._notes.drop(index)
                yield True
            if is_domain and not ways:
                self._tried[False] += 1
                self._vain = self.effort - useful
            self._forget(index)
        if fits:
            self._notes.ask(index)
        else:
            self._notes.fail(index, offer)

    def _is_tired(self) -> bool:
        """Tell whether enough has been done in vain; the search is spent where that is asked and is so."""
        is_tired = self._vain > EFFORT * (self._options.budget + 1)
        self._is_spent |= is_tired
        return is_tired

    def _domains(self, index: int, scope: Scope, offer: DomainOffer) -> Iterator[Scope]:
        """Yield the scopes to try for a node, best first: preferred domains, then required ones, or just the scope."""
        if self._prefer:
            yield from self._choices.preferred(index, offer.scopes)
        yield from offer.scopes
        if not offer.scopes and self._needs.met[index]:
            # Its minimum has been met for long, and no domain is open to it: it needs none.
            yield Scope(chain=scope.chain, rows=scope.rows[:0])

    def _ways_inside(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield once for each way inside one domain, and leave the ledger as it was."""
        ledger = self._snapshot.ledger
        mark = ledger.mark()
        yield from (self._leaf_ways if self._unit.nodes[index].leaf else self._group_ways)(index, scope)
        ledger.rollback(mark)

    def _leaf_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the one way to fill a leaf inside a domain: identical pods have no second one worth trying."""
        node = self._unit.nodes[index]
        needed = self._needs.missing(node)
        placed = self._placed(scope, self._company.members(index), needed)
        if len(placed.seats) < needed:
            self._notes.leaf(index, scope, placed)
        else:
            self._seats[index] = placed.seats
            yield True

    def _placed(self, scope: Scope, members: Sequence[PendingPod], limit: int) -> PlacedGroup:
        """Place up to so many pods in a scope, and count what that costs."""
        placed = place_pods(self._snapshot, scope.rows, members, limit)
        self.effort += LOOK * placed.looks + len(placed.seats)
        return placed

    def _group_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the ways to place enough children inside a domain, depth first with an explicit stack."""
        mark = self._snapshot.ledger.mark()
        self._notes.enter(index)
        walk = self._walk(index)
        is_first = True
        while True:
            if walk.done:
                is_first = False
                for child in walk.rest:
                    self._notes.ask(child)
                yield True
            elif walk.open:
                walk.take(self._ways(walk.child, scope))
                continue
            elif is_first:
                # Before siblings are moved about: is there room for enough of them one by one?
                is_first = False
                if not self._could_fit(index, scope, walk, mark):
                    return
                walk = self._walk(index)
                continue
            if not self._back(walk):
                return

    def _walk(self, index: int) -> "_Walk":
        """Return a walk over the children that can be admitted, in the order in which they are asked.

        That is their own, unless all of them are needed anyway. Then those that are confined to a domain come first,
        since the others can take what is left. But whose pods need those of a sibling comes after it in any case.
        """
        node = self._unit.nodes[index]
        able = [child for child in node.children if self._needs.admissible[child]]
        if node.minimum == len(able):
            able.sort(key=lambda child: not self._is_confined(child))
        return _Walk(self._company.children(index, able), node.minimum)

    def _is_confined(self, index: int) -> bool:
        return any(node.required for node in self._unit.nodes[index : self._unit.nodes[index].end])

    def _could_fit(self, index: int, scope: Scope, walk: "_Walk", mark: int) -> bool:
        """Tell of a group whose first walk failed whether enough children have room one by one; note what failed."""
        below = range(index + 1, self._unit.nodes[index].end)
        picture = self._notes.group(index, scope, self._outcomes(below))
        self._snapshot.ledger.rollback(mark)
        if not walk.idle:
            waiting = self._company.waiting(index)
            outcomes = self._alone(walk, scope, waiting)
            if sum(child in outcomes or child in waiting for child in walk.children) >= walk.minimum:
                self._notes.keep(index, picture)
                self._notes.enter(index)
                return True
            picture = self._notes.group(index, scope, outcomes)
        self._notes.keep(index, picture)
        return False

    def _alone(self, walk: "_Walk", scope: Scope, waiting: Collection[int]) -> dict[int, GroupPlacement]:
        """Return what would be placed of the children if each were alone in the scope, until those are enough.

        Who waits for a sibling cannot be asked alone, and is taken to have room.
        """
        mark = self._snapshot.ledger.mark()
        outcomes: dict[int, GroupPlacement] = {}
        able = 0
        for child in walk.children:
            if child in waiting:
                able += 1
                self._notes.ask(child)
            elif able < walk.minimum:
                able += next(self._ways(child, scope), False)
                outcomes |= self._outcomes(range(child, self._unit.nodes[child].end))
                self._snapshot.ledger.rollback(mark)
            self._forget(child)
        return outcomes

    def _back(self, walk: "_Walk") -> bool:
        """Go back to the last child that was placed and ask it for another way; return whether that was possible."""
        if not walk.rewind() or self._is_tired():
            return False
        if self._budget <= 0:
            self._is_spent = True
            return False
        self._budget -= 1
        walk.retry()
        return True

    def _forget(self, index: int) -> None:
        """Drop what is known of the places of a node and all below it."""
        for below in range(index, self._unit.nodes[index].end):
            self._scopes.pop(below, None)
            self._seats.pop(below, None)

    # The second pass: everybody else.

    def _extend(self, index: int, outer: Scope) -> None:
        """Add what has not been placed below a node: first where the first pass put it, then wherever it may be.

        The first pass may have chosen a domain that is only preferred, and extra pods are not held to that.
        """
        node = self._unit.nodes[index]
        scope = self._scopes[index]
        widest = self._choices.widest(index, scope, outer)
        places = (scope,) if widest is scope else (scope, widest)
        if node.leaf:
            self._add_rest(index, places)
        for child in self._company.children(index, node.children):
            if child in self._scopes or self._add_child(child, places):
                self._extend(child, widest)
        if len(places) > 1 and not self._is_inside(index, scope):
            self._scopes[index] = widest

    def _add_child(self, index: int, places: Sequence[Scope]) -> bool:
        """Place the minimum of a group that the first pass has left out; return whether that was possible.

        What did not fit there when less was placed need not be asked again, unless its pods wait for others.
        """
        if self._notes.failed(index) and not self._sees_others(self._needs.most[index]):
            places = places[1:]
        return any(next(self._ways(index, place), False) for place in places)

    def _sees_others(self, kinds: Iterable[int]) -> bool:
        return any(depends_on_other_pods(self._snapshot, self._needs.classes[found]) for found in kinds)

    def _add_rest(self, index: int, places: Sequence[Scope]) -> None:
        """Place the pods of a leaf that have no node yet, as far as there is room."""
        seats = self._seats.get(index, ())
        seated = {member.uid for member, _ in seats}
        rest = tuple(member for member in self._company.members(index) if member.uid not in seated)
        for scope in places:
            placed = self._placed(scope, rest, len(rest))
            seats, rest = (*seats, *placed.seats), placed.left
        self._seats[index] = seats
        if rest:
            self._notes.leaf(index, places[-1], PlacedGroup(seats=seats, left=rest))

    def _is_inside(self, index: int, scope: Scope) -> bool:
        """Tell whether all that was placed below a node is in a scope."""
        rows = set(scope.rows.tolist())
        below = range(index, self._unit.nodes[index].end)
        return all(row in rows for place in below for _, row in self._seats.get(place, ()))

    # What it all proves.

    def _is_exhaustive(self) -> bool:
        """Tell whether having found nothing proves that there is nothing, since everything there is was tried.

        That holds where all pods are alike, see nobody, and stand in domains of the same kind: then it does not
        matter who takes which node.
        """
        return self._needs.interchangeable and not self._sees_others(self._needs.classes)


class _Walk:
    """The state of one walk over the children of a group: who was placed, who was left out, who is next."""

    def __init__(self, children: Sequence[int], minimum: int) -> None:
        self.children = children
        self.minimum = minimum
        self._placed = 0
        self._trail: list[Iterator[bool] | None] = []
        """For each child that had its turn, the ways that it has left; none for one that was left out."""

    @property
    def done(self) -> bool:
        """Tell whether enough children have been placed."""
        return self._placed >= self.minimum

    @property
    def open(self) -> bool:
        """Tell whether enough children can still be placed, if all that are left can."""
        return self._placed + len(self.children) - len(self._trail) >= self.minimum

    @property
    def idle(self) -> bool:
        """Tell whether nobody has been placed."""
        return not self._placed

    @property
    def child(self) -> int:
        """Return the child whose turn it is."""
        return self.children[len(self._trail)]

    @property
    def rest(self) -> Sequence[int]:
        """Return the children that have not had their turn."""
        return self.children[len(self._trail) :]

    def take(self, ways: Iterator[bool]) -> None:
        """Place the next child, or leave it out where it has no way."""
        is_placed = next(ways, False)
        self._trail.append(ways if is_placed else None)
        self._placed += is_placed

    def rewind(self) -> bool:
        """Go back past the children that were left out; return whether there is one before them."""
        while self._trail and self._trail[-1] is None:
            self._trail.pop()
        return bool(self._trail)

    def retry(self) -> None:
        """Place the last child another way, or leave it out where it has none."""
        ways = self._trail.pop()
        assert ways is not None  # noqa: S101 - rewound to one that was placed
        self._placed -= 1
        self.take(ways)
