"""PodDisruptionBudgets, and which of the running pods they cover.

A pod has few labels and a namespace may have many budgets, so budgets are found by one label that they ask for; those
that ask for none in particular are asked one by one.

What a budget allows is counted by the disruption controller, a moment after the fact. Pods that we evict are taken off
here, or two plans in a row would both use the same allowance: each until it is on its way out, and the budget has been
written since it was spent, in whichever order these come. One that stays after all is put back.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.values import Budget

Place = tuple[str, tuple[str, str] | None]
"""A namespace, and a label that a budget there asks for, or None for one that asks for none in particular."""


class _Spent(Struct):
    """What has become known since a pod was taken off a budget."""

    is_counted: bool = False
    is_ending: bool = False


class Budgets:
    """The budgets of a cluster."""

    def __init__(self) -> None:
        """Start without budgets."""
        self._budgets: dict[str, tuple[PodDisruptionBudget, LabelMatcher]] = {}
        self._at: dict[Place, set[str]] = {}
        self._covered: dict[str, dict[str, str]] = {}
        self._spent: dict[str, dict[str, _Spent]] = {}

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets as the API server has them."""
        return (budget for budget, _ in self._budgets.values())

    def put(self, budget: PodDisruptionBudget, pods: Collection[Pod]) -> None:
        """Take the state of a budget; ``pods`` are all there are, of which it covers those that it selects."""
        key = budget.metadata.key
        known = self._budgets.get(key)
        for spent in self._spent.get(key, {}).values():
            spent.is_counted = True
        self._settle(key)
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
        if old is not None and self._spent and (new is None or new.is_terminating):
            self._note_end(old.metadata.uid)
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        if old is not None:
            for key in self._selecting(old):
                self._covered[key].pop(old.metadata.uid, None)
        if new is not None:
            for key in self._selecting(new):
                self._covered[key][new.metadata.uid] = new.metadata.name

    def spend(self, pods: Iterable[Pod]) -> None:
        """Take pods off that are about to be evicted."""
        for pod in pods:
            for key in self._selecting(pod):
                self._spent.setdefault(key, {})[pod.metadata.uid] = _Spent()

    def left_by(self, pods: Iterable[Pod]) -> dict[str, int]:
        """Return what each budget that covers some of these pods would allow without them, by what its status says."""
        found: dict[str, int] = {}
        for pod in pods:
            for key in self._selecting(pod):
                allowed = self._budgets[key][0].status.disruptions_allowed
                found[key] = found.get(key, allowed) - 1
        return found

    def refund(self, uids: Iterable[str]) -> None:
        """Put back pods that are not evicted after all."""
        for uid in uids:
            for key, spent in tuple(self._spent.items()):
                spent.pop(uid, None)
                self._settle(key)

    def _note_end(self, uid: str) -> None:
        for key, spent in tuple(self._spent.items()):
            if uid in spent:
                spent[uid].is_ending = True
                self._settle(key)

    def _settle(self, key: str) -> None:
        """Forget those of whom the controller knows, and who are on their way out."""
        left = {uid: one for uid, one in self._spent.get(key, {}).items() if not (one.is_counted and one.is_ending)}
        if left:
            self._spent[key] = left
        else:
            self._spent.pop(key, None)

    def all(self) -> tuple[Budget, ...]:
        """Return what may be disrupted now; pods that are on their way out already are covered no more."""
        return tuple(
            Budget(
                name=key,
                allowed=max(budget.status.disruptions_allowed - len(self._spent.get(key, ())), 0),
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
