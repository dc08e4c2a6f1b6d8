"""The groups of one flavour, as the two mappings that a forest is, and by the Workload that they name.

Whatever comes or goes is asked for its anchor several times, and nothing stops anybody from naming parents by the
thousand, each below the next. A forest climbs step by step; so as not to do that for each piece of news, the store
remembers where the ways up have led.
"""

from collections.abc import Collection, Iterator
from typing import TypeVar

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of, parent_of

K = TypeVar("K")


class GroupStore:
    """The groups of one flavour of the API."""

    def __init__(self, flavour: str) -> None:
        """Start without groups."""
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
        """Tell whether this very object is one of the store's, and not a namesake of another flavour."""
        known = self._groups.get(key_of(group))
        return known is not None and known.metadata.uid == group.metadata.uid

    def put(self, group: Group) -> set[GroupKey]:
        """Take the state of a group; return the anchors of the trees that this may have changed."""
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
        """Forget a group; return the anchors of the trees that this may have changed."""
        if key not in self._groups:
            return set()
        before = self.anchor(key)
        self._shortcuts.forget(key)
        self._unlink(key)
        return {before, key}

    def anchor(self, key: GroupKey) -> GroupKey:
        """Return the anchor of a group's tree, also of one that is not there."""
        return self._shortcuts.anchor(key)

    def groups_of_workload(self, namespace: str, workload: str) -> Collection[GroupKey]:
        """Return the groups that name a Workload."""
        return self._made_from.get((namespace, workload), ())

    def _unlink(self, key: GroupKey) -> None:
        """Take a group out, and away from the parent and the Workload that it names."""
        group = self._groups.pop(key, None)
        if group is None:
            return
        _discard(self._children, parent_of(group), key)
        _discard(self._made_from, _workload_of(group), key)


class _AnchorCache:
    """Where ways up have led, from a group to something above it; the anchor of a cycle leads to itself.

    A shortcut holds while none of the groups that it passes over goes or gets another parent; that its end has been
    waited for and comes, or goes, takes nothing from it. Each climb makes shortcuts from all that it has met to its
    end, so a group that has one has them all along the way to where it leads: what leads over a group is found by
    descending from it while there are shortcuts, and each that is forgotten was paid for by the climb that made it.
    So news of n groups, in any order, take about n log n steps, as in any union of sets with compressed paths.
    """

    def __init__(self, forest: Forest) -> None:
        """Know no way yet."""
        self._forest = forest
        self._ends: dict[GroupKey, GroupKey] = {}

    def anchor(self, key: GroupKey) -> GroupKey:
        """Return what ``Forest.anchor_of`` does, which is asked where the way leads round a cycle."""
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
        """Forget what leads over a group, before it goes or gets another parent."""
        found = [key]
        while found:
            key = found.pop()
            self._ends.pop(key, None)
            found.extend(child for child in self._forest.children.get(key, ()) if child in self._ends)

    def _parent(self, key: GroupKey) -> GroupKey | None:
        group = self._forest.groups.get(key)
        return parent_of(group) if group is not None else None


def _workload_of(group: Group) -> tuple[str, str] | None:
    """Return the namespace and name of the Workload that a group is made from, if it names one."""
    ref = group.spec.workload_ref
    return (group.metadata.namespace, ref.workload_name) if ref is not None else None


def _discard(index: dict[K, set[GroupKey]], place: K | None, key: GroupKey) -> None:
    """Take a key from where it is noted; a place without keys is none."""
    if place is None:
        return
    index[place].discard(key)
    if not index[place]:
        del index[place]
