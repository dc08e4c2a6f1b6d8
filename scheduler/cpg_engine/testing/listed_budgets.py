"""Budgets that list the pods that they cover."""

from collections.abc import Iterable

from msgspec import Struct

from cpg_engine.preemption.budgets import BudgetSet, EvictionCounter


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget: how many of the pods that it covers, by UID, may be disrupted now."""

    name: str
    allowed: int
    pods: frozenset[str]


class ListedBudgets:
    """The source of budgets for a plan."""

    def __init__(self, budgets: Iterable[DisruptionBudget] = ()) -> None:
        """Take the budgets in the order of their names, so that their order does not matter."""
        self._budgets = sorted(budgets, key=lambda found: found.name)

    def __bool__(self) -> bool:
        """Return whether there is any budget."""
        return bool(self._budgets)

    def covering(self, uid: str) -> tuple[str, BudgetSet]:
        """Return the budgets that cover a pod; all are in one namespace."""
        return "default", sum(1 << number for number, found in enumerate(self._budgets) if uid in found.pods)

    def left(self, namespace: str) -> EvictionCounter:
        """Return how many evictions each budget allows."""
        del namespace
        counter = EvictionCounter()
        for number, found in enumerate(self._budgets):
            counter.put(number, found.allowed)
        return counter

    def name(self, namespace: str, budget: int) -> str:
        """Return the name of a budget."""
        del namespace
        return self._budgets[budget].name
