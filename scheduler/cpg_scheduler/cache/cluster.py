"""The scheduler's knowledge of the cluster, and the events that follow from its changes.

The reflectors call the ``on_...`` methods. Each brings the ledger and the indexes up to date and adds to the cluster
events, which the scheduling loop takes before each cycle:

1. **The order of arrival does not matter.** Pods, groups and nodes may come before or after the objects that they
   name. The cache depends on the objects alone, and the events name every unit that a change may concern.
2. **A unit has changed** when a spec of its groups, its pods as far as scheduling reads them, its Workload or its
   priority class has changed. What the scheduler writes itself is no such change.
3. **A node is freed** when a pod has left it or has become smaller, or when the node itself has changed. All other
   changes set ``any_change``, for pods with constraints on other pods.
4. **An assumed pod counts as bound** until the watch confirms its node, the pod ends, or its bind has failed.
5. **Pods of namespaces in which we may not act take room**, but are neither placed nor evicted.
"""

from collections.abc import Callable, Collection, Iterable

from msgspec import structs
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.workload import Workload
from cpg_client.stores import Added, Change
from cpg_engine.cluster.requests import RequestError
from cpg_engine.decisions import Allocation, Bind
from cpg_engine.gangs.unit import POD
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.cache.assumed import AssumedPods, BindsInFlight
from cpg_scheduler.cache.budgets import Budgets
from cpg_scheduler.cache.devices import DeviceCache
from cpg_scheduler.cache.events import ClusterEvents, EventCollector
from cpg_scheduler.cache.expected import ExpectedPodsCache, ExpectedRoom
from cpg_scheduler.cache.groups import GroupCache
from cpg_scheduler.cache.marks import PreemptionMarks
from cpg_scheduler.cache.pods import PodCache
from cpg_scheduler.cache.relevance import new_state, node_change_matters, old_state, pod_change_matters
from cpg_scheduler.cache.reservations import Reservation, Reservations
from cpg_scheduler.cache.storage import StorageCache
from cpg_scheduler.cache.versions import SeenVersions
from cpg_scheduler.cache.victims import Victims
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.time_slices import TimeSlices

SINGLE_POD = ""
"""The flavour of a unit that is a pod in no group."""


