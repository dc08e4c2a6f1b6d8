"""What PodDisruptionBudgets allow.

A budget's allowance is used up by the pods that it covers in some order, and whoever comes when it is used up violates
it. That order is importance, as in kube-scheduler, where evictions are counted. Where it is still open who goes, it is
the other way round: then those who would be missed least are those that may go.
"""

from collections.abc import Iterable, Sequence

from cpg_engine.preemption.values import DisruptionBudget, VictimUnit

NOTHING: tuple[str, ...] = ()


class Allowances:
    """The budgets, by pod."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        """Look at the budgets, by name, so that their order does not matter."""
        self._allowed = {budget.name: budget.allowed for budget in budgets}
        self._of_pod: dict[str, list[str]] = {}
        for budget in sorted(budgets, key=lambda found: found.name):
            for uid in budget.pods:
                self._of_pod.setdefault(uid, []).append(budget.name)

    def __bool__(self) -> bool:
        """Tell whether any budget covers anybody."""
        return bool(self._of_pod)

    def cover(self, unit: VictimUnit) -> bool:
        """Tell whether a budget has anything to say about a unit."""
        return not self._of_pod.keys().isdisjoint(unit.pods)

    def violated(self, units: Sequence[VictimUnit]) -> list[tuple[str, ...]]:
        """Return for each unit the budgets that do not allow its eviction once those before it are evicted."""
        if not self._of_pod:
            return [NOTHING] * len(units)
        left = dict(self._allowed)
        return [self._taken(unit, left) for unit in units]

    def never_allowed(self, units: Sequence[VictimUnit]) -> list[tuple[str, ...]]:
        """Return for each unit the budgets that would not allow its eviction even if nobody else were evicted."""
        return [self._taken(unit, dict(self._allowed)) for unit in units] if self._of_pod else [NOTHING] * len(units)

    def _taken(self, unit: VictimUnit, left: dict[str, int]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for uid in unit.pods:
            for name in self._of_pod.get(uid, ()):
                left[name] -= 1
                if left[name] < 0:
                    found[name] = None
        return tuple(sorted(found)) if found else NOTHING
