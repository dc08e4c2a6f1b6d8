"""The ledger: who takes how much of which node. The one mutable thing in the engine.

Everything in it is additive. Placing a pod adds, taking it back subtracts the same, so there is one way to undo and
nobody writes an inverse: ``rollback`` replays the journal backwards with the sign turned. Since all of it is integer
arithmetic, every array is bit for bit what it was at the mark. Tallies (who uses a host port, how many pods match a
selector per node, ...) follow the same rule behind one method.

``changed_at`` says for each node when it last changed. Whoever keeps something per node derived from the ledger asks
for the nodes changed since, and never has to be told.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.problems import Problem
from cpg_engine.snapshot.axes import Amounts, ResourceAxis, Rows
from cpg_engine.snapshot.classes import PodClass, make_class, signature
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.requests import node_amounts, pod_requests


class Tally(Protocol):
    """Counts of pods by node beyond resources; adding and then taking away leaves them as they were."""

    def add(self, pod_class: PodClass, row: int, sign: int) -> None:
        """Count a pod of the class in (+1) or out (-1) at a node."""

    def forget(self, row: int) -> None:
        """Set a row back to nothing: its node is gone."""


class Placement(Struct, frozen=True):
    """Pods of one class placed at some rows, one pod a row; a row may occur more than once."""

    pod_class: PodClass
    rows: Rows


class Ledger:
    """What is free, and who holds what is not."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        """Start with an empty cluster."""
        self.axis = ResourceAxis()
        self.cluster = ClusterColumns()
        self.allocatable: Amounts = np.zeros((0, self.axis.size), dtype=np.int64)
        self.used: Amounts = np.zeros((0, self.axis.size), dtype=np.int64)
        self.scored: Amounts = np.zeros((0, 2), dtype=np.int64)
        self.version = 0
        self.changed_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.node_changed_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.node_problems: dict[str, tuple[Problem, ...]] = {}
        self.tallies = tuple(tallies)
        self._classes: dict[bytes, PodClass] = {}
        self._vectors: list[Amounts] = []
        self._held: dict[str, tuple[PodClass, str]] = {}
        self._on_node: dict[str, set[str]] = {}
        self._journal: list[Placement] = []
        self._asked_labels: frozenset[str] = frozenset()

    # Between cycles: what the watches bring.

    def put_node(self, node: Node) -> None:
        """Add a node or take its new state; pods that were bound to it before it was seen count from now on."""
        name = node.metadata.name
        is_new = name not in self.cluster.row_of
        amounts, problems = node_amounts(node.status.allocatable)
        self._grow_axis(amounts)
        row = self.cluster.put(node)
        self._grow_rows()
        self.allocatable[row] = self.axis.vector(amounts)
        if problems:
            self.node_problems[name] = problems
        else:
            self.node_problems.pop(name, None)
        if is_new:
            for uid in self._on_node.get(name, ()):
                self._count(self._held[uid][0], row, 1)
        self.version += 1
        self.changed_at[row] = self.node_changed_at[row] = self.version

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait, should it come back."""
        row = self.cluster.remove(name)
        if row is None:
            return
        self.allocatable[row] = self.used[row] = 0
        self.scored[row] = 0
        self.node_problems.pop(name, None)
        for tally in self.tallies:
            tally.forget(row)
        self.version += 1
        self.changed_at[row] = self.node_changed_at[row] = self.version

    def put_pod(self, pod: Pod, node_name: str) -> None:
        """Count a pod at a node, in place of what was known of it; raise ``RequestError`` for one that cannot be."""
        pod_class = self.class_of(pod)
        if self._held.get(pod.metadata.uid) == (pod_class, node_name):
            return
        self.remove_pod(pod.metadata.uid)
        self._held[pod.metadata.uid] = (pod_class, node_name)
        self._on_node.setdefault(node_name, set()).add(pod.metadata.uid)
        row = self.cluster.row_of.get(node_name)
        if row is not None:
            self._count(pod_class, row, 1)

    def remove_pod(self, uid: str) -> None:
        """Take a pod out of account; one that is not there is no news."""
        found = self._held.pop(uid, None)
        if found is None:
            return
        pod_class, node_name = found
        self._on_node[node_name].discard(uid)
        row = self.cluster.row_of.get(node_name)
        if row is not None:
            self._count(pod_class, row, -1)

    def class_of(self, pod: Pod) -> PodClass:
        """Return the class of a pod, made when the first of its kind comes."""
        key = signature(pod, self._asked_labels)
        found = self._classes.get(key)
        if found is None:
            self._grow_axis(pod_requests(pod))
            found = self._classes[key] = make_class(len(self._vectors), pod)
            self._vectors.append(self.axis.vector(found.requests))
        return found

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self._vectors[pod_class.index]

    # Within a cycle: simulation.

    def place(self, pod_class: PodClass, rows: Rows) -> None:
        """Place one pod of a class at each of the rows."""
        self._journal.append(Placement(pod_class, rows))
        self._apply(pod_class, rows, 1)

    def mark(self) -> int:
        """Return a mark to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back everything placed since the mark, last in first out."""
        while len(self._journal) > mark:
            placement = self._journal.pop()
            self._apply(placement.pod_class, placement.rows, -1)

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""
        return np.flatnonzero(self.changed_at > version)

    def node_changed_since(self, version: int) -> Rows:
        """Return the rows whose node itself changed after a version."""
        return np.flatnonzero(self.node_changed_at > version)

    def _apply(self, pod_class: PodClass, rows: Rows, sign: int) -> None:
        """Add or take back pods; the same row may occur several times, so plain indexing would lose some."""
        if len(rows) == 1:
            self._count(pod_class, int(rows[0]), sign)
            return
        distinct, counts = np.unique(rows, return_counts=True)
        times = sign * counts[:, None]
        self.used[distinct] += times * self._vectors[pod_class.index]
        self.scored[distinct] += times * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self.tallies:
            for row in rows.tolist():
                tally.add(pod_class, row, sign)
        self.version += 1
        self.changed_at[distinct] = self.version

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        self.used[row] += sign * self._vectors[pod_class.index]
        self.scored[row] += sign * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self.tallies:
            tally.add(pod_class, row, sign)
        self.version += 1
        self.changed_at[row] = self.version

    def _grow_axis(self, names: Iterable[str]) -> None:
        axis = self.axis.grown(names)
        more = axis.size - self.axis.size
        if not more:
            return
        self.axis = axis
        wider = ((0, 0), (0, more))
        self.allocatable, self.used = np.pad(self.allocatable, wider), np.pad(self.used, wider)
        self._vectors = [np.pad(vector, (0, more)) for vector in self._vectors]

    def _grow_rows(self) -> None:
        more = self.cluster.size - len(self.changed_at)
        if not more:
            return
        longer = ((0, more), (0, 0))
        self.allocatable, self.used = np.pad(self.allocatable, longer), np.pad(self.used, longer)
        self.scored = np.pad(self.scored, longer)
        self.changed_at = np.pad(self.changed_at, (0, more))
        self.node_changed_at = np.pad(self.node_changed_at, (0, more))
