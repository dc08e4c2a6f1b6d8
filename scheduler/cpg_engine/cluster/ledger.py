"""The ledger: who takes how much of which node. The one mutable thing in the engine.

Everything in it is additive. Placing a pod adds, lifting one that is held subtracts, so there is one way to undo and
nobody writes an inverse: ``rollback`` replays the journal backwards with the sign turned. Since all of it is integer
arithmetic, every array is bit for bit what it was at the mark. Tallies (who uses a host port, how many pods match a
selector per node, ...) follow the same rule behind one method.

``changed_at`` says for each node when it last changed, and ``node_version`` when any node itself did, rather than the
pods on it. Whoever keeps something per node derived from the ledger asks for what changed since, and never has to be
told.
"""

from collections.abc import Iterable
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.problems import Problem
from cpg_engine.cluster.allocator import Allocators, Reserved
from cpg_engine.cluster.attachments import Attachments
from cpg_engine.cluster.axes import Amounts, ResourceAxis, Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass, make_class, signature
from cpg_engine.cluster.pod_index import PodIndex
from cpg_engine.cluster.pod_relations import asked_labels
from cpg_engine.cluster.requests import node_amounts, pod_requests
from cpg_engine.cluster.storage import Storage
from cpg_engine.cluster.volume_allocator import VolumeAllocator

UNSEEN = -1
"""The row of a node that is not there."""
FEW = 64
"""Vectors of classes that are gone are kept until there are this many more of them than of the others."""


