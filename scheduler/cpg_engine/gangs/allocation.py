"""The search for the places of a tree of gangs.

One generator per node of the tree yields the ways to place the node's minimum, best first. While a way is looked at,
the ledger holds it; asking for the next one takes it back. A group asks its first child for a way, then, in what is
left, the second, and so on; when one finds none, the ones before are asked for other ways (backtracking, as long as
the budget lasts), and where the minimum allows, a child is left out. Nothing is ever undone anywhere else.

The first pass places minimums only, so that no group takes more than its share while a sibling still needs its own.
When the root has its minimum, a second pass adds everybody else, child by child, without backtracking.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from cpg_engine.gangs.choosing import Choices
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.notes import Notes, Outcome
from cpg_engine.gangs.placing import place_members, sees_others
from cpg_engine.gangs.unit import Member, Unit
from cpg_engine.gangs.world import World
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Finding, NodeReport
from cpg_engine.weights import Weights


class Options(Struct, frozen=True):
    """What an operator of the scheduler may choose."""

    weights: Weights = Weights()
    budget: int = 100
    """How many times in a search a group may be asked for another way."""
    detail: bool = False
    """Whether to look at the nodes for the reasons of a failure."""


class Search:
    """The search for one unit. It leaves the ledger holding what it placed; the caller takes it back."""

    def __init__(self, world: World, unit: Unit, options: Options) -> None:
        """Look at the unit; nothing is placed yet."""
        self._world = world
        self._unit = unit
        self._options = options
        self._budget = options.budget
        self._prefer = True
        self._needs = Needs(unit)
        self._scopes: dict[int, Scope] = {}
        self._seats: dict[int, tuple[tuple[Member, int], ...]] = {}
        self._notes = Notes(world, unit, self._needs, detail=options.detail)
        self._choices = Choices(world, self._needs, self._notes, options.weights)

    def run(self) -> Finding:
        """Place the unit, or find out that it has no place."""
        if not self._needs.admissible[0]:
            return Finding.INADMISSIBLE
        whole = self._world.topology.whole()
        if self._place(whole) or (self._has_preferences() and self._place_anyhow(whole)):
            self._extend(0, whole)
            return Finding.PLACED
        if self._budget < 0:
            return Finding.OUT_OF_BUDGET
        return Finding.IMPOSSIBLE if self._is_proof(whole) else Finding.NOT_FOUND

    def seats(self) -> Iterator[tuple[Member, int]]:
        """Yield who was placed at which row, in the order of the tree."""
        for index in sorted(self._seats):
            yield from self._seats[index]

    def reports(self) -> tuple[NodeReport, ...]:
        """Return what became of each group."""
        placed: dict[int, int] = {}
        for index in sorted(self._scopes, reverse=True):
            node = self._unit.nodes[index]
            seats = len(self._seats.get(index, ()))
            placed[index] = node.settled + seats if node.leaf else sum(child in placed for child in node.children)
        return self._notes.reports({index: Outcome(self._scopes[index], number) for index, number in placed.items()})

    # The first pass: minimums.

    def _place(self, whole: Scope) -> bool:
        return next(self._ways(0, whole), False)

    def _has_preferences(self) -> bool:
        return any(node.preferred for node in self._unit.nodes)

    def _place_anyhow(self, whole: Scope) -> bool:
        """Try again without preferences, which must never keep a tree from being placed."""
        self._prefer = False
        self._budget = self._options.budget
        return self._place(whole)

    def _ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield once for each way to place the minimum of a node inside a scope, while the ledger holds it."""
        if not self._needs.admissible[index]:
            return
        inner = self._leaf_ways if self._unit.nodes[index].leaf else self._group_ways
        found = False
        for domain in self._choices.scopes(index, scope, prefer=self._prefer):
            found = True
            self._scopes[index] = domain
            yield from inner(index, domain)
            self._forget(index)
        if not found and self._needs.met[index]:
            # Its minimum has been met for long, and no domain is open to it: it needs none.
            self._scopes[index] = Scope(chain=scope.chain, rows=scope.rows[:0])
            yield True
            self._forget(index)

    def _leaf_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the one way to fill a leaf inside a domain: identical pods have no second one worth trying."""
        node = self._unit.nodes[index]
        ledger = self._world.ledger
        needed = self._needs.missing(node)
        mark = ledger.mark()
        placed = place_members(self._world, scope.rows, node.pending, needed)
        if len(placed.seats) < needed:
            self._notes.leaf(index, scope, placed, node.settled + len(placed.seats))
        else:
            self._seats[index] = placed.seats
            yield True
        ledger.rollback(mark)

    def _group_ways(self, index: int, scope: Scope) -> Iterator[bool]:
        """Yield the ways to place enough children inside a domain, depth first with an explicit stack."""
        ledger = self._world.ledger
        mark = ledger.mark()
        walk = _Walk(children=self._order(index), minimum=self._unit.nodes[index].minimum)
        checked = False
        while True:
            if walk.done:
                yield True
            elif walk.open:
                child = walk.children[walk.position]
                walk.take(self._ways(child, scope))
                continue
            elif not checked:
                # Before siblings are moved about: is there room for enough of them one by one?
                checked = True
                self._notes.group(index, walk.tried())
                ledger.rollback(mark)
                if walk.idle or self._alone(walk.children, scope) < walk.minimum:
                    break
                walk = _Walk(children=walk.children, minimum=walk.minimum)
                continue
            if not self._back(walk):
                break
        ledger.rollback(mark)

    def _order(self, index: int) -> Sequence[int]:
        """Return the children in the order in which they are asked: their own, unless all of them are needed anyway.

        Then those that are confined to a domain come first, since the others can take what is left.
        """
        node = self._unit.nodes[index]
        if node.minimum < len(node.children):
            return node.children
        return sorted(node.children, key=lambda child: not self._is_confined(child))

    def _is_confined(self, index: int) -> bool:
        return any(node.required for node in self._unit.nodes[index : self._unit.nodes[index].end])

    def _alone(self, children: Sequence[int], scope: Scope) -> int:
        """Return how many of the children could be placed if they were alone in the scope."""
        mark = self._world.ledger.mark()
        able = 0
        for child in children:
            able += next(self._ways(child, scope), False)
            self._world.ledger.rollback(mark)
            self._forget(child)
        return able

    def _back(self, walk: "_Walk") -> bool:
        """Go back to the last child that has another way, or can be left out; return whether there was one."""
        while walk.trail:
            if self._budget <= 0:
                self._budget = -1
                return False
            self._budget -= 1
            if walk.retry():
                return True
        return False

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
        if node.leaf:
            for place in (scope, widest):
                self._add_rest(index, place)
            return
        for child in node.children:
            if child in self._scopes or any(next(self._ways(child, place), False) for place in (scope, widest)):
                self._extend(child, widest)

    def _add_rest(self, index: int, scope: Scope) -> None:
        """Place the pods of a leaf that have no node yet inside a scope, as far as there is room."""
        node = self._unit.nodes[index]
        seats = self._seats.get(index, ())
        seated = {member.uid for member, _ in seats}
        rest = [member for member in node.pending if member.uid not in seated]
        if not rest:
            return
        placed = place_members(self._world, scope.rows, rest, len(rest))
        self._seats[index] = (*seats, *placed.seats)
        if placed.left:
            self._notes.leaf(index, scope, placed, node.settled + len(self._seats[index]))

    # What it all proves.

    def _is_proof(self, whole: Scope) -> bool:
        """Tell whether having found nothing proves that there is nothing.

        Either a sound bound says so; or everything there is was tried, which holds where all pods are alike, see
        nobody, and stand in domains of the same kind: then it does not matter who takes which node.
        """
        if not self._choices.possible(0, whole):
            return True
        kinds = self._needs.classes.values()
        return self._needs.interchangeable and not any(sees_others(self._world, kind) for kind in kinds)


class _Walk:
    """The state of one walk over the children of a group: who was placed, who was left out, who is next."""

    def __init__(self, children: Sequence[int], minimum: int) -> None:
        self.children = children
        self.minimum = minimum
        self.position = 0
        self.trail: list[tuple[int, Iterator[bool] | None]] = []
        self._placed = 0

    @property
    def done(self) -> bool:
        """Tell whether enough children have been placed."""
        return self._placed >= self.minimum

    @property
    def open(self) -> bool:
        """Tell whether enough children can still be placed, if all that are left can."""
        return self.position < len(self.children) and self._placed + len(self.children) - self.position >= self.minimum

    @property
    def idle(self) -> bool:
        """Tell whether nobody has been placed."""
        return not self._placed

    def tried(self) -> list[tuple[int, bool]]:
        """Return the children that had their turn, and whether they were placed."""
        return [(child, ways is not None) for child, ways in self.trail]

    def take(self, ways: Iterator[bool]) -> None:
        """Place the next child, or leave it out where it has no way."""
        self._step(ways if next(ways, False) else None)

    def retry(self) -> bool:
        """Take the last child's next way, or leave it out; return whether that is anything new."""
        _, ways = self.trail.pop()
        self.position -= 1
        if ways is None:
            return False
        self._placed -= 1
        self._step(ways if next(ways, False) else None)
        return True

    def _step(self, ways: Iterator[bool] | None) -> None:
        self.trail.append((self.children[self.position], ways))
        self.position += 1
        self._placed += ways is not None
