"""PodDisruptionBudgets and the running pods that they cover.

Budgets are found by one label that their selector requires, because a namespace may have many budgets and a pod has
few labels; budgets that require no particular label are checked one by one. Budgets of one namespace with the same
selector share their cover, and only the one that allows least is reported, so a thousand of them cost as much as one.

The disruption controller counts with a delay. Pods that we evict are therefore taken off here, or two plans in a row
would use the same allowance. A pod stays off until it terminates and the budget's status has been written since, in
either order. Pods that are not evicted after all are refunded.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct, field

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.values import DisruptionBudget

IndexKey: TypeAlias = tuple[str, tuple[str, str] | None]
"""A namespace, and a label that a selector requires, or None for one that requires no particular label."""


class _SpentPod(Struct):
    """What is known about a pod since it was taken off a budget."""

    is_counted: bool = False
    is_ending: bool = False


class _Cover(Struct, eq=False):
    """The budgets of one selector, and the pods that they cover, by UID, with their names."""

    namespace: str
    matcher: LabelMatcher
    pods: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, None] = field(default_factory=dict)
    frozen_uids: frozenset[str] | None = None
    """The covered pods, until they change."""

    @property
    def index_key(self) -> IndexKey:
        """Return the key by which the cover is found."""
        return self.namespace, self.matcher.equal[0] if self.matcher.equal else None

    def uids(self) -> frozenset[str]:
        """Return the covered pods; it is the same object until they change."""
        if self.frozen_uids is None:
            self.frozen_uids = frozenset(self.pods)
        return self.frozen_uids

    def put(self, pod: Pod) -> None:
        """Cover a pod, if it is selected."""
        if self.matcher.matches(pod.metadata.labels):
            self.pods[pod.metadata.uid] = pod.metadata.name
            self.frozen_uids = None

    def remove(self, uid: str) -> None:
        """No longer cover a pod."""
        if self.pods.pop(uid, None) is not None:
            self.frozen_uids = None


class Budgets:
    """The PodDisruptionBudgets of a cluster."""

    def __init__(self) -> None:
        """Start without budgets."""
        self._budgets: dict[str, tuple[PodDisruptionBudget, _Cover]] = {}
        self._covers: dict[tuple[str, LabelMatcher], _Cover] = {}
        self._covers_by_key: dict[IndexKey, dict[_Cover, None]] = {}
        self._running: dict[str, dict[str, Pod]] = {}
        """The pods that may be disrupted, by namespace and UID."""
        self._spent: dict[str, dict[str, _SpentPod]] = {}
        """The pods that are taken off, by budget and UID."""

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets as the API server has them."""
        return (budget for budget, _ in self._budgets.values())

    def put(self, budget: PodDisruptionBudget) -> None:
        """Take the state of a budget."""
        key = budget.metadata.key
        known = self._budgets.get(key)
        for spent in self._spent.get(key, {}).values():
            spent.is_counted = True
        self._drop_settled(key)
        if known is not None and known[0].spec.selector == budget.spec.selector:
            self._budgets[key] = (budget, known[1])
            return
        self.remove(key)
        cover = self._cover_for(budget.metadata.namespace, LabelMatcher.compile(budget.spec.selector))
        cover.budgets[key] = None
        self._budgets[key] = (budget, cover)

    def remove(self, key: str) -> None:
        """Forget a budget."""
        known = self._budgets.pop(key, None)
        if known is None:
            return
        self._spent.pop(key, None)
        cover = known[1]
        del cover.budgets[key]
        if not cover.budgets:
            del self._covers[cover.namespace, cover.matcher]
            covers = self._covers_by_key[cover.index_key]
            del covers[cover]
            if not covers:
                del self._covers_by_key[cover.index_key]

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Put the new state of a pod in place of the old one."""
        if old is not None and self._spent and (new is None or new.is_terminating):
            self._note_end(old.metadata.uid)
        before, after = _disruptable(old), _disruptable(new)
        if before is not None:
            self._remove_running(before)
        if after is not None:
            self._running.setdefault(after.metadata.namespace, {})[after.metadata.uid] = after
        if before is not None and after is not None and before.metadata.labels == after.metadata.labels:
            return
        if before is not None:
            for cover in self._possible_covers(before):
                cover.remove(before.metadata.uid)
        if after is not None:
            for cover in self._possible_covers(after):
                cover.put(after)

    def spend(self, pods: Iterable[Pod]) -> None:
        """Take pods off their budgets: they are about to be evicted."""
        for pod in pods:
            for key in self._budgets_of(pod):
                self._spent.setdefault(key, {})[pod.metadata.uid] = _SpentPod()

    def refund(self, uids: Iterable[str]) -> None:
        """Put pods back that are not evicted after all."""
        for uid in uids:
            for key, spent in tuple(self._spent.items()):
                spent.pop(uid, None)
                self._drop_settled(key)

    def allowed_after(self, pods: Iterable[Pod]) -> dict[str, int]:
        """Return what the status of each budget that covers some of these pods allows after their eviction."""
        found: dict[str, int] = {}
        for pod in pods:
            for key in self._budgets_of(pod):
                allowed = self._budgets[key][0].status.disruptions_allowed
                found[key] = found.get(key, allowed) - 1
        return found

    def current(self) -> tuple[DisruptionBudget, ...]:
        """Return what may be disrupted now, by budget; terminating pods are not covered.

        Of budgets that cover the same pods, the one that allows least is returned; those that cover none are left out.
        """
        strictest: dict[frozenset[str], DisruptionBudget] = {}
        for key, (budget, cover) in sorted(self._budgets.items()):
            pods = _undisrupted(budget, cover)
            allowed = max(budget.status.disruptions_allowed - len(self._spent.get(key, ())), 0)
            if pods and (pods not in strictest or allowed < strictest[pods].allowed):
                strictest[pods] = DisruptionBudget(name=key, allowed=allowed, pods=pods)
        return tuple(sorted(strictest.values(), key=lambda found: found.name))

    def _remove_running(self, pod: Pod) -> None:
        running = self._running[pod.metadata.namespace]
        del running[pod.metadata.uid]
        if not running:
            del self._running[pod.metadata.namespace]

    def _note_end(self, uid: str) -> None:
        for key, spent in tuple(self._spent.items()):
            if uid in spent:
                spent[uid].is_ending = True
                self._drop_settled(key)

    def _drop_settled(self, key: str) -> None:
        """Forget the spent pods that terminate and that the controller has counted."""
        left = {uid: one for uid, one in self._spent.get(key, {}).items() if not (one.is_counted and one.is_ending)}
        if left:
            self._spent[key] = left
        else:
            self._spent.pop(key, None)

    def _cover_for(self, namespace: str, matcher: LabelMatcher) -> _Cover:
        """Return the cover that all budgets of a namespace with this selector share."""
        cover = self._covers.get((namespace, matcher))
        if cover is None:
            cover = self._covers[namespace, matcher] = _Cover(namespace, matcher)
            self._covers_by_key.setdefault(cover.index_key, {})[cover] = None
            for pod in self._running.get(namespace, {}).values():
                cover.put(pod)
        return cover

    def _possible_covers(self, pod: Pod) -> Iterator[_Cover]:
        """Yield every cover that may have a pod, by the pod's labels."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for label in (*labels.items(), None):
            yield from self._covers_by_key.get((namespace, label), ())

    def _budgets_of(self, pod: Pod) -> Iterator[str]:
        """Yield the budgets that cover a pod."""
        for cover in self._possible_covers(pod):
            if cover.matcher.matches(pod.metadata.labels):
                yield from cover.budgets


def _undisrupted(budget: PodDisruptionBudget, cover: _Cover) -> frozenset[str]:
    """Return the covered pods, without those for which the API server has accepted an eviction."""
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return cover.uids()
    return frozenset(uid for uid, name in cover.pods.items() if name not in disrupted)


def _disruptable(pod: Pod | None) -> Pod | None:
    """Return a pod if it may be disrupted: it has a node, and neither terminates nor has ended."""
    if pod is None or not pod.spec.node_name or pod.is_terminal or pod.is_terminating:
        return None
    return pod
