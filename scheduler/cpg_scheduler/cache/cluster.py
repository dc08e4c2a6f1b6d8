"""The cluster as the scheduler last heard of it, and whom each piece of news concerns.

The watches call the ``on_…`` methods; each brings the ledger and the indexes up to date and adds to the news, which the
driver takes before each cycle. The rules:

1. **What is known does not depend on the order of arrival.** Pods, groups and nodes may come before or after what they
   name; the state is that of the objects, and every root that a change may have concerned is in the news.
2. **A change of a root's own touches it**: of its groups' specs, of its pods as far as scheduling reads them, of the
   Workloads and priority classes that it is judged by. What the scheduler writes itself never does.
3. **Room that may have appeared is told by node**: a pod is gone from it or has become smaller, or the node itself has
   changed. What else changes at nodes is told as having happened, for those who look at other pods.
4. **An assumed bind is a pod that has its node already**, so that nothing else has to know that the API server has not
   confirmed it yet. It ends when the watch shows a node, the pod comes to its end, or the bind has failed.
5. **Where we may not write, pods take room and are nothing else**: they are neither placed nor evicted. Who counted
   only the pods of some namespaces would give room away that others have taken.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import effective, known_priority, resolved_priority
from cpg_api.scheduling.workload import Workload
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_engine.cluster.requests import RequestError
from cpg_engine.decisions import Allocation, Bind
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.cache.budgets import Budgets
from cpg_scheduler.cache.relevance import asks, node_matters, pod_matters
from cpg_scheduler.cache.reservations import Reservation, Reservations
from cpg_scheduler.cache.storage import StorageCache
from cpg_scheduler.cache.victims import Lineage, Victims
from cpg_scheduler.keys import UnitKey

S = TypeVar("S")
ALONE = ""
"""The flavour of a pod that belongs to no group."""


class ClusterEvents(Struct):
    """What has happened since the driver last asked.

    ``touched`` are roots of which something of their own has changed; ``eased`` are nodes that may have more room than
    before; ``reshaped`` are nodes that have changed themselves, or are gone; ``moved`` says that anything at all has
    changed at any node; ``gone`` are pods, by UID, that take no room any more, ``leaving`` those whose end has begun.
    """

    touched: set[UnitKey] = field(default_factory=set)
    eased: set[str] = field(default_factory=set)
    reshaped: set[str] = field(default_factory=set)
    moved: bool = False
    gone: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)


class ClusterCache:
    """Everything the scheduler knows."""

    def __init__(
        self, snapshot: Snapshot, flavours: Iterable[str], scheduler_name: str, *, namespaces: Collection[str] = ()
    ) -> None:
        """Start knowing nothing; without namespaces, all are ours to write in."""
        self.snapshot = snapshot
        self.scheduler_name = scheduler_name
        self.namespaces = frozenset(namespaces)
        self.stores = {flavour: GroupStore(flavour) for flavour in flavours}
        self.workloads: dict[str, dict[tuple[str, str], Workload]] = {flavour: {} for flavour in self.stores}
        self.pods: dict[str, Pod] = {}
        self.news = ClusterEvents()
        self.budgets = Budgets()
        self.nominations = Reservations(snapshot.ledger, self._ease)
        self._victims = Victims(self.leaf_of, self._lineage, self._on_fall)
        self._regrouped: set[UnitKey] = set()
        self._reclassed = False
        self._highest_of: dict[UnitKey, int] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._members: dict[tuple[str, str], dict[str, Pod]] = {}
        self._singles: dict[tuple[str, str], Pod] = {}
        self._assumed: dict[str, Bind] = {}
        self.disturbances = 0
        """How often something has happened that may speak against a bind that was decided before."""
        self.storage = StorageCache(snapshot.ledger.storage, moved=self._on_storage, ready=self._on_claim_ready)

    @property
    def classes(self) -> PriorityClasses:
        """Return the priority classes."""
        return PriorityClasses(by_name=self._classes)

    # What the watches bring.

    def on_pod(self, change: Change[Pod]) -> None:
        """Take news of a pod."""
        old, new = _before(change), _after(change)
        if new is not None:
            new = self._as_assumed(new)
        elif old is not None:
            self._end_assumption(old.metadata.uid)
        self._swap(self.pods.get(old.metadata.uid) if old is not None else None, new)

    def on_node(self, change: Change[Node]) -> None:
        """Take news of a node."""
        old, new = _before(change), _after(change)
        self.disturbances += old is None or new is None or node_matters(old, new)
        if new is not None:
            self.snapshot.ledger.put_node(new)
            if old is None or node_matters(old, new):
                self._reshape(new.metadata.name)
        elif old is not None:
            self.snapshot.ledger.remove_node(old.metadata.name)
            self._reshape(old.metadata.name)

    def on_namespace(self, change: Change[Namespace]) -> None:
        """Take news of a namespace, whose labels pods may select by."""
        old, new = _before(change), _after(change)
        if new is not None:
            self.snapshot.ledger.put_namespace(new)
        elif old is not None:
            self.snapshot.ledger.remove_namespace(old.metadata.name)
        self.news.moved = True

    def on_group(self, flavour: str) -> Callable[[Change[Group]], None]:
        """Return who takes news of the groups of a flavour."""
        store = self.stores[flavour]

        def take(change: Change[Group]) -> None:
            old, new = _before(change), _after(change)
            known = new or old
            if known is None:
                return
            self._highest_of.clear()
            matters = old is None or new is None or old.spec != new.spec
            before = self._root_at(key_of(known))
            anchors = store.put(new) if new is not None else store.remove(key_of(known))
            if matters:
                self._regrouped.update(UnitKey(flavour, anchor) for anchor in anchors | {key_of(known)})
                # Where another flavour has a group of that name, its pods may change sides.
                self.news.touched.update((before, self._root_at(key_of(known))))
                self.news.touched.update(UnitKey(flavour, anchor) for anchor in anchors)

        return take

    def on_workload(self, flavour: str) -> Callable[[Change[Workload]], None]:
        """Return who takes news of the Workloads of a flavour; the trees that are made from one are judged by it."""
        workloads = self.workloads[flavour]

        def take(change: Change[Workload]) -> None:
            old, new = _before(change), _after(change)
            known = new or old
            if known is None:
                return
            place = (known.metadata.namespace, known.metadata.name)
            if new is None:
                workloads.pop(place, None)
            else:
                workloads[place] = new
            if old is None or new is None or old.spec != new.spec:
                self._regrouped.update(self._touch(flavour, self.stores[flavour].made_from(*place)))

        return take

    def on_class(self, change: Change[PriorityClass]) -> None:
        """Take news of a priority class; trees that have no number of their own may have another one now."""
        old, new = _before(change), _after(change)
        known = [found for found in (old, new) if found is not None]
        if new is not None:
            self._classes[new.metadata.name] = new
        elif old is not None:
            self._classes.pop(old.metadata.name, None)
        if len({(found.value, found.global_default) for found in known}) == len(known):
            self._victims.regroup()
            self._reclassed = True
            for flavour, store in self.stores.items():
                workloads = self.workloads[flavour]
                self._touch(flavour, [key_of(group) for group in store if asks(group, workloads, known)])

    def on_budget(self, change: Change[PodDisruptionBudget]) -> None:
        """Take news of a budget; it changes who is evicted, and never whether somebody fits."""
        old, new = _before(change), _after(change)
        if new is not None:
            self.budgets.put(new)
        elif old is not None:
            self.budgets.remove(old.metadata.key)

    # What the driver does.

    def take_events(self) -> ClusterEvents:
        """Return what has happened since this was last asked."""
        self._regroup()
        news, self.news = self.news, ClusterEvents()
        return news

    def emit_all(self) -> None:
        """Make news of everything that is known, for who begins to act on it now; what was news before is among it."""
        self.take_events()
        self.news.moved = True
        for pod in self.pods.values():
            if self.leaf_of(pod) is not None or self.is_ours(pod):
                self.news.touched.add(self.root_of(pod))
        for flavour, store in self.stores.items():
            self._touch(flavour, map(key_of, store))

    def assume(self, uid: str, node: str, allocations: tuple[Allocation, ...] = ()) -> None:
        """Take a pod as bound, with what was chosen for its claims, until the watch says so or the bind has failed."""
        pod = self.pods[uid]
        self._assumed[uid] = Bind(uid, node, allocations)
        self.snapshot.ledger.allocators.assume(allocations)
        self._swap(pod, _bound(pod, node), ours=True)

    @property
    def assumed(self) -> Mapping[str, Bind]:
        """Return the binds that are assumed, by the UID of the pod."""
        return self._assumed

    def is_assumed(self, uid: str) -> bool:
        """Tell whether a pod is taken as bound, and nothing has come of it yet."""
        return uid in self._assumed

    def unassume(self, uid: str) -> None:
        """Take back an assumption: the bind has failed. When to try again is for the queue to say."""
        if uid not in self._assumed:
            return
        self._end_assumption(uid)
        pod = self.pods[uid]
        self._swap(pod, _bound(pod, ""), ours=True)

    def is_ours(self, pod: Pod) -> bool:
        """Tell whether a pod waits for us: it names us, has no node, and neither its end nor its deletion has come."""
        return (
            pod.spec.scheduler_name == self.scheduler_name
            and self.is_writable(pod)
            and not pod.spec.node_name
            and not pod.is_terminal
            and not pod.is_terminating
        )

    def is_writable(self, pod: Pod) -> bool:
        """Tell whether a pod is in a namespace in which we may act."""
        return not self.namespaces or pod.metadata.namespace in self.namespaces

    def victims(self, below: int, spared: Collection[str] = ()) -> tuple[VictimUnit, ...]:
        """Return what of lower priority could be evicted, but for the units with a pod that is spared, by UID."""
        self._regroup()
        return self._victims.units(below, spared)

    def unit_of(self, pod: Pod) -> tuple[int, Collection[str]] | None:
        """Return how important the unit is that a pod is evicted with, and its pods, by UID; None if it is in none."""
        self._regroup()
        return self._victims.unit_of(pod)

    def leaving(self) -> Mapping[str, Pod]:
        """Return who is about to leave a node whatever we do, by UID."""
        return self._victims.leaving

    def less_important(self, nodes: Iterable[str], below: int) -> list[str]:
        """Return who is at these nodes, by UID, and less important than that: whom one could evict there."""
        self._regroup()
        if not self._victims.any_below(below):
            return []
        found = ((uid, self.pods.get(uid)) for node in nodes for uid in self.snapshot.ledger.uids_at(node))
        return [uid for uid, pod in found if pod is not None and self._victims.is_below(pod, below)]

    def groups_of(self, unit: VictimUnit) -> list[Group]:
        """Return the groups that go with a unit: the one that it is named by, and all below."""
        if unit.key.kind == POD:
            return []
        leaf = self.leaf_of(self.pods[unit.pods[0]])
        forest = self.stores[self._flavour(leaf)].forest if leaf is not None else None
        found: dict[GroupKey, Group] = {}
        waiting = [unit.key]
        while forest is not None and waiting:
            key = waiting.pop()
            found[key] = forest.groups[key]
            waiting.extend(sorted(forest.children.get(key, set()) - found.keys(), reverse=True))
        return list(found.values())

    def members(self, flavour: str, key: GroupKey) -> Iterable[Pod]:
        """Return the pods of a PodGroup, if the group of that name is the one of this flavour."""
        if self._flavour(key) != flavour:
            return ()
        return self._members.get((key.namespace, key.name), {}).values()

    def root_of(self, pod: Pod) -> UnitKey:
        """Return the root that a pod is part of."""
        key = self.leaf_of(pod)
        if key is None:
            return UnitKey(ALONE, GroupKey(POD, pod.metadata.namespace, pod.metadata.name))
        return self._root_at(key)

    def anchored(self, root: UnitKey) -> UnitKey:
        """Return the root as it is now: what was one when the news came may have found its parent since."""
        if root.flavour == ALONE:
            return root
        return UnitKey(root.flavour, self.stores[root.flavour].anchor(root.key))

    def leaf_of(self, pod: Pod) -> GroupKey | None:
        """Return the PodGroup that a pod names, or None for one that is alone."""
        group = membership(pod).group
        if group is None or not self.stores:
            return None
        return GroupKey(PodGroup.kind, pod.metadata.namespace, group)

    def pod_alone(self, key: GroupKey) -> Pod | None:
        """Return the pod of a root that is a single pod."""
        return self._singles.get((key.namespace, key.name))

    def _regroup(self) -> None:
        """Have those looked at anew who may have to be evicted with others since their groups have changed."""
        if not (self._regrouped or self._reclassed):
            return
        for flavour, anchor in set(map(self.anchored, self._regrouped)):
            self._victims.regroup(node.key for node in self.stores[flavour].forest.tree_of(anchor).nodes)
        self._victims.regroup(root.key for root in self._regrouped)
        self._regrouped.clear()
        self._reclassed = False
        self._victims.refresh()

    def _on_fall(self, pods: Iterable[Pod]) -> None:
        """Who runs at these nodes may be evicted by somebody who could not do so before."""
        for node in {pod.spec.node_name for pod in pods}:
            self._ease(node)

    def _flavour(self, key: GroupKey) -> str:
        """Return the flavour that has a PodGroup; where several or none have it, the first that is served."""
        return next((flavour for flavour, store in self.stores.items() if key in store), next(iter(self.stores)))

    def _as_assumed(self, pod: Pod) -> Pod:
        """Return a pod with the node that it is assumed to have, until the watch itself says which it has."""
        bind = self._assumed.get(pod.metadata.uid)
        if bind is None:
            return pod
        if pod.spec.node_name or pod.is_terminal or pod.is_terminating:
            self._end_assumption(pod.metadata.uid)
            return pod
        return _bound(pod, bind.node)

    def _end_assumption(self, uid: str) -> None:
        """Reckon no longer with what was decided about a pod; a choice stands while another pod waits for it."""
        bind = self._assumed.pop(uid, None)
        if bind is None:
            return
        if bind.allocations:
            standing = {found for other in self._assumed.values() for found in other.allocations}
            self.snapshot.ledger.allocators.forget(found for found in bind.allocations if found not in standing)
        self.storage.tell(uid)

    def _on_storage(self) -> None:
        self.news.moved = True

    def _on_claim_ready(self, uids: Iterable[str]) -> None:
        """Touch the roots of those who wait for a claim."""
        waiting = (pod for uid in uids if self.is_ours(pod := self.pods[uid]))
        self.news.touched.update(map(self.root_of, waiting))

    def _swap(self, old: Pod | None, new: Pod | None, *, ours: bool = False) -> None:
        """Replace what is known of a pod; note who may be concerned, unless the change is our own decision."""
        self._highest_of.clear()
        if old is not None:
            self._unindex(old)
        if new is not None:
            self._index(new)
        version = self.snapshot.ledger.version
        self._account(old, new)
        self.storage.swap(old, new)
        if (known := new or old) is not None and self.is_writable(known):
            self._victims.swap(old, new)
        self.budgets.swap(old, new)
        self._heed(old, new)
        if new is not None and _counts(new) and new.is_terminating and (old is None or not old.is_terminating):
            self.news.leaving.add(new.metadata.uid)
        asked = self.snapshot.ledger.asked_labels
        if ours or (old is not None and new is not None and not pod_matters(old, new, asked)):
            return
        self.disturbances += self.snapshot.ledger.version != version
        for pod in (old, new):
            if pod is not None and (self.leaf_of(pod) is not None or self.is_ours(pod)):
                self.news.touched.add(self.root_of(pod))

    def _heed(self, old: Pod | None, new: Pod | None) -> None:
        """Keep the room to which another scheduler has nominated a pod: it has made it, or is about to."""
        if new is not None and new.status.nominated_node_name and self._is_theirs(new):
            nominated = Reservation(new.status.nominated_node_name, self.root_of(new), new.spec.priority or 0)
            if self.nominations.of(new.metadata.uid) != nominated:
                self.nominations.put(new, nominated)
        elif old is not None and old.status.nominated_node_name and self._is_theirs(old):
            self.nominations.drop(old.metadata.uid)

    def _is_theirs(self, pod: Pod) -> bool:
        """Tell whether a pod waits for somebody else."""
        is_foreign = pod.spec.scheduler_name != self.scheduler_name or not self.is_writable(pod)
        return is_foreign and not (pod.spec.node_name or pod.is_terminal or pod.is_terminating)

    def _account(self, old: Pod | None, new: Pod | None) -> None:
        """Bring the ledger up to date: a pod counts while it has a node and has not come to its end."""
        ledger = self.snapshot.ledger
        version = ledger.version
        if new is not None and _counts(new):
            try:
                ledger.put_pod(new, new.spec.node_name)
            except RequestError:
                ledger.remove_pod(new.metadata.uid)
        elif old is not None and _counts(old):
            ledger.remove_pod(old.metadata.uid)
            self.news.gone.add(old.metadata.uid)
        if ledger.version == version:
            return
        self.news.moved = True
        if old is not None and _counts(old):
            self._ease(old.spec.node_name)

    def _reshape(self, node: str) -> None:
        self.news.reshaped.add(node)
        self._ease(node)

    def _ease(self, node: str) -> None:
        self.news.eased.add(node)
        self.news.moved = True

    def _index(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        group = membership(pod).group
        if group is None or not self.stores:
            self._singles[pod.metadata.namespace, pod.metadata.name] = pod
        else:
            self._members.setdefault((pod.metadata.namespace, group), {})[pod.metadata.uid] = pod

    def _unindex(self, pod: Pod) -> None:
        del self.pods[pod.metadata.uid]
        place = (pod.metadata.namespace, pod.metadata.name)
        group = membership(pod).group
        if group is None or not self.stores:
            if self._singles[place].metadata.uid == pod.metadata.uid:
                del self._singles[place]
            return
        members = self._members[pod.metadata.namespace, group]
        del members[pod.metadata.uid]
        if not members:
            del self._members[pod.metadata.namespace, group]

    def _touch(self, flavour: str, groups: Iterable[GroupKey]) -> set[UnitKey]:
        store = self.stores[flavour]
        roots = {UnitKey(flavour, store.anchor(key)) for key in groups}
        self.news.touched.update(roots)
        return roots

    def _lineage(self, leaf: GroupKey) -> Lineage:
        """Return a PodGroup and what is above it, as far as it is there."""
        flavour = self._flavour(leaf)
        groups, workloads = self.stores[flavour].forest.groups, self.workloads[flavour]
        found: dict[GroupKey, Group] = {}
        key: GroupKey | None = leaf
        while key is not None and key in groups and key not in found:
            found[key] = effective(groups[key], workloads)
            key = parent_of(found[key])
        if not found:
            return Lineage()
        top = list(found.values())[-1]
        priority = resolved_priority(top, workloads, self.classes) or 0
        if known_priority(top, workloads, self.classes) is None:
            priority = max(priority, self._highest(flavour, key_of(top)))
        return Lineage(tuple(found.values()), priority)

    def _highest(self, flavour: str, root: GroupKey) -> int:
        """Return the highest priority of the pods of a tree; known until a pod or group changes."""
        found = self._highest_of.get(UnitKey(flavour, root))
        if found is None:
            keys = [node.key for node in self.stores[flavour].forest.tree_of(root).nodes]
            pods = (pod for key in keys for pod in self.members(flavour, key))
            found = max((pod.spec.priority or 0 for pod in pods), default=0)
            self._highest_of[UnitKey(flavour, root)] = found
        return found

    def _root_at(self, key: GroupKey) -> UnitKey:
        """Return the root of the group of that name, as the pods that name it see it."""
        flavour = self._flavour(key)
        return UnitKey(flavour, self.stores[flavour].anchor(key))


def _before(change: Change[S]) -> S | None:
    """Return an object before a change, if it was there."""
    return change.old if isinstance(change, Modified | Deleted) else None


def _after(change: Change[S]) -> S | None:
    """Return an object after a change, if it is there."""
    return change.new if isinstance(change, Added | Modified) else None


def _bound(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _counts(pod: Pod) -> bool:
    """Tell whether a pod takes room on a node."""
    return bool(pod.spec.node_name) and not pod.is_terminal
