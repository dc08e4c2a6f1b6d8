"""The groups of all served flavours, with the Workloads and priority classes that complete them."""

from collections.abc import Iterable, Sequence

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.names import EXPECTED_PODS, MAX_DEPTH
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import effective_group
from cpg_api.scheduling.workload import Workload
from cpg_client.stores import Change
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.pods import PodCache
from cpg_scheduler.cache.relevance import new_state, old_state, uses_priority_class
from cpg_scheduler.keys import UnitKey


class GroupCache:
    """Finds the unit of a group and its ancestors.

    Each ``on_...`` method brings the index up to date and notes the units that the change concerns.
    """

    def __init__(self, flavours: Iterable[str], pods: PodCache, events: EventCollector) -> None:
        """Start without groups."""
        self._pods = pods
        self._events = events
        self.stores = {flavour: GroupStore(flavour) for flavour in flavours}
        self.workloads: dict[str, dict[tuple[str, str], Workload]] = {flavour: {} for flavour in self.stores}
        self._classes_by_name: dict[str, PriorityClass] = {}
        self.priority_classes = PriorityClasses(by_name=self._classes_by_name)

    def on_group(self, flavour: str, change: Change[Group]) -> set[UnitKey]:
        """Take a change of a group; return the units in which other pods may belong together now."""
        old, new = old_state(change), new_state(change)
        known = new or old
        if known is None:
            return set()
        store, key = self.stores[flavour], key_of(known)
        before = self.unit_of_group(key)
        anchors = store.put(new) if new is not None else store.remove(key)
        if old is not None and new is not None and old.spec == new.spec and _expects_the_same(old, new):
            return set()
        # Where another flavour has a group of that name, its pods may change sides.
        units = {UnitKey(flavour, anchor) for anchor in anchors}
        self._events.change_units(units | {before, self.unit_of_group(key)})
        return units | {UnitKey(flavour, key)}

    def on_workload(self, flavour: str, change: Change[Workload]) -> set[UnitKey]:
        """Take a change of a Workload; return the units that are made from it."""
        old, new = old_state(change), new_state(change)
        known = new or old
        if known is None:
            return set()
        workloads, name = self.workloads[flavour], (known.metadata.namespace, known.metadata.name)
        if new is None:
            workloads.pop(name, None)
        else:
            workloads[name] = new
        if old is not None and new is not None and old.spec == new.spec:
            return set()
        return self._change_units_of(flavour, self.stores[flavour].groups_of_workload(*name))

    def on_priority_class(self, change: Change[PriorityClass]) -> None:
        """Take a change of a priority class."""
        old, new = old_state(change), new_state(change)
        if new is not None:
            self._classes_by_name[new.metadata.name] = new
        elif old is not None:
            self._classes_by_name.pop(old.metadata.name, None)
        known = [found for found in (old, new) if found is not None]
        if len({(found.value, found.global_default) for found in known}) < len(known):
            return
        for flavour, store in self.stores.items():
            workloads = self.workloads[flavour]
            users = [key_of(group) for group in store if uses_priority_class(group, workloads, known)]
            self._change_units_of(flavour, users)

    def change_all(self) -> None:
        """Note every unit that has a group as changed."""
        for flavour, store in self.stores.items():
            self._change_units_of(flavour, map(key_of, store))

    def members(self, flavour: str, group: GroupKey) -> Iterable[Pod]:
        """Return the pods of a PodGroup, if the group of that name is the one of this flavour."""
        return self._pods.members(group) if self._flavour_of(group) == flavour else ()

    def unit_of_group(self, group: GroupKey) -> UnitKey:
        """Return the unit of the group of that name, as the pods that name it see it."""
        flavour = self._flavour_of(group)
        return UnitKey(flavour, self.stores[flavour].anchor(group))

    def current_unit(self, unit: UnitKey) -> UnitKey:
        """Return the unit that a former one is part of by now: its root may have got a parent since."""
        return UnitKey(unit.flavour, self.stores[unit.flavour].anchor(unit.key))

    def has_group(self, group: GroupKey) -> bool:
        """Return whether a flavour has a group."""
        return any(group in store for store in self.stores.values())

    def group_keys_of(self, unit: UnitKey) -> list[GroupKey]:
        """Return the groups of a unit."""
        return [node.key for node in self.stores[unit.flavour].forest.tree_of(unit.key).nodes]

    def ancestry_of(self, leaf: GroupKey) -> Sequence[Group]:
        """Return a PodGroup and its ancestors from the bottom up, as far as they exist and a tree may reach."""
        flavour = self._flavour_of(leaf)
        groups, workloads = self.stores[flavour].forest.groups, self.workloads[flavour]
        found: dict[GroupKey, Group] = {}
        key: GroupKey | None = leaf
        while key is not None and key in groups and key not in found and len(found) < MAX_DEPTH:
            found[key] = effective_group(groups[key], workloads)
            key = parent_of(found[key])
        return tuple(found.values())

    def has_template(self, leaf: GroupKey, group: Group) -> bool:
        """Return whether the Workload exists that a group names, in the flavour of this leaf; also if it names none."""
        ref = group.spec.workload_ref
        return ref is None or (group.metadata.namespace, ref.workload_name) in self.workloads[self._flavour_of(leaf)]

    def descendants_of(self, group: GroupKey, leaf: GroupKey) -> list[Group]:
        """Return a group and all groups below it, in the flavour that has this leaf; without deleted ones."""
        forest = self.stores[self._flavour_of(leaf)].forest
        found: dict[GroupKey, Group] = {}
        waiting = [group]
        while waiting:
            key = waiting.pop()
            if key in forest.groups:
                found[key] = forest.groups[key]
            waiting.extend(sorted(forest.children.get(key, set()) - found.keys(), reverse=True))
        return list(found.values())

    def _flavour_of(self, group: GroupKey) -> str:
        """Return the flavour that has a PodGroup; where several or none have it, the first that is served."""
        return next((flavour for flavour, store in self.stores.items() if group in store), next(iter(self.stores)))

    def _change_units_of(self, flavour: str, groups: Iterable[GroupKey]) -> set[UnitKey]:
        store = self.stores[flavour]
        units = {UnitKey(flavour, store.anchor(key)) for key in groups}
        self._events.change_units(units)
        return units


def _expects_the_same(old: Group, new: Group) -> bool:
    return old.metadata.annotations.get(EXPECTED_PODS) == new.metadata.annotations.get(EXPECTED_PODS)


def is_rooted(ancestry: Sequence[Group]) -> bool:
    """Return whether a PodGroup and all ancestors that are named exist."""
    return bool(ancestry) and parent_of(ancestry[-1]) is None
