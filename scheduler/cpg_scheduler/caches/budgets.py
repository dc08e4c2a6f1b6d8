"""PodDisruptionBudgets, and which of the running pods they cover.

A pod has few labels and a namespace may have many budgets, so budgets are found by one label that they ask for; those
that ask for none in particular are asked one by one.

What a budget allows is counted by the disruption controller, a moment after the fact. Until it has written anew, pods
that we have evicted ourselves are taken off here, or two plans in a row would both use the same allowance.
"""

from collections.abc import Collection, Iterator

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.values import Budget

Place = tuple[str, tuple[str, str] | None]
"""A namespace, and a label that a budget there asks for, or None for one that asks for none in particular."""


class Budgets:
    """The budgets of a cluster."""

    def __init__(self) -> None:
        """Start without budgets."""
        self._budgets: dict[str, tuple[PodDisruptionBudget, LabelMatcher]] = {}
        self._at: dict[Place, set[str]] = {}
        self._covered: dict[str, dict[str, str]] = {}
        self._spent: dict[str, int] = {}

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets as the API server has them."""
        return (budget for budget, _ in self._budgets.values())

    def put(self, budget: PodDisruptionBudget, pods: Collection[Pod]) -> None:
        """Take the state of a budget; ``pods`` are all there are, of which it covers those that it selects."""
        key = budget.metadata.key
        known = self._budgets.get(key)
        self._spent.pop(key, None)
        if known is not None and known[0].spec.selector == budget.spec.selector:
            self._budgets[key] = (budget, known[1])
            return
        self.remove(key)
        matcher = LabelMatcher.compile(budget.spec.selector)
        self._budgets[key] = (budget, matcher)
        self._at.setdefault(_place(budget, matcher), set()).add(key)
        namespace = budget.metadata.namespace
        self._covered[key] = {
            pod.metadata.uid: pod.metadata.name
            for pod in pods
            if pod.metadata.namespace == namespace and matcher.matches(pod.metadata.labels)
        }

    def remove(self, key: str) -> None:
        """Forget a budget."""
        known = self._budgets.pop(key, None)
        if known is None:
            return
        self._at[_place(*known)].discard(key)
        self._covered.pop(key, None)
        self._spent.pop(key, None)

    def swap(self, old: Pod | None, new: Pod | None) -> None:
        """Take the new state of a pod in place of the old."""
        if not self._budgets:
            return
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        if old is not None:
            for key in self._selecting(old):
                self._covered[key].pop(old.metadata.uid, None)
        if new is not None:
            for key in self._selecting(new):
                self._covered[key][new.metadata.uid] = new.metadata.name

    def spend(self, pod: Pod) -> None:
        """Count a pod that is being evicted, until its budgets are counted anew."""
        for key in self._selecting(pod):
            self._spent[key] = self._spent.get(key, 0) + 1

    def all(self) -> tuple[Budget, ...]:
        """Return what may be disrupted now; pods that are on their way out already are covered no more."""
        return tuple(
            Budget(
                name=key,
                allowed=max(budget.status.disruptions_allowed - self._spent.get(key, 0), 0),
                pods=frozenset(self._disruptable(key, budget)),
            )
            for key, (budget, _) in sorted(self._budgets.items())
        )

    def _disruptable(self, key: str, budget: PodDisruptionBudget) -> Collection[str]:
        covered, disrupted = self._covered[key], budget.status.disrupted_pods
        return covered if not disrupted else [uid for uid, name in covered.items() if name not in disrupted]

    def _selecting(self, pod: Pod) -> Iterator[str]:
        """Yield the budgets that cover a pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for label in (*labels.items(), None):
            for key in self._at.get((namespace, label), ()):
                if self._budgets[key][1].matches(labels):
                    yield key


def _place(budget: PodDisruptionBudget, matcher: LabelMatcher) -> Place:
    return budget.metadata.namespace, matcher.equal[0] if matcher.equal else None
