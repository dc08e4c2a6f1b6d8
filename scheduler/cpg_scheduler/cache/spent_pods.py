"""Pods that are taken off their budgets, because they are about to be evicted."""

from collections.abc import Iterable

from cpg_engine.preemption.budgets import BudgetSet


class SpentPods:
    """Pods of a namespace that were taken off at the same time, each with the budgets that cover it."""

    def __init__(self, pods: dict[str, BudgetSet]) -> None:
        """Start with pods, by UID, that have not terminated, and budgets that have not been counted since."""
        self._pods = pods
        self._ending: set[str] = set()
        self._counted: BudgetSet = 0
        self._covering = _union(pods)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._pods)

    def unsettled(self) -> Iterable[BudgetSet]:
        """Yield for each pod the budgets that it is still off."""
        for uid, budgets in self._pods.items():
            yield budgets & ~self._counted if uid in self._ending else budgets

    def count(self, budget: int) -> None:
        """Note that the status of a budget has been written since."""
        self._counted |= 1 << budget
        if not self._covering & ~self._counted:
            self.drop(self._ending)

    def end(self, uid: str) -> None:
        """Note that a pod terminates."""
        if self._pods.get(uid, 0) & ~self._counted:
            self._ending.add(uid)
        else:
            self.drop((uid,))

    def drop(self, uids: Iterable[str]) -> None:
        """Forget pods."""
        gone = self._pods.keys() & uids
        if gone:
            self._keep({uid: budgets for uid, budgets in self._pods.items() if uid not in gone})

    def forget_budget(self, budget: int) -> None:
        """Forget a budget: its number may be used for another one."""
        if self._covering >> budget & 1:
            rest = ((uid, budgets & ~(1 << budget)) for uid, budgets in self._pods.items())
            self._keep({uid: budgets for uid, budgets in rest if budgets})
        self._counted &= ~(1 << budget)

    def _keep(self, pods: dict[str, BudgetSet]) -> None:
        self._pods = pods
        self._ending &= pods.keys()
        self._covering = _union(pods)


def _union(pods: dict[str, BudgetSet]) -> BudgetSet:
    found = 0
    for budgets in pods.values():
        found |= budgets
    return found
