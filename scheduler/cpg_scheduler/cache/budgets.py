"""PodDisruptionBudgets, and which of the running pods they cover.

A pod has few labels and a namespace may have many budgets, so budgets are found by one label that they ask for; those
that ask for none in particular are asked one by one. Budgets of one namespace that select the same share what they
cover, and of these a plan is told of the one that allows least: whoever writes a thousand of them gains nothing.

What a budget allows is counted by the disruption controller, a moment after the fact. Pods that we evict are taken off
here, or two plans in a row would both use the same allowance: each until it is on its way out, and the budget has been
written since it was spent, in whichever order these come. One that stays after all is put back.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.pod import Pod
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.values import DisruptionBudget

QueuePosition = tuple[str, tuple[str, str] | None]
"""A namespace, and a label that a budget there asks for, or None for one that asks for none in particular."""


class _Spent(Struct):
    """What has become known since a pod was taken off a budget."""

    is_counted: bool = False
    is_ending: bool = False


class _Cover(Struct, eq=False):
    """The pods that budgets of one selector cover, by UID, with their names; and these budgets."""

    namespace: str
    matcher: LabelMatcher
    pods: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, None] = field(default_factory=dict)
    known: frozenset[str] | None = None
    """The pods as they are told, until they change."""

    @property
    def place(self) -> QueuePosition:
        """Return where it is found."""
        return self.namespace, self.matcher.equal[0] if self.matcher.equal else None

    def uids(self) -> frozenset[str]:
        """Return the pods, the same for all who ask before they change."""
        if self.known is None:
            self.known = frozenset(self.pods)
        return self.known

    def put(self, pod: Pod) -> None:
        """Cover a pod, if it is selected."""
        if self.matcher.matches(pod.metadata.labels):
            self.pods[pod.metadata.uid] = pod.metadata.name
            self.known = None

    def remove(self, uid: str) -> None:
        """Cover a pod no more."""
        if self.pods.pop(uid, None) is not None:
            self.known = None


class Budgets:
    """The budgets of a cluster."""

    def __init__(self) -> None:
        """Start without budgets."""
        self._budgets: dict[str, tuple[PodDisruptionBudget, _Cover]] = {}
        self._covers: dict[tuple[str, LabelMatcher], _Cover] = {}
        self._at: dict[QueuePosition, dict[_Cover, None]] = {}
        self._running: dict[str, dict[str, Pod]] = {}
        """The pods that may be disrupted, by namespace and UID."""
        self._spent: dict[str, dict[str, _Spent]] = {}

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets as the API server has them."""
        return (budget for budget, _ in self._budgets.values())

    def put(self, budget: PodDisruptionBudget) -> None:
        """Take the state of a budget."""
        key = budget.metadata.key
        known = self._budgets.get(key)
        for spent in self._spent.get(key, {}).values():
            spent.is_counted = True
        self._settle(key)
        if known is not None and known[0].spec.selector == budget.spec.selector:
            self._budgets[key] = (budget, known[1])
            return
        self.remove(key)
        cover = self._cover(budget.metadata.namespace, LabelMatcher.compile(budget.spec.selector))
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
            del self._at[cover.place][cover]

    def swap(self, old: Pod | None, new: Pod | None) -> None:
        """Take the new state of a pod in place of the old."""
        if old is not None and self._spent and (new is None or new.is_terminating):
            self._note_end(old.metadata.uid)
        before, after = _running(old), _running(new)
        if before is not None:
            del self._running[before.metadata.namespace][before.metadata.uid]
        if after is not None:
            self._running.setdefault(after.metadata.namespace, {})[after.metadata.uid] = after
        if before is not None and after is not None and before.metadata.labels == after.metadata.labels:
            return
        if before is not None:
            for cover in self._covering(before):
                cover.remove(before.metadata.uid)
        if after is not None:
            for cover in self._covering(after):
                cover.put(after)

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

    def all(self) -> tuple[DisruptionBudget, ...]:
        """Return what may be disrupted now; pods that are on their way out already are covered no more.

        Of budgets that cover the same pods, it is the one that allows least; those that cover nobody say nothing.
        """
        strictest: dict[frozenset[str], DisruptionBudget] = {}
        for key, (budget, cover) in sorted(self._budgets.items()):
            pods = _disruptable(budget, cover)
            allowed = max(budget.status.disruptions_allowed - len(self._spent.get(key, ())), 0)
            if pods and (pods not in strictest or allowed < strictest[pods].allowed):
                strictest[pods] = DisruptionBudget(name=key, allowed=allowed, pods=pods)
        return tuple(sorted(strictest.values(), key=lambda found: found.name))

    def _cover(self, namespace: str, matcher: LabelMatcher) -> _Cover:
        """Return what is covered by all budgets of a namespace that select the same."""
        cover = self._covers.get((namespace, matcher))
        if cover is None:
            cover = self._covers[namespace, matcher] = _Cover(namespace, matcher)
            self._at.setdefault(cover.place, {})[cover] = None
            for pod in self._running.get(namespace, {}).values():
                cover.put(pod)
        return cover

    def _covering(self, pod: Pod) -> Iterator[_Cover]:
        """Yield what may cover a pod, by its labels, and all that does."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for label in (*labels.items(), None):
            yield from self._at.get((namespace, label), ())

    def _selecting(self, pod: Pod) -> Iterator[str]:
        """Yield the budgets that cover a pod."""
        for cover in self._covering(pod):
            if cover.matcher.matches(pod.metadata.labels):
                yield from cover.budgets


def _disruptable(budget: PodDisruptionBudget, cover: _Cover) -> frozenset[str]:
    disrupted = budget.status.disrupted_pods
    if not disrupted:
        return cover.uids()
    return frozenset(uid for uid, name in cover.pods.items() if name not in disrupted)


def _running(pod: Pod | None) -> Pod | None:
    """Return a pod if it may be disrupted: it has a node, and neither its end nor its deletion has come."""
    if pod is None or not pod.spec.node_name or pod.is_terminal or pod.is_terminating:
        return None
    return pod
