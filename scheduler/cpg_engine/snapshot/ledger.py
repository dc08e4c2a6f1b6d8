"""The ledger: who takes how much of which node. The one mutable thing in the engine.

Everything in it is additive. Placing a pod adds, taking it back subtracts the same, so there is one way to undo and
nobody writes an inverse: ``rollback`` replays the journal backwards with the sign turned. Since all of it is integer
arithmetic, every array is bit for bit what it was at the mark. Tallies (who uses a host port, how many pods match a
selector per node, ...) follow the same rule behind one method.

``changed_at`` says for each node when it last changed, and ``node_version`` when any node itself did, rather than the
pods on it. Whoever keeps something per node derived from the ledger asks for what changed since, and never has to be
told.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.problems import Problem
from cpg_engine.decisions import VolumeChoice
from cpg_engine.snapshot.attachments import Attachments
from cpg_engine.snapshot.axes import Amounts, ResourceAxis, Rows
from cpg_engine.snapshot.bindings import Bindings
from cpg_engine.snapshot.classes import PodClass, make_class, signature
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.relations import asked_labels
from cpg_engine.snapshot.requests import node_amounts, pod_requests
from cpg_engine.snapshot.residents import Residents
from cpg_engine.snapshot.storage import Storage


class Tally(Protocol):
    """Counts of pods by node beyond resources; adding and then taking away leaves them as they were."""

    def add(self, pod_class: PodClass, row: int, sign: int) -> None:
        """Count a pod of the class in (+1) or out (-1) at a node."""

    def forget(self, row: int) -> None:
        """Set a row back to nothing: its node is gone."""


class Placement(Struct, frozen=True):
    """Pods of one class placed at some rows, one pod a row; a row may occur more than once.

    ``choices`` are those that the placing made for their claims.
    """

    pod_class: PodClass
    rows: Rows
    choices: tuple[VolumeChoice, ...] = ()


class Held(Struct, frozen=True):
    """A pod that counts at a node, seen or not."""

    pod: Pod
    pod_class: PodClass
    node_name: str


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
        self.node_version = 0
        self.node_problems: dict[str, tuple[Problem, ...]] = {}
        self.residents = Residents(self.cluster)
        self.tallies: tuple[Tally, ...] = (self.residents, *tallies)
        self.storage = Storage()
        self.bindings = Bindings(self.storage, self.cluster)
        self.attachments = Attachments(self.storage, self.cluster)
        self._classes: dict[bytes, PodClass] = {}
        self._vectors: list[Amounts] = []
        self._held: dict[str, Held] = {}
        self._on_node: dict[str, set[str]] = {}
        self._journal: list[Placement] = []
        self.asked_labels: frozenset[str] = frozenset()

    # Between cycles: what the watches bring.

    def put_node(self, node: Node) -> None:
        """Add a node or take its new state; pods that were bound to it before it was seen count from now on."""
        if self.cluster.is_no_news(node):
            return
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
                self._count(self._held[uid].pod_class, row, 1)
        self.version += 1
        self.changed_at[row] = self.node_version = self.version

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait, should it come back."""
        row = self.cluster.remove(name)
        if row is None:
            return
        self.allocatable[row] = self.used[row] = 0
        self.scored[row] = 0
        self.node_problems.pop(name, None)
        for tally in (*self.tallies, self.attachments):
            tally.forget(row)
        self.version += 1
        self.changed_at[row] = self.node_version = self.version

    def put_pod(self, pod: Pod, node_name: str) -> None:
        """Count a pod at a node, in place of what was known of it; raise ``RequestError`` for one that cannot be."""
        pod_class = self.class_of(pod)
        known = self._held.get(pod.metadata.uid)
        if known is not None and known.pod_class is pod_class and known.node_name == node_name:
            self._held[pod.metadata.uid] = Held(pod, pod_class, node_name)
            return
        self.remove_pod(pod.metadata.uid)
        self._held[pod.metadata.uid] = Held(pod, pod_class, node_name)
        self._on_node.setdefault(node_name, set()).add(pod.metadata.uid)
        row = self.cluster.row_of.get(node_name)
        if row is not None:
            self._count(pod_class, row, 1)

    def remove_pod(self, uid: str) -> None:
        """Take a pod out of account; one that is not there is no news."""
        found = self._held.pop(uid, None)
        if found is None:
            return
        self._on_node[found.node_name].discard(uid)
        row = self.cluster.row_of.get(found.node_name)
        if row is not None:
            self._count(found.pod_class, row, -1)

    def put_namespace(self, namespace: Namespace) -> None:
        """Take the labels of a namespace, by which pods may select whom they want near."""
        self.residents.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace; pods that are still in it are then in one without labels."""
        self.residents.put_namespace(name, None)

    def class_of(self, pod: Pod) -> PodClass:
        """Return the class of a pod, made when the first of its kind comes.

        A class whose selectors ask for labels that nobody has asked for before makes the pods that have them known
        by these labels, too: classes returned earlier for pods that wait may be out of date then.
        """
        found = self._classes.get(signature(pod, self.asked_labels))
        if found is None:
            self._ask(asked_labels(pod.spec))
            found = self._class_of(pod)
        return found

    def _class_of(self, pod: Pod) -> PodClass:
        key = signature(pod, self.asked_labels)
        found = self._classes.get(key)
        if found is None:
            self._grow_axis(pod_requests(pod))
            found = self._classes[key] = make_class(len(self._vectors), pod, self.asked_labels)
            self._vectors.append(self.axis.vector(found.requests))
        return found

    def _ask(self, labels: Iterable[str]) -> None:
        """Know pods by these labels, too; those that have one are of another class from now on."""
        new = frozenset(labels) - self.asked_labels
        if not new:
            return
        self.asked_labels |= new
        for uid, held in self._held.items():
            if new.isdisjoint(held.pod.metadata.labels):
                continue
            pod_class = self._class_of(held.pod)
            self._held[uid] = Held(held.pod, pod_class, held.node_name)
            row = self.cluster.row_of.get(held.node_name)
            if row is not None:
                self._count(held.pod_class, row, -1)
                self._count(pod_class, row, 1)

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self._vectors[pod_class.index]

    # Within a cycle: simulation.

    def place(self, pod_class: PodClass, rows: Rows) -> None:
        """Place one pod of a class at each of the rows."""
        choices = self.bindings.choose(pod_class.volumes, rows) if pod_class.volumes is not None else ()
        self._journal.append(Placement(pod_class, rows, choices))
        self._apply(pod_class, rows, 1)

    def mark(self) -> int:
        """Return a mark to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back everything placed since the mark, last in first out."""
        while len(self._journal) > mark:
            placement = self._journal.pop()
            self.bindings.take_back(placement.choices)
            self._apply(placement.pod_class, placement.rows, -1)

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""
        return np.flatnonzero(self.changed_at > version)

    def _apply(self, pod_class: PodClass, rows: Rows, sign: int) -> None:
        """Add or take back pods; the same row may occur several times, so plain indexing would lose some."""
        if len(rows) == 1:
            self._count(pod_class, int(rows[0]), sign)
            return
        distinct, counts = np.unique(rows, return_counts=True)
        times = sign * counts[:, None]
        self.used[distinct] += times * self._vectors[pod_class.index]
        self.scored[distinct] += times * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self._tallies_of(pod_class):
            for row in rows.tolist():
                tally.add(pod_class, row, sign)
        self.version += 1
        self.changed_at[distinct] = self.version

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        self.used[row] += sign * self._vectors[pod_class.index]
        self.scored[row] += sign * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self._tallies_of(pod_class):
            tally.add(pod_class, row, sign)
        self.version += 1
        self.changed_at[row] = self.version

    def _tallies_of(self, pod_class: PodClass) -> tuple[Tally, ...]:
        """Return the tallies that a class is counted in; most pods have no volumes, and pay nothing for them."""
        return self.tallies if pod_class.volumes is None else (*self.tallies, self.attachments)

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
        self.residents.forget_answers()
