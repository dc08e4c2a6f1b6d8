"""Build trees from groups, independent of the order in which the groups arrive.

A tree is all groups below one anchor. The anchor is one of three: a root that exists, so the tree may be scheduled; an
ancestor that does not exist yet, so everything below it waits; or a cycle of parents, so nothing below it can ever be
scheduled.

A forest is two mappings without history. A store keeps them current with two dictionary writes per event. A tree is
built on demand, in time proportional to its size.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup

Group: TypeAlias = PodGroup | CompositePodGroup


class GroupKey(NamedTuple):
    """The key of a group. Keys sort, so every order derived from them is total."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the kind, namespace and name, as messages show them."""
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(group: Group) -> GroupKey:
    """Return the key of a group."""
    return GroupKey(group.kind, group.metadata.namespace, group.metadata.name)


def parent_of(group: Group) -> GroupKey | None:
    """Return the key of the parent that a group names: a CompositePodGroup of the same namespace."""
    name = group.spec.parent_composite_pod_group_name
    return GroupKey(CompositePodGroup.kind, group.metadata.namespace, name) if name else None


class Anchor(Enum):
    """What is at the top of a tree."""

    ROOT = "root"
    MISSING = "missing"
    CYCLE = "cycle"


class TreeNode(Struct, frozen=True, gc=False):
    """A group in its tree; ``parent`` and ``children`` are positions in ``Tree.nodes``."""

    group: Group
    parent: int | None
    depth: int
    children: tuple[int, ...]

    @property
    def key(self) -> GroupKey:
        """Return the key of the group."""
        return key_of(self.group)


class Tree(Struct, frozen=True):
    """All groups below one anchor, parents before children, siblings in scheduling order.

    Where the anchor is a cycle, ``cycle`` lists it from child to parent, beginning with its smallest key, and its first
    group takes the place of the root. Below a missing anchor several groups may be at the top.
    """

    anchor: Anchor
    anchor_key: GroupKey
    nodes: tuple[TreeNode, ...]
    cycle: tuple[GroupKey, ...] = ()

    @property
    def root(self) -> Group:
        """Return the group at the top; below a missing anchor, the first of them."""
        return self.nodes[0].group


class Forest(Struct, frozen=True):
    """All groups of a flavour, and the children of each parent that they name. The parent need not exist."""

    groups: Mapping[GroupKey, Group]
    children: Mapping[GroupKey, Collection[GroupKey]]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> "Forest":
        """Build the forest of some groups; of two with one key, the last one wins."""
        by_key = {key_of(group): group for group in groups}
        children: defaultdict[GroupKey, set[GroupKey]] = defaultdict(set)
        for key, group in by_key.items():
            if (parent := parent_of(group)) is not None:
                children[parent].add(key)
        return cls(groups=by_key, children=dict(children))

    def with_group(self, group: Group) -> "Forest":
        """Return the forest with a group added, or replaced where its key exists."""
        key = key_of(group)
        children: dict[GroupKey, Collection[GroupKey]] = dict(self.children)
        for one, found in ((self.groups.get(key), set[GroupKey]()), (group, {key})):
            if one is not None and (parent := parent_of(one)) is not None:
                children[parent] = {*children.get(parent, ())} - {key} | found
        return Forest(groups={**self.groups, key: group}, children=children)

    def trees(self) -> Iterator[Tree]:
        """Yield every tree once, in the order of their anchors' keys."""
        anchors: dict[GroupKey, tuple[Anchor, tuple[GroupKey, ...]]] = {}
        settled: dict[GroupKey, GroupKey] = {}
        for key in self.groups:
            path, anchor, top, loop = self._climb(key, settled)
            for passed in path:
                settled[passed] = top
            if anchor is not None:
                anchors[top] = (anchor, loop)
        for top in sorted(anchors):
            anchor, loop = anchors[top]
            yield self._grow(anchor, top, loop)

    def tree_of(self, key: GroupKey) -> Tree:
        """Return the tree of a group; for a group that does not exist, the tree that waits for it."""
        _, anchor, top, loop = self._climb(key, {})
        return self._grow(anchor or Anchor.ROOT, top, loop)

    def anchor_of(self, key: GroupKey) -> GroupKey:
        """Return the key of the anchor of a group's tree. The group need not exist."""
        _, _, top, _ = self._climb(key, {})
        return top

    def _climb(
        self, key: GroupKey, settled: Mapping[GroupKey, GroupKey]
    ) -> tuple[list[GroupKey], Anchor | None, GroupKey, tuple[GroupKey, ...]]:
        """Walk from a group to its anchor. At a key in ``settled`` the walk stops and returns no kind of anchor."""
        path: list[GroupKey] = []
        places: dict[GroupKey, int] = {}
        while key not in settled:
            group = self.groups.get(key)
            if group is None:
                return path, Anchor.MISSING, key, ()
            if key in places:
                loop = path[places[key] :]
                first = loop.index(min(loop))
                return path, Anchor.CYCLE, loop[first], (*loop[first:], *loop[:first])
            places[key] = len(path)
            path.append(key)
            parent = parent_of(group)
            if parent is None:
                return path, Anchor.ROOT, key, ()
            key = parent
        return path, None, settled[key], ()

    def _grow(self, anchor: Anchor, top: GroupKey, loop: tuple[GroupKey, ...]) -> Tree:
        """Collect everything below an anchor, depth first. Recursion would fail on a tree of thousands of levels."""
        order: list[tuple[Group, int | None, int]] = []
        below: list[list[int]] = []
        tops = self._ordered(top) if anchor is Anchor.MISSING else [self.groups[top]]
        stack: list[tuple[Group, int | None, int]] = [(group, None, 1) for group in reversed(tops)]
        while stack:
            group, parent, depth = stack.pop()
            place = len(order)
            order.append((group, parent, depth))
            below.append([])
            if parent is not None:
                below[parent].append(place)
            stack.extend(
                (child, place, depth + 1) for child in reversed(self._ordered(key_of(group))) if key_of(child) != top
            )
        nodes = tuple(
            TreeNode(group=group, parent=parent, depth=depth, children=tuple(children))
            for (group, parent, depth), children in zip(order, below, strict=True)
        )
        return Tree(anchor=anchor, anchor_key=top, nodes=nodes, cycle=loop)

    def _ordered(self, parent: GroupKey) -> list[Group]:
        """Return the children in scheduling order, which is total: by creation time, then by name."""
        children = [self.groups[key] for key in self.children.get(parent, ())]
        return sorted(children, key=lambda group: (group.metadata.creation_timestamp or "", *key_of(group)[::-1]))