class Tally(Protocol):
    """Counts of pods by node beyond resources; adding and then taking away leaves them as they were."""

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many pods of the class in at a node, or out where the number is negative."""

    def forget(self, row: int) -> None:
        """Set a row back to nothing: its node is gone."""


class JournalEntry(Struct, frozen=True):
    """Pods of one class that came to (+1) or left (-1) some rows, one pod a row; a row may occur more than once.

    ``reserved`` is what placing them has reserved beside the nodes; ``uids`` are the pods where they were held.
    """

    pod_class: PodClass
    rows: Rows
    sign: int = 1
    reserved: Reserved = ()
    uids: tuple[str, ...] = ()


class HeldPod(Struct, frozen=True):
    """A pod that counts at a node; ``row`` is that of the node, or negative for as long as nobody has seen it."""

    pod: Pod
    pod_class: PodClass
    node_name: str
    row: int


class Ledger:
    """What is free, and who holds what is not."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        """Start with an empty cluster."""
        self.axis = ResourceAxis()
        self.cluster = NodeColumns()
        self.allocatable: Amounts = np.zeros((0, self.axis.size), dtype=np.int64)
        self.used: Amounts = np.zeros((0, self.axis.size), dtype=np.int64)
        self.scored: Amounts = np.zeros((0, 2), dtype=np.int64)
        self.version = 0
        self.changed_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.node_version = 0
        self.node_problems: dict[str, tuple[Problem, ...]] = {}
        self.pod_index = PodIndex(self.cluster)
        self.tallies: tuple[Tally, ...] = (self.pod_index, *tallies)
        self.storage = Storage()
        self.volume_allocator = VolumeAllocator(self.storage, self.cluster)
        self.allocators = Allocators((self.volume_allocator,))
        self.attachments = Attachments(self.storage, self.cluster)
        self._classes: WeakValueDictionary[bytes, PodClass] = WeakValueDictionary()
        self._vectors: dict[int, Amounts] = {}
        self._made = 0
        self._held: dict[str, HeldPod] = {}
        self._on_node: dict[str, set[str]] = {}
        self._journal: list[JournalEntry] = []
        self._ignored: set[str] = set()
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
            for held in self._settle(name, row):
                self._count(held.pod_class, row, 1)
        self.version += 1
        self.changed_at[row] = self.node_version = self.version

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait, should it come back."""
        row = self.cluster.remove(name)
        if row is None:
            return
        self._settle(name, UNSEEN)
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
            self._held[pod.metadata.uid] = replace(known, pod=pod)
            return
        self.remove_pod(pod.metadata.uid)
        row = self.cluster.row_of.get(node_name, UNSEEN)
        self._held[pod.metadata.uid] = HeldPod(pod, pod_class, node_name, row)
        self._on_node.setdefault(node_name, set()).add(pod.metadata.uid)
        if row != UNSEEN:
            self._count(pod_class, row, 1)

    def remove_pod(self, uid: str) -> None:
        """Take a pod out of account; one that is not there is no news."""
        found = self._held.pop(uid, None)
        if found is None:
            return
        there = self._on_node[found.node_name]
        there.discard(uid)
        if not there:
            del self._on_node[found.node_name]
        if found.row != UNSEEN:
            self._count(found.pod_class, found.row, -1)

    def _settle(self, node_name: str, row: int) -> list[HeldPod]:
        """Note the row at which the pods of a node are from now on; return them."""
        found = {uid: replace(self._held[uid], row=row) for uid in self._on_node.get(node_name, ())}
        self._held.update(found)
        return list(found.values())

    def put_namespace(self, namespace: Namespace) -> None:
        """Take the labels of a namespace, by which pods may select whom they want near."""
        self.pod_index.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        """Forget a namespace; pods that are still in it are then in one without labels."""
        self.pod_index.put_namespace(name, None)

    def class_of(self, pod: Pod) -> PodClass:
        """Return the class of a pod, made when the first of its kind comes, and kept for as long as somebody holds it.

        A class whose selectors ask for labels that nobody has asked for before makes the pods that have them known
        by these labels, too: classes returned earlier for pods that wait may be out of date then.
        """
        found = self._classes.get(signature(pod, self.asked_labels))
        if found is None:
            self._ask(asked_labels(pod.spec))
            found = self._class_of(pod)
        return found

    @property
    def class_count(self) -> int:
        """Return how many classes there are."""
        return len(self._classes)

    def _class_of(self, pod: Pod) -> PodClass:
        key = signature(pod, self.asked_labels)
        found = self._classes.get(key)
        if found is None:
            self._grow_axis(pod_requests(pod))
            self._forget_vectors()
            found = self._classes[key] = make_class(self._made, pod, self.asked_labels)
            self._vectors[self._made] = self.axis.vector(found.requests)
            self._made += 1
        return found

    def _forget_vectors(self) -> None:
        """Forget the vectors of classes that are gone, once they are more than those of the others."""
        if len(self._vectors) > 2 * len(self._classes) + FEW:
            self._vectors = {found.index: self._vectors[found.index] for found in self._classes.values()}

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
            self._held[uid] = replace(held, pod_class=pod_class)
            if held.row != UNSEEN:
                self._count(held.pod_class, held.row, -1)
                self._count(pod_class, held.row, 1)

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self._vectors[pod_class.index]

    def vectors_of(self, indexes: Iterable[int]) -> Amounts:
        """Return the requests of classes by their indexes, a row each."""
        return np.array([self._vectors[index] for index in indexes], dtype=np.int64).reshape(-1, self.axis.size)

    # Within a cycle: simulation.

    def place(self, pod_class: PodClass, rows: Rows) -> None:
        """Place one pod of a class at each of the rows."""
        self._journal.append(JournalEntry(pod_class, rows, reserved=self.allocators.reserve(pod_class, rows)))
        self._apply(pod_class, rows, 1)

    def uids_on_node(self, node_name: str) -> Iterable[str]:
        """Return the pods that are held at a node, seen or not."""
        return self._on_node.get(node_name, ())

    def location_of(self, uid: str) -> tuple[PodClass, int] | None:
        """Return the class and the row of a held pod, or None where it takes nothing of any node at present."""
        held = self._held.get(uid)
        return None if held is None or held.row == UNSEEN or uid in self._ignored else (held.pod_class, held.row)

    def locations_of(self, uids: Iterable[str]) -> tuple[list[int], list[int]]:
        """Return the row of each pod and the index of its class; the row is negative where it takes nothing now."""
        ignored = self._ignored
        found = [None if uid in ignored else self._held.get(uid) for uid in uids]
        return [held.row if held else UNSEEN for held in found], [held.pod_class.index if held else 0 for held in found]

    def ignore(self, uids: Iterable[str]) -> None:
        """Take held pods out; those that are out already, or are not at any node, are no news."""
        self._move({uid: None for uid in uids if uid not in self._ignored}, -1)

    def restore(self, uids: Iterable[str]) -> None:
        """Put pods that were lifted back where they were held."""
        self._move({uid: None for uid in uids if uid in self._ignored}, 1)

    def mark(self) -> int:
        """Return a mark to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back everything done since the mark, last in first out."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            self.allocators.unreserve(entry.reserved)
            self._apply(entry.pod_class, entry.rows, -entry.sign)
            self._note(entry.uids, -entry.sign)

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""
        return np.flatnonzero(self.changed_at > version)

    def _move(self, uids: Iterable[str], sign: int) -> None:
        """Let held pods leave or come back, all of a class at once."""
        by_class: dict[PodClass, tuple[list[str], list[int]]] = {}
        for uid in uids:
            held = self._held.get(uid)
            if held is not None and held.row != UNSEEN:
                alike, rows = by_class.setdefault(held.pod_class, ([], []))
                alike.append(uid)
                rows.append(held.row)
        for pod_class, (alike, rows) in by_class.items():
            entry = JournalEntry(pod_class, np.array(rows, dtype=np.intp), sign, uids=tuple(alike))
            self._journal.append(entry)
            self._apply(pod_class, entry.rows, sign)
            self._note(entry.uids, sign)

    def _note(self, uids: Iterable[str], sign: int) -> None:
        """Remember who is out."""
        if sign < 0:
            self._ignored.update(uids)
        else:
            self._ignored.difference_update(uids)

    def _apply(self, pod_class: PodClass, rows: Rows, sign: int) -> None:
        """Add or take back pods; the same row may occur several times, so plain indexing would lose some."""
        if len(rows) == 1:
            self._count(pod_class, int(rows[0]), sign)
            return
        distinct, counts = np.unique(rows, return_counts=True)
        numbers = sign * counts
        self.used[distinct] += numbers[:, None] * self._vectors[pod_class.index]
        self.scored[distinct] += numbers[:, None] * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self._tallies_of(pod_class):
            for row, number in zip(distinct.tolist(), numbers.tolist(), strict=True):
                tally.add(pod_class, row, number)
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
        self._vectors = {index: np.pad(vector, (0, more)) for index, vector in self._vectors.items()}

    def _grow_rows(self) -> None:
        more = self.cluster.size - len(self.changed_at)
        if not more:
            return
        longer = ((0, more), (0, 0))
        self.allocatable, self.used = np.pad(self.allocatable, longer), np.pad(self.used, longer)
        self.scored = np.pad(self.scored, longer)
        self.changed_at = np.pad(self.changed_at, (0, more))
        self.pod_index.forget_answers()
