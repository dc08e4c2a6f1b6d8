"""What a unit needs: per group, how many pods of which classes, at least and at most."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.unit import Unit, UnitNode


class Needs:
    """The needs of every group of a unit, computed once from the leaves up.

    By position of the group: ``admissible`` is whether it has enough members, ``met`` whether its minimum has nodes
    already, ``total`` how many pods wait below it. ``least`` and ``most`` count them per class: what the minimum takes
    at least of each class, and all of them.
    """

    def __init__(self, unit: Unit) -> None:
        """Count what does not change during a search."""
        self.unit = unit
        size = len(unit.nodes)
        self.admissible = [False] * size
        self.met = [False] * size
        self.total = [0] * size
        self.least: list[Counter[int]] = [Counter() for _ in range(size)]
        self.most: list[Counter[int]] = [Counter() for _ in range(size)]
        self.classes: dict[int, PodClass] = {}
        for index in range(size - 1, -1, -1):
            (self._count_leaf if unit.nodes[index].leaf else self._count_group)(index)

    @cached_property
    def interchangeable(self) -> bool:
        """Return whether all pods are alike and all leaves require the same labels: then any pod may take any place."""
        return len(self.classes) <= 1 and self.requires_same_keys

    @cached_property
    def requires_same_keys(self) -> bool:
        """Return whether all leaves require the same labels, by themselves or by the groups above them."""
        return len({self._keys(leaf) for leaf in self._leaves()}) <= 1

    @cached_property
    def has_preferences(self) -> bool:
        """Return whether any group prefers a domain."""
        return any(node.preferred for node in self.unit.nodes)

    def requires_topology(self, index: int) -> bool:
        """Return whether a group, or one below it, requires a domain."""
        nodes = self.unit.nodes
        return any(node.required for node in nodes[index : nodes[index].end])

    def missing(self, node: UnitNode) -> int:
        """Return how many more children or pods a group needs for its minimum."""
        return max(node.minimum - node.scheduled, 0)

    def _leaves(self) -> Iterator[int]:
        return (index for index, node in enumerate(self.unit.nodes) if node.leaf)

    def _keys(self, leaf: int) -> tuple[str, ...]:
        """Return the labels that a leaf and the groups above it require, from the root down."""
        nodes = self.unit.nodes[: leaf + 1]
        return tuple(node.required for index, node in enumerate(nodes) if node.required and index <= leaf < node.end)

    def _count_leaf(self, index: int) -> None:
        node = self.unit.nodes[index]
        waiting = Counter(pod.pod_class.index for pod in node.pending)
        self.classes.update((pod.pod_class.index, pod.pod_class) for pod in node.pending)
        self.most[index] = waiting
        self.total[index] = len(node.pending)
        needed = self.missing(node)
        self.admissible[index] = len(node.pending) >= needed
        self.met[index] = not needed
        for found, number in waiting.items():
            # All pods of the other classes may serve before one of this class has to.
            others = len(node.pending) - number
            self.least[index][found] = max(needed - others, 0)

    def _count_group(self, index: int) -> None:
        node = self.unit.nodes[index]
        able = [child for child in node.children if self.admissible[child]]
        self.admissible[index] = len(able) >= node.minimum
        self.met[index] = sum(self.met[child] for child in node.children) >= node.minimum
        self.total[index] = sum(self.total[child] for child in node.children)
        for child in node.children:
            self.most[index].update(self.most[child])
        for found in self.most[index]:
            cheapest = sorted(self.least[child][found] for child in able)
            self.least[index][found] = sum(cheapest[: node.minimum])
