"""The groups and Workloads of every flavour, and the trees that each change of them concerns.

A Workload that is instantiated has its own key beside the trees. Two flavours may have PodGroups of one name: the pods
that name it belong to the first flavour that has it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from cpg_api.scheduling.forest import Group, GroupKey, Tree, key_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.names import INSTANTIATE
from cpg_api.scheduling.workload import Workload
from cpg_operator.writes import TreeKey

ManagedObject: TypeAlias = Group | Workload


def is_instantiated(workload: Workload) -> bool:
    """Return whether a Workload asks for its groups to be created."""
    return workload.metadata.annotations.get(INSTANTIATE) == "true"


def _means_the_same(old: Workload, new: Workload) -> bool:
    """Return whether two states of a Workload mean the same for the groups that name it, which may be thousands."""
    return (
        old.metadata.uid == new.metadata.uid and old.spec == new.spec and is_instantiated(old) == is_instantiated(new)
    )


def owns(workload: Workload, group: Group) -> bool:
    """Return whether a group was created from exactly this Workload, and not from another one of its name."""
    return any(owner.controller and owner.uid == workload.metadata.uid for owner in group.metadata.owner_references)


class TreeIndex:
    """Groups and Workloads by flavour. Methods that change something return the keys to reconcile."""

    def __init__(self, flavours: Iterable[str]) -> None:
        """Start empty."""
        self._stores = {flavour: GroupStore(flavour) for flavour in flavours}
        self._workloads: dict[str, dict[tuple[str, str], Workload]] = {flavour: {} for flavour in self._stores}

    def store(self, flavour: str) -> GroupStore:
        """Return the groups of a flavour."""
        return self._stores[flavour]

    def workloads(self, flavour: str) -> Mapping[tuple[str, str], Workload]:
        """Return the Workloads of a flavour, by namespace and name."""
        return self._workloads[flavour]

    def tree(self, key: TreeKey) -> Tree:
        """Return the tree that has this anchor now, or the one that its anchor has become part of."""
        return self._stores[key.flavour].forest.tree_of(key.anchor)

    def current_key(self, key: TreeKey) -> TreeKey:
        """Return the key of the tree that has this anchor, or of the one that it has become part of."""
        return TreeKey(key.flavour, self._stores[key.flavour].anchor(key.anchor))

    def flavour_of(self, key: GroupKey) -> str:
        """Return the flavour that has a PodGroup; where several or none have it, the first that is served."""
        first, *others = self._stores
        if others and key not in self._stores[first]:
            return next((flavour for flavour in others if key in self._stores[flavour]), first)
        return first

    def tree_of_members(self, group: GroupKey) -> TreeKey:
        """Return the tree to which the pods that name a PodGroup belong."""
        return self.current_key(TreeKey(self.flavour_of(group), group))

    def count(self) -> dict[str, int]:
        """Return the number of trees, by flavour."""
        return {
            flavour: len({store.anchor(key_of(group)) for group in store}) for flavour, store in self._stores.items()
        }

    def get(self, flavour: str, kind: type, namespace: str, name: str) -> ManagedObject | None:
        """Return an object, if it is known."""
        if kind is Workload:
            return self._workloads[flavour].get((namespace, name))
        return self._stores[flavour].forest.groups.get(GroupKey(kind.__name__, namespace, name))

    def by_uid(self, flavour: str, kind: type) -> dict[str, ManagedObject]:
        """Return all objects of a kind."""
        if kind is Workload:
            return {one.metadata.uid: one for one in self._workloads[flavour].values()}
        return {one.metadata.uid: one for one in self._stores[flavour] if type(one) is kind}

    def put(self, flavour: str, found: ManagedObject) -> set[TreeKey]:
        """Take the state of an object; return the keys that this may change."""
        if isinstance(found, Workload):
            place = (found.metadata.namespace, found.metadata.name)
            known = self._workloads[flavour].get(place)
            self._workloads[flavour][place] = found
            if known is not None and _means_the_same(known, found):
                return {TreeKey(flavour, GroupKey(Workload.kind, *place))}
            return self._made_from(flavour, place)
        key = key_of(found)
        flavour_before, was_anchor = self.flavour_of(key), self._is_anchor(flavour, key)
        # A new group was no tree before, unless children waited for it; then their tree may have ended.
        changed = {
            TreeKey(flavour, anchor)
            for anchor in self._stores[flavour].put(found)
            if anchor != key or was_anchor or self._is_anchor(flavour, anchor)
        }
        return changed | self._members_moved(key, flavour_before) | self.source(flavour, found)

    def replace(self, flavour: str, found: ManagedObject) -> None:
        """Take the answer to a write of ours: what it may change is for the caller to know."""
        if isinstance(found, Workload):
            self._workloads[flavour][found.metadata.namespace, found.metadata.name] = found
        else:
            self._stores[flavour].put(found)

    def remove(self, flavour: str, found: ManagedObject) -> set[TreeKey]:
        """Forget a known object; return the keys that this may change."""
        if isinstance(found, Workload):
            place = (found.metadata.namespace, found.metadata.name)
            del self._workloads[flavour][place]
            return self._made_from(flavour, place)
        key = key_of(found)
        flavour_before, anchor_before = self.flavour_of(key), self._stores[flavour].anchor(key)
        changed = {
            TreeKey(flavour, anchor)
            for anchor in self._stores[flavour].remove(key)
            if anchor == anchor_before or self._is_anchor(flavour, anchor)
        }
        return changed | self._members_moved(key, flavour_before) | self.source(flavour, found)

    def source(self, flavour: str, group: Group) -> set[TreeKey]:
        """Return the Workload that a group names, if it asks for its groups to be created."""
        if (ref := group.spec.workload_ref) is None:
            return set()
        place = (group.metadata.namespace, ref.workload_name)
        workload = self._workloads[flavour].get(place)
        if workload is None or not is_instantiated(workload):
            return set()
        return {TreeKey(flavour, GroupKey(Workload.kind, *place))}

    def in_namespace(self, namespace: str) -> set[TreeKey]:
        """Return all keys of a namespace."""
        found = set()
        for flavour, store in self._stores.items():
            here = (key_of(group) for group in store if group.metadata.namespace == namespace)
            found |= {TreeKey(flavour, store.anchor(key)) for key in here}
            places = (place for place in self._workloads[flavour] if place[0] == namespace)
            found |= {TreeKey(flavour, GroupKey(Workload.kind, *place)) for place in places}
        return found

    def affected_by_classes(self, names: Collection[str]) -> set[TreeKey]:
        """Return the trees with a group that has no priority yet, or names one of these priority classes."""
        return {
            TreeKey(flavour, store.anchor(key_of(group)))
            for flavour, store in self._stores.items()
            for group in store
            if group.spec.priority is None or group.spec.priority_class_name in names
        }

    def _made_from(self, flavour: str, place: tuple[str, str]) -> set[TreeKey]:
        """Return the key of a Workload, and the trees of the groups that name it."""
        store = self._stores[flavour]
        trees = {TreeKey(flavour, store.anchor(key)) for key in store.groups_of_workload(*place)}
        return {TreeKey(flavour, GroupKey(Workload.kind, *place)), *trees}

    def _is_anchor(self, flavour: str, key: GroupKey) -> bool:
        """Return whether a tree has this anchor: a group without a parent, or a missing group that children name."""
        store = self._stores[flavour]
        return store.anchor(key) == key and (key in store or key in store.forest.children)

    def _members_moved(self, key: GroupKey, flavour_before: str) -> set[TreeKey]:
        """Return the trees between which the pods of a PodGroup have moved, because its flavour has changed."""
        now = self.flavour_of(key)
        return {
            TreeKey(flavour, self._stores[flavour].anchor(key))
            for flavour in ({flavour_before, now} if flavour_before != now else ())
            if key in self._stores[flavour]
        }
