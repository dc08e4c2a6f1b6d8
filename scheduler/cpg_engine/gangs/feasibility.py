"""What a tree needs at least, by which it can be turned away before anything is placed.

Every bound here may let through what later fails, and never rejects what could have been placed.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.unit import Unit, UnitNode


class Needs:
    """The needs of every node of a unit, from the leaves up."""

    def __init__(self, unit: Unit) -> None:
        """Count once what does not change while the unit is searched for."""
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
        """Tell whether all pods are alike and all leaves are confined by the same labels: then any may go anywhere."""
        return len(self.classes) <= 1 and len({self._keys(leaf) for leaf in self._leaves()}) <= 1

    def _leaves(self) -> Iterator[int]:
        return (index for index, node in enumerate(self.unit.nodes) if node.leaf)

    def _keys(self, leaf: int) -> tuple[str, ...]:
        """Return the labels that confine a leaf, from the root down."""
        nodes = self.unit.nodes[: leaf + 1]
        return tuple(node.required for index, node in enumerate(nodes) if node.required and index <= leaf < node.end)

    def missing(self, node: UnitNode) -> int:
        """Return how many more children or pods the node needs for its minimum."""
        return max(node.minimum - node.scheduled, 0)

    def _count_leaf(self, index: int) -> None:
        node = self.unit.nodes[index]
        have = Counter(member.pod_class.index for member in node.pending)
        self.classes.update((member.pod_class.index, member.pod_class) for member in node.pending)
        self.most[index] = have
        self.total[index] = len(node.pending)
        needed = self.missing(node)
        self.admissible[index] = len(node.pending) >= needed
        self.met[index] = not needed
        others = len(node.pending)
        for found, number in have.items():
            # All pods of the other classes may serve before one of this class has to.
            self.least[index][found] = max(needed - (others - number), 0)

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


def could_hold(needs: Needs, index: int, room: dict[int, NDArray[np.int64]], domains: int) -> NDArray[np.bool_]:
    """Tell for each domain whether, by room per class alone, the minimum of a node could be placed inside it."""
    node = needs.unit.nodes[index]
    answer = np.full(domains, needs.admissible[index], dtype=np.bool_)
    for found, least in needs.least[index].items():
        answer &= room[found] >= least
    if node.leaf:
        return answer & (fitting(needs, index, room, domains) >= needs.missing(node))
    able = np.zeros(domains, dtype=np.int64)
    for child in node.children:
        able += could_hold(needs, child, room, domains)
    return answer & (able >= node.minimum)


def fitting(needs: Needs, index: int, room: dict[int, NDArray[np.int64]], domains: int) -> NDArray[np.int64]:
    """Return for each domain how many of the pods below a node it has room for at the most."""
    total = np.zeros(domains, dtype=np.int64)
    for found, number in needs.most[index].items():
        total += np.minimum(room[found], number)
    return total