class ClusterCache:
    """All objects that scheduling reads, indexed, over the engine's ledger."""

    def __init__(
        self, snapshot: Snapshot, flavours: Iterable[str], scheduler_name: str, *, namespaces: Collection[str] = ()
    ) -> None:
        """Start empty; without namespaces, we may act in all of them."""
        self.slices = TimeSlices()
        self.snapshot = structs.replace(snapshot, pause=self.slices.pause)
        self.scheduler_name = scheduler_name
        self.namespaces = frozenset(namespaces)
        self.events = EventCollector()
        served = tuple(flavours)
        self._pods = PodCache(groups_served=bool(served))
        self._groups = GroupCache(served, self._pods, self.events)
        self.pods, self.stores, self.workloads = self._pods.by_uid, self._groups.stores, self._groups.workloads
        self.priority_classes = self._groups.priority_classes
        self.budgets = Budgets(self.pods)
        self.marks = PreemptionMarks()
        self.reservations = Reservations(snapshot.ledger, self.events)
        self.expected = ExpectedPodsCache()
        self.expected_room = ExpectedRoom(self.reservations)
        self.victims = Victims(snapshot.ledger, self._pods, self._groups, self.events)
        self.versions = SeenVersions()
        self.storage = StorageCache(
            snapshot.ledger.storage, events=self.events, versions=self.versions, change_users=self.change_units_of
        )
        self.devices = DeviceCache(
            snapshot.ledger.devices,
            events=self.events,
            versions=self.versions,
            change_users=self.change_units_of,
            prepare=snapshot.ledger.device_allocator.stock.refresh,
        )
        self.assumed = AssumedPods(snapshot.ledger.allocators, self.events, self.versions)
        self.binds_in_flight = BindsInFlight()
        self.placement_changes = 0
        """Counts the changes after which a placement that was decided before may be wrong."""

    # Changes that watches report.

    def on_pod(self, change: Change[Pod]) -> None:
        """Take a change of a pod; an assumed one keeps its node until the watch shows one, or its end."""
        old, new = old_state(change), new_state(change)
        known = new or old
        if known is None:
            return
        uid = known.metadata.uid
        node = self.assumed.node_of(uid)
        if node is not None and new is not None and not (new.spec.node_name or new.is_terminal or new.is_terminating):
            new = _with_node(new, node)
        else:
            self.assumed.remove(uid, is_bound=new is not None and bool(new.spec.node_name))
        self._replace_pod(self.pods.get(old.metadata.uid) if old is not None else None, new)

    def on_node(self, change: Change[Node]) -> None:
        """Take a change of a node."""
        old, new = old_state(change), new_state(change)
        known = new or old
        matters = old is None or new is None or node_change_matters(old, new)
        self.placement_changes += matters
        if new is not None:
            self.snapshot.ledger.put_node(new)
        elif old is not None:
            self.snapshot.ledger.remove_node(old.metadata.name)
        if known is not None and matters:
            self.events.change_node(known.metadata.name)

    def on_namespace(self, change: Change[Namespace]) -> None:
        """Take a change of a namespace; pods may select by its labels."""
        old, new = old_state(change), new_state(change)
        if new is not None:
            self.snapshot.ledger.pod_index.put_namespace(new.metadata.name, new.metadata.labels)
        elif old is not None:
            self.snapshot.ledger.pod_index.put_namespace(old.metadata.name, None)
        self.events.change_cluster()

    def on_group(self, flavour: str) -> Callable[[Change[Group]], None]:
        """Return the handler of changes of the groups of a flavour."""

        def on_change(change: Change[Group]) -> None:
            self.marks.replace_group(flavour, old_state(change), new_state(change))
            self.expected.replace_group(flavour, old_state(change), new_state(change))
            _regroup(self, self._groups.on_group(flavour, change), change)

        return on_change

    def on_workload(self, flavour: str) -> Callable[[Change[Workload]], None]:
        """Return the handler of changes of the Workloads of a flavour."""
        return lambda change: _regroup(self, self._groups.on_workload(flavour, change), change)

    def on_priority_class(self, change: Change[PriorityClass]) -> None:
        """Take a change of a priority class; groups that name no number may have another priority now."""
        self._groups.on_priority_class(change)

    def on_budget(self, change: Change[PodDisruptionBudget]) -> None:
        """Take a change of a budget; it affects which pods are evicted, and never whether a pod fits."""
        old, new = old_state(change), new_state(change)
        if new is not None:
            self.budgets.put(new)
        elif old is not None:
            self.budgets.remove(old.metadata.key)

    # Events for the scheduling loop, and its decisions.

    def take_events(self) -> ClusterEvents:
        """Return what has happened since the last call."""
        self.victims.refresh_regrouped()
        return self.events.take()

    def report_all(self) -> None:
        """Start leading: drop the events so far, and report every unit that exists as changed."""
        self.take_events()
        self.events.change_cluster()
        self.events.change_units(self.unit_of(pod) for pod in self.pods.values() if self._concerns_us(pod))
        self._groups.change_all()

    def assume(self, uid: str, node: str, allocations: tuple[Allocation, ...] = ()) -> None:
        """Count a pod as bound, with what was allocated to it, before the API server has confirmed the bind."""
        pod = self.pods[uid]
        self.assumed.add(Bind(uid, node, allocations))
        self._replace_pod(pod, _with_node(pod, node), is_own_decision=True)

    def forget(self, uid: str) -> None:
        """Take back an assumption, if there is one: the bind has failed."""
        if uid in self.assumed:
            self.assumed.remove(uid)
            pod = self.pods[uid]
            self._replace_pod(pod, _with_node(pod, ""), is_own_decision=True)

    # Questions.

    def is_pending(self, pod: Pod) -> bool:
        """Return whether a pod waits for this scheduler: it names it, has no node, and neither terminates nor ended."""
        return (
            pod.spec.scheduler_name == self.scheduler_name
            and self.is_writable(pod)
            and not pod.spec.node_name
            and not pod.is_terminal
            and not pod.is_terminating
        )

    def is_writable(self, pod: Pod) -> bool:
        """Return whether a pod is in a namespace in which we may act."""
        return not self.namespaces or pod.metadata.namespace in self.namespaces

    def group_of(self, pod: Pod) -> GroupKey | None:
        """Return the PodGroup that a pod names, or None for a single pod."""
        return self._pods.group_of(pod)

    def members(self, flavour: str, group: GroupKey) -> Iterable[Pod]:
        """Return the pods of a PodGroup, if the group of that name is the one of this flavour."""
        return self._groups.members(flavour, group)

    def single_pod(self, key: GroupKey) -> Pod | None:
        """Return the pod of a unit that is a single pod."""
        return self._pods.single_pod(key.namespace, key.name)

    def unit_of(self, pod: Pod) -> UnitKey:
        """Return the unit that a pod is part of."""
        group = self._pods.group_of(pod)
        if group is None:
            return UnitKey(SINGLE_POD, GroupKey(POD, pod.metadata.namespace, pod.metadata.name))
        return self._groups.unit_of_group(group)

    def current_unit(self, unit: UnitKey) -> UnitKey:
        """Return the unit that a former one is part of by now: its root may have got a parent since."""
        return unit if unit.flavour == SINGLE_POD else self._groups.current_unit(unit)

    def change_units_of(self, users: Iterable[str]) -> None:
        """Note that the units of these pods, by UID, have changed, where they are pending."""
        pods = (self.pods[uid] for uid in users if uid in self.pods)
        self.events.change_units(self.unit_of(pod) for pod in pods if self.is_pending(pod))

    # The effects of a change of a pod.

    def _replace_pod(self, old: Pod | None, new: Pod | None, *, is_own_decision: bool = False) -> None:
        """Bring everything up to date with a pod; our own decisions change no unit."""
        self._pods.replace(old, new)
        ledger = self.snapshot.ledger
        version = ledger.version
        self._update_ledger(old, new)
        is_placement_change = ledger.version != version
        self.storage.replace_pod(old, new)
        self.devices.replace_pod(old, new)
        if (known := new or old) is not None and self.is_writable(known):
            self.victims.replace_pod(old, new)
        self.budgets.replace_pod(old, new)
        self.marks.replace_pod(old, new)
        self._reserve_foreign(old, new)
        if is_own_decision or not (old is None or new is None or pod_change_matters(old, new, ledger.asked_labels)):
            return
        self.placement_changes += is_placement_change
        concerned = (pod for pod in (old, new) if pod is not None and self._concerns_us(pod))
        self.events.change_units(map(self.unit_of, concerned))

    def _update_ledger(self, old: Pod | None, new: Pod | None) -> None:
        """Count a pod in the ledger while it has a node and has not ended."""
        ledger = self.snapshot.ledger
        version, was_placed = ledger.version, old is not None and _takes_room(old)
        if new is not None and _takes_room(new):
            try:
                ledger.put_pod(new, new.spec.node_name)
            except RequestError:
                ledger.remove_pod(new.metadata.uid)
            if new.is_terminating and (old is None or not old.is_terminating):
                self.events.begin_termination(new.metadata.uid)
        elif old is not None and was_placed:
            ledger.remove_pod(old.metadata.uid)
            self.events.remove_pod(old.metadata.uid)
        if ledger.version == version:
            return
        if old is not None and was_placed:
            self.events.free_node(old.spec.node_name)
        else:
            self.events.change_cluster()

    def _reserve_foreign(self, old: Pod | None, new: Pod | None) -> None:
        """Reserve the room to which another scheduler has nominated a pod: it evicts for that pod."""
        if new is not None and new.status.nominated_node_name and self._is_foreign(new):
            reservation = Reservation(new.status.nominated_node_name, self.unit_of(new), new.spec.priority or 0)
            if self.reservations.get(new.metadata.uid) != reservation:
                self.reservations.put(new, reservation)
        elif old is not None and old.status.nominated_node_name and self._is_foreign(old):
            self.reservations.remove(old.metadata.uid)

    def _is_foreign(self, pod: Pod) -> bool:
        """Return whether a pod waits for another scheduler."""
        is_ours = pod.spec.scheduler_name == self.scheduler_name and self.is_writable(pod)
        return not (is_ours or pod.spec.node_name or pod.is_terminal or pod.is_terminating)

    def _concerns_us(self, pod: Pod) -> bool:
        """Return whether a change of a pod changes a unit: every member of a group does, and pending single pods."""
        return self._pods.group_of(pod) is not None or self.is_pending(pod)


def _regroup(cache: ClusterCache, units: set[UnitKey], change: Change[Group] | Change[Workload]) -> None:
    """Take a change after which the pods of these units may belong together otherwise, or have other minimums."""
    cache.placement_changes += bool(units) and not isinstance(change, Added)
    cache.victims.regroup(units)


def _with_node(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _takes_room(pod: Pod) -> bool:
    """Return whether a pod takes room on a node."""
    return bool(pod.spec.node_name) and not pod.is_terminal
