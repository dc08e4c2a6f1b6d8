"""How many evictions PodDisruptionBudgets still allow.

The pods that a budget covers use up its allowance in some order, and every pod after that violates it. Evictions are
counted in the order of importance, as in kube-scheduler. While it is still open which units are evicted, the order is
reversed, so that the least important units use the allowance.
"""

from collections.abc import Iterable, Sequence

from cpg_engine.preemption.values import DisruptionBudget, VictimUnit

NONE_VIOLATED: tuple[str, ...] = ()


class BudgetAllowances:
    """The budgets, indexed by pod."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        """Index the budgets by name, so that their order does not matter."""
        self._allowed = {budget.name: budget.allowed for budget in budgets}
        self._of_pod: dict[str, list[str]] = {}
        for budget in sorted(budgets, key=lambda found: found.name):
            for uid in budget.pods:
                self._of_pod.setdefault(uid, []).append(budget.name)

    def __bool__(self) -> bool:
        """Return whether any budget covers any pod."""
        return bool(self._of_pod)

    def covers(self, unit: VictimUnit) -> bool:
        """Return whether a budget covers a pod of the unit."""
        return not self._of_pod.keys().isdisjoint(unit.pods)

    def violations(self, units: Sequence[VictimUnit]) -> list[tuple[str, ...]]:
        """Return for each unit the budgets that its eviction violates once those before it are evicted."""
        if not self._of_pod:
            return [NONE_VIOLATED] * len(units)
        left = dict(self._allowed)
        return [self._take(unit, left) for unit in units]

    def violations_alone(self, units: Sequence[VictimUnit]) -> list[tuple[str, ...]]:
        """Return for each unit the budgets that its eviction violates even if no other unit is evicted."""
        if not self._of_pod:
            return [NONE_VIOLATED] * len(units)
        return [self._take(unit, dict(self._allowed)) for unit in units]

    def _take(self, unit: VictimUnit, left: dict[str, int]) -> tuple[str, ...]:
        violated: dict[str, None] = {}
        for uid in unit.pods:
            for name in self._of_pod.get(uid, ()):
                left[name] -= 1
                if left[name] < 0:
                    violated[name] = None
        return tuple(sorted(violated)) if violated else NONE_VIOLATED
