"""The groups of one flavour, as the two mappings that a forest is."""

from collections.abc import Iterator

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of, parent_of


class GroupStore:
    """The groups of one flavour of the API."""

    def __init__(self, flavour: str) -> None:
        """Start without groups."""
        self.flavour = flavour
        self._groups: dict[GroupKey, Group] = {}
        self._children: dict[GroupKey, set[GroupKey]] = {}
        self.forest = Forest(groups=self._groups, children=self._children)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._groups

    def holds(self, group: Group) -> bool:
        """Tell whether this very object is one of the store's, and not a namesake of another flavour."""
        known = self._groups.get(key_of(group))
        return known is not None and known.metadata.uid == group.metadata.uid

    def put(self, group: Group) -> Iterator[GroupKey]:
        """Take the state of a group; yield the anchors of the trees that this may have changed."""
        key = key_of(group)
        before = self.anchor(key)
        self._unlink(key)
        self._groups[key] = group
        parent = parent_of(group)
        if parent is not None:
            self._children.setdefault(parent, set()).add(key)
        yield before
        after = self.anchor(key)
        if after != before:
            yield after

    def remove(self, key: GroupKey) -> Iterator[GroupKey]:
        """Forget a group; yield the anchors of the trees that this may have changed."""
        if key not in self._groups:
            return
        before = self.anchor(key)
        self._unlink(key)
        del self._groups[key]
        yield before
        if before != key:
            yield key

    def anchor(self, key: GroupKey) -> GroupKey:
        """Return the anchor of a group's tree, also of one that is not there."""
        return self.forest.anchor_of(key)

    def _unlink(self, key: GroupKey) -> None:
        """Take a group away from the parent that it names."""
        group = self._groups.get(key)
        parent = parent_of(group) if group is not None else None
        if parent is None:
            return
        siblings = self._children[parent]
        siblings.discard(key)
        if not siblings:
            del self._children[parent]
