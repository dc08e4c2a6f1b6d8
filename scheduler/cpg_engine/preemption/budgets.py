"""How many evictions PodDisruptionBudgets still allow.

The pods that a budget covers use up its allowance in some order, and every pod after that violates it. Evictions are
counted in the order of importance, as in kube-scheduler. While it is still open which units are evicted, the order is
reversed, so that the least important units use the allowance.

Thousands of budgets may cover the same pod. So the budgets of a namespace are numbered, a set of them is an integer
with bit n for budget n, and an eviction is counted for all of them at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeAlias

from cpg_engine.preemption.values import VictimUnit

BudgetSet: TypeAlias = int
"""Budgets of a namespace: bit n is set for budget n."""

MAX_NAMES = 10
"""Violated budgets that are named for an eviction."""


class EvictionCounter:
    """A number for each budget of a namespace; plane i has bit i of each."""

    def __init__(self, planes: Iterable[BudgetSet] = ()) -> None:
        """Start with these numbers; by default all are zero."""
        self._planes = list(planes)

    def copy(self) -> "EvictionCounter":
        """Return a counter with the same numbers."""
        return EvictionCounter(self._planes)

    @property
    def nonzero(self) -> BudgetSet:
        """Return the budgets with a number above zero."""
        found = 0
        for plane in self._planes:
            found |= plane
        return found

    def value(self, budget: int) -> int:
        """Return the number of a budget."""
        return sum((plane >> budget & 1) << place for place, plane in enumerate(self._planes))

    def put(self, budget: int, number: int) -> None:
        """Set the number of a budget; a negative one counts as zero."""
        number, bit = max(number, 0), 1 << budget
        self._planes += [0] * (number.bit_length() - len(self._planes))
        for place, plane in enumerate(self._planes):
            self._planes[place] = plane | bit if number >> place & 1 else plane & ~bit

    def add(self, budgets: BudgetSet) -> None:
        """Add one to the numbers of some budgets."""
        for place, plane in enumerate(self._planes):
            self._planes[place], budgets = plane ^ budgets, plane & budgets
        if budgets:
            self._planes.append(budgets)

    def take(self, budgets: BudgetSet) -> BudgetSet:
        """Subtract one from the numbers of some budgets; return those that are zero already and stay so."""
        borrow = budgets & self.nonzero
        zero = budgets ^ borrow
        for place, plane in enumerate(self._planes):
            if not borrow:
                break
            self._planes[place], borrow = plane ^ borrow, borrow & ~plane
        return zero


class BudgetSource(Protocol):
    """The budgets of a cluster."""

    def __bool__(self) -> bool:
        """Return whether there is any."""
        ...

    def covering(self, uid: str) -> tuple[str, BudgetSet]:
        """Return the namespace of a pod and the budgets that cover it."""
        ...

    def left(self, namespace: str) -> EvictionCounter:
        """Return how many evictions each budget of a namespace allows now."""
        ...

    def name(self, namespace: str, budget: int) -> str:
        """Return the name of a budget."""
        ...


class BudgetAllowances:
    """What the budgets allow, as all steps of one plan see it. The pods of a unit are in one namespace."""

    def __init__(self, source: BudgetSource) -> None:
        """Read allowances when they are first needed."""
        self._source = source
        self._left: dict[str, EvictionCounter] = {}

    def __bool__(self) -> bool:
        """Return whether there is any budget."""
        return bool(self._source)

    def violations(self, units: Sequence[VictimUnit]) -> list[bool]:
        """Return for each unit whether its eviction violates a budget once those before it are evicted."""
        if not self._source:
            return [False] * len(units)
        left: dict[str, EvictionCounter] = {}
        return [bool(self._take(unit, left)[1]) for unit in units]

    def violations_alone(self, units: Sequence[VictimUnit]) -> list[bool]:
        """Return for each unit whether its eviction violates a budget even if no other unit is evicted."""
        if not self._source:
            return [False] * len(units)
        return [bool(self._take(unit, {})[1]) for unit in units]

    def violated_names(self, units: Sequence[VictimUnit]) -> list[tuple[str, ...]]:
        """Return what ``violations`` is about: the names of the violated budgets, a few for each unit."""
        left: dict[str, EvictionCounter] = {}
        return [self._names(*self._take(unit, left)) for unit in units]

    def _take(self, unit: VictimUnit, left: dict[str, EvictionCounter]) -> tuple[str, BudgetSet]:
        """Count the eviction of a unit; return its namespace and the budgets that this violates."""
        namespace, violated = "", 0
        for uid in unit.pods:
            namespace, budgets = self._source.covering(uid)
            if budgets:
                if namespace not in left:
                    left[namespace] = self._allowed(namespace).copy()
                violated |= left[namespace].take(budgets)
        return namespace, violated

    def _allowed(self, namespace: str) -> EvictionCounter:
        if namespace not in self._left:
            self._left[namespace] = self._source.left(namespace)
        return self._left[namespace]

    def _names(self, namespace: str, budgets: BudgetSet) -> tuple[str, ...]:
        return tuple(sorted(self._source.name(namespace, number) for number in islice(numbers_of(budgets), MAX_NAMES)))


def numbers_of(budgets: BudgetSet) -> Iterator[int]:
    """Yield the numbers of some budgets, the lowest first."""
    while budgets:
        lowest = budgets & -budgets
        yield lowest.bit_length() - 1
        budgets ^= lowest
