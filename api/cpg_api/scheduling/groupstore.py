"""A store of the groups of one flavour: a forest, an index by Workload, and cached anchors.

Each event asks for the anchor of its group several times, and users may nest parents by the thousand. A forest walks up
one parent at a time. The store caches where these walks end.
"""

from collections.abc import Collection, Iterator
from typing import TypeVar

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of, parent_of

K = TypeVar("K")


class GroupStore:
    """The groups of one flavour of the API."""

    def __init__(self, flavour: str) -> None:
        """Start empty."""
        self.flavour = flavour
        self._groups: dict[GroupKey, Group] = {}
        self._children: dict[GroupKey, set[GroupKey]] = {}
        self._made_from: dict[tuple[str, str], set[GroupKey]] = {}
        self.forest = Forest(groups=self._groups, children=self._children)
        self._shortcuts = _AnchorCache(self.forest)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._groups

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def has_object(self, group: Group) -> bool:
        """Return whether the store has this object, by UID: another flavour may have a group of the same name."""
        known = self._groups.get(key_of(group))
        return known is not None and known.metadata.uid == group.metadata.uid

    def put(self, group: Group) -> set[GroupKey]:
        """Add or replace a group; return the anchors of the trees that may have changed."""
        key = key_of(group)
        before = self.anchor(key)
        parent, workload = parent_of(group), _workload_of(group)
        if key in self._groups and parent_of(self._groups[key]) != parent:
            self._shortcuts.forget(key)
        self._unlink(key)
        self._groups[key] = group
        if parent is not None:
            self._children.setdefault(parent, set()).add(key)
        if workload is not None:
            self._made_from.setdefault(workload, set()).add(key)
        return {before, self.anchor(key)}

    def remove(self, key: GroupKey) -> set[GroupKey]:
        """Remove a group; return the anchors of the trees that may have changed."""
        if key not in self._groups:
            return set()
        before = self.anchor(key)
        self._shortcuts.forget(key)
        self._unlink(key)
        return {before, key}

    def anchor(self, key: GroupKey) -> GroupKey:
        """Return the anchor of a group's tree. The group need not exist."""
        return self._shortcuts.anchor(key)

    def groups_of_workload(self, namespace: str, workload: str) -> Collection[GroupKey]:
        """Return the groups that name a Workload."""
        return self._made_from.get((namespace, workload), ())

    def _unlink(self, key: GroupKey) -> None:
        """Remove a group from all indexes."""
        group = self._groups.pop(key, None)
        if group is None:
            return
        _discard(self._children, parent_of(group), key)
        _discard(self._made_from, _workload_of(group), key)


class _AnchorCache:
    """Cached shortcuts from a group to one above it. The anchor of a cycle leads to itself.

    A shortcut is valid while none of the groups between its ends is removed or gets another parent. Whether the group
    at its upper end exists does not matter. Each walk adds shortcuts from every group that it visits to its end. So a
    group with a shortcut has shortcuts all along the way, and all shortcuts over a group are found by descending from
    it while there are shortcuts. Each removed shortcut was paid for by the walk that added it. Events about n groups,
    in any order, take about n log n steps, as in a union-find with path compression.
    """

    def __init__(self, forest: Forest) -> None:
        """Start without shortcuts."""
        self._forest = forest
        self._ends: dict[GroupKey, GroupKey] = {}

    def anchor(self, key: GroupKey) -> GroupKey:
        """Return the same as ``Forest.anchor_of``, which decides where the walk meets a cycle."""
        met: set[GroupKey] = set()
        while key not in met:
            further = self._ends.get(key) or self._parent(key)
            if further is None or further == key:
                break
            met.add(key)
            key = further
        else:
            key = self._forest.anchor_of(key)
        self._ends.update(dict.fromkeys(met, key))
        return key

    def forget(self, key: GroupKey) -> None:
        """Remove the shortcuts that lead over a group, before it is removed or gets another parent."""
        found = [key]
        while found:
            key = found.pop()
            self._ends.pop(key, None)
            found.extend(child for child in self._forest.children.get(key, ()) if child in self._ends)

    def _parent(self, key: GroupKey) -> GroupKey | None:
        group = self._forest.groups.get(key)
        return parent_of(group) if group is not None else None


def _workload_of(group: Group) -> tuple[str, str] | None:
    """Return the namespace and name of the Workload that a group references, if any."""
    ref = group.spec.workload_ref
    return (group.metadata.namespace, ref.workload_name) if ref is not None else None


def _discard(index: dict[K, set[GroupKey]], place: K | None, key: GroupKey) -> None:
    """Remove a key from an index, and its entry if that is empty then."""
    if place is None:
        return
    index[place].discard(key)
    if not index[place]:
        del index[place]
