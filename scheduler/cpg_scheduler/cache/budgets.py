"""PodDisruptionBudgets, the pods that they cover, and what they still allow.

Thousands of budgets may cover the same pods, so nothing is kept for each pair of a budget and a pod. The budgets of a
namespace are numbered, and a set of them is an integer. Which of them cover a pod is computed when a plan asks for it,
and kept until a selector or the labels of the pod change.

The disruption controller counts with a delay. Pods that we evict are therefore taken off here, or two plans in a row
would use the same allowance. A pod stays off until it terminates and the budget's status has been written since, in
either order. Pods that are not evicted after all are refunded.
"""

from collections.abc import Iterable, Iterator, Mapping

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.budgets import BudgetSet, EvictionCounter, numbers_of
from cpg_scheduler.cache.selector_index import SelectorIndex
from cpg_scheduler.cache.spent_pods import SpentPods


class _NamespaceBudgets:
    """The budgets of a namespace, each with a number."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._unused: list[int] = []
        self._selectors = SelectorIndex()
        self.allowed = EvictionCounter()
        """What the status of each budget allows."""
        self.selecting: dict[str, BudgetSet] = {}
        """The budgets that select a pod, by its UID, as far as they have been asked for."""
        self._disrupted: dict[str, BudgetSet] = {}
        """The budgets whose status has counted the eviction of a pod, by its name."""
        self.spent: list[SpentPods] = []

    @property
    def is_empty(self) -> bool:
        """Return whether there is no budget."""
        return len(self._unused) == len(self.keys)

    def add(self, key: str, matcher: LabelMatcher) -> int:
        """Add a budget; return its number."""
        if not self._unused:
            self._unused.append(len(self.keys))
            self.keys.append("")
        number = self._unused.pop()
        self.keys[number] = key
        self._selectors.add(number, matcher)
        self.selecting.clear()
        return number

    def remove(self, number: int, matcher: LabelMatcher) -> None:
        """Remove a budget; its number may be used again."""
        self._selectors.remove(number, matcher)
        self.selecting.clear()
        self.allowed.put(number, 0)
        for found in self.spent:
            found.forget_budget(number)
        self.drop_settled()
        self._unused.append(number)

    def replace_disrupted(self, number: int, old: Iterable[str], new: Iterable[str]) -> None:
        """Take the pods, by name, whose evictions a budget has counted, in place of those before."""
        for name in {*old} ^ {*new}:
            budgets = self._disrupted.pop(name, 0) ^ (1 << number)
            if budgets:
                self._disrupted[name] = budgets

    def selecting_pod(self, pod: Pod) -> BudgetSet:
        """Return the budgets that select a pod."""
        uid = pod.metadata.uid
        if uid not in self.selecting:
            self.selecting[uid] = self._selectors.selecting(pod.metadata.labels)
        return self.selecting[uid]

    def covering(self, pod: Pod) -> BudgetSet:
        """Return the budgets that select a pod and have not counted its eviction."""
        budgets = self.selecting_pod(pod)
        return budgets & ~self._disrupted.get(pod.metadata.name, 0) if self._disrupted else budgets

    def drop_settled(self) -> None:
        """Forget pods that are off no budget any more."""
        self.spent = [found for found in self.spent if found]


class Budgets:
    """The PodDisruptionBudgets of a cluster."""

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        """Start without budgets; ``pods`` are all pods by UID."""
        self._pods = pods
        self._budgets: dict[str, tuple[PodDisruptionBudget, LabelMatcher, int]] = {}
        self._namespaces: dict[str, _NamespaceBudgets] = {}

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets as the API server has them."""
        return (budget for budget, *_ in self._budgets.values())

    def __bool__(self) -> bool:
        """Return whether there is any budget."""
        return bool(self._budgets)

    # Changes.

    def put(self, budget: PodDisruptionBudget) -> None:
        """Take the state of a budget."""
        key, namespace = budget.metadata.key, budget.metadata.namespace
        old = self._budgets.get(key)
        if old is not None and old[0].spec.selector != budget.spec.selector:
            self.remove(key)
            old = None
        there = self._namespaces.setdefault(namespace, _NamespaceBudgets())
        if old is None:
            matcher = LabelMatcher.compile(budget.spec.selector)
            number = there.add(key, matcher)
        else:
            _, matcher, number = old
            for found in there.spent:
                found.count(number)
            there.drop_settled()
        there.allowed.put(number, budget.status.disruptions_allowed)
        there.replace_disrupted(number, _disrupted(old[0]) if old is not None else (), _disrupted(budget))
        self._budgets[key] = (budget, matcher, number)

    def remove(self, key: str) -> None:
        """Forget a budget."""
        found = self._budgets.pop(key, None)
        if found is None:
            return
        budget, matcher, number = found
        there = self._namespaces[budget.metadata.namespace]
        there.replace_disrupted(number, _disrupted(budget), ())
        there.remove(number, matcher)
        if there.is_empty:
            del self._namespaces[budget.metadata.namespace]

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Put the new state of a pod in place of the old one."""
        there = self._namespaces.get(old.metadata.namespace) if old is not None else None
        if old is None or there is None:
            return
        if new is None or new.metadata.labels != old.metadata.labels:
            there.selecting.pop(old.metadata.uid, None)
        if there.spent and (new is None or new.is_terminating):
            for found in there.spent:
                found.end(old.metadata.uid)
            there.drop_settled()

    def spend(self, pods: Iterable[Pod]) -> None:
        """Take pods off their budgets: they are about to be evicted."""
        found: dict[str, dict[str, BudgetSet]] = {}
        for pod in pods:
            if budgets := self._selecting(pod):
                found.setdefault(pod.metadata.namespace, {})[pod.metadata.uid] = budgets
        for namespace, budgets_of in found.items():
            self.refund(budgets_of)
            self._namespaces[namespace].spent.append(SpentPods(budgets_of))

    def refund(self, uids: Iterable[str]) -> None:
        """Put pods back that are not evicted after all."""
        gone = frozenset(uids)
        for there in self._namespaces.values():
            for found in there.spent:
                found.drop(gone)
            there.drop_settled()

    # Questions.

    def covering(self, uid: str) -> tuple[str, BudgetSet]:
        """Return the namespace of a running pod and the budgets that cover it."""
        pod = self._pods[uid]
        namespace = pod.metadata.namespace
        there = self._namespaces.get(namespace)
        return namespace, 0 if there is None else there.covering(pod)

    def left(self, namespace: str) -> EvictionCounter:
        """Return how many evictions each budget of a namespace allows, without the pods that were taken off."""
        there = self._namespaces[namespace]
        counter = there.allowed.copy()
        for found in there.spent:
            for budgets in found.unsettled():
                counter.take(budgets)
        return counter

    def name(self, namespace: str, budget: int) -> str:
        """Return the name of a budget, with its namespace."""
        return self._namespaces[namespace].keys[budget]

    def overdrawn_by(self, pods: Iterable[Pod]) -> dict[str, int]:
        """Return the budgets whose status does not allow the eviction of some pods, with how many are too many."""
        left: dict[str, EvictionCounter] = {}
        excess: dict[str, EvictionCounter] = {}
        for pod in pods:
            budgets, namespace = self._selecting(pod), pod.metadata.namespace
            if budgets:
                if namespace not in left:
                    left[namespace], excess[namespace] = self._namespaces[namespace].allowed.copy(), EvictionCounter()
                excess[namespace].add(left[namespace].take(budgets))
        return {
            self.name(namespace, number): counter.value(number)
            for namespace, counter in excess.items()
            for number in numbers_of(counter.nonzero)
        }

    def _selecting(self, pod: Pod) -> BudgetSet:
        there = self._namespaces.get(pod.metadata.namespace)
        return 0 if there is None else there.selecting_pod(pod)


def _disrupted(budget: PodDisruptionBudget) -> Iterable[str]:
    return budget.status.disrupted_pods or ()
