"""The ledger: what every pod takes of its node. It is the one mutable type of the engine.

Everything in it is additive. Placing a pod adds, ignoring one that is held subtracts, so there is one way to undo, and
no operation needs an inverse of its own: ``rollback`` replays the journal backwards with the sign turned. All of it is
integer arithmetic, so every array is bit for bit what it was at the mark. Tallies (host ports in use, pods that match a
selector per node, ...) follow the same rule behind one method.

``changed_at`` says for each node when it last changed, and ``node_version`` when a node itself changed, rather than the
pods on it. What is derived from the ledger per node reads the rows that changed since its own version, so the ledger
notifies nothing.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.problems import Problem
from cpg_engine.cluster.allocator import Allocators, Reserved
from cpg_engine.cluster.attachments import Attachments
from cpg_engine.cluster.axes import Amounts, Rows, leave_to_devices, moved_columns, offered, take_from_devices
from cpg_engine.cluster.class_registry import ClassRegistry
from cpg_engine.cluster.device_allocator import DeviceAllocator
from cpg_engine.cluster.device_needs import PodDevices, pod_devices, used_claims
from cpg_engine.cluster.device_rooms import DeviceRooms
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import NOMINATED, PodClass, is_nominated, signature
from cpg_engine.cluster.pod_index import PodIndex
from cpg_engine.cluster.pod_relations import asked_labels
from cpg_engine.cluster.requests import node_amounts
from cpg_engine.cluster.storage import StorageCatalog
from cpg_engine.cluster.volume_allocator import VolumeAllocator
from cpg_engine.devices.catalog import DeviceCatalog

NO_ROW = -1
"""The row of a node that is not known."""
MAX_STALE_COLUMNS = 32
"""Columns of resources that no node has any more, beyond as many as there are others."""
MAX_STALE_LABELS = 256
"""Labels that no class asks for any more, beyond as many as there are others."""


class Tally(Protocol):
    """Counts of pods by node beside their resources. Adding a number and then its negative leaves them unchanged."""

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many more pods of the class at a node; a negative number counts them out."""

    def forget(self, row: int) -> None:
        """Set the counts of a row to zero: its node is gone."""


class JournalEntry(Struct, frozen=True):
    """Pods of one class that came to (+1) or left (-1) some rows, one pod per row; a row may occur more than once.

    ``reserved`` is what placing them has reserved beside the nodes; ``uids`` are the pods if the ledger held them.
    """

    pod_class: PodClass
    rows: Rows
    sign: int = 1
    reserved: Reserved = ()
    uids: tuple[str, ...] = ()


class HeldPod(Struct, frozen=True):
    """A pod that counts at a node; ``row`` is that of the node, or ``NO_ROW`` while the node is not known."""

    pod: Pod
    pod_class: PodClass
    node_name: str
    row: int


class Ledger:
    """What is free on every node, and what each pod holds."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        """Start with an empty cluster."""
        self.classes = ClassRegistry()
        self.cluster = NodeColumns()
        self.allocatable: Amounts = np.zeros((0, self.classes.axis.size), dtype=np.int64)
        self.used: Amounts = np.zeros((0, self.classes.axis.size), dtype=np.int64)
        self.scored: Amounts = np.zeros((0, 2), dtype=np.int64)
        self.version = 0
        self.changed_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.node_version = 0
        self.node_problems: dict[str, tuple[Problem, ...]] = {}
        self.pod_index = PodIndex(self.cluster)
        self.tallies: tuple[Tally, ...] = (self.pod_index, *tallies)
        self.storage = StorageCatalog()
        self.devices = DeviceCatalog()
        self.volume_allocator = VolumeAllocator(self.storage, self.cluster)
        stock = DeviceStock(self.devices, self.cluster, self._touch)
        rooms = DeviceRooms(self.devices, stock, self, lambda name: offered(self.allocatable, self.classes.axis, name))
        self.device_allocator = DeviceAllocator(self.devices, self.cluster, rooms, stock)
        self.allocators = Allocators((self.volume_allocator, self.device_allocator))
        self.attachments = Attachments(self.storage, self.cluster)
        self._held: dict[str, HeldPod] = {}
        self._on_node: dict[str, set[str]] = {}
        self._journal: list[JournalEntry] = []
        self._ignored: set[str] = set()
        self._classes_seen = 0
        self.asked_labels: frozenset[str] = frozenset()
        self._most_columns = MAX_STALE_COLUMNS
        self._most_labels = MAX_STALE_LABELS

    # Between cycles: what the watches bring.

    def put_node(self, node: Node) -> None:
        """Add a node or its new state; pods that were bound to it before it was known count from now on."""
        if self.cluster.is_unchanged(node):
            return
        name = node.metadata.name
        is_new = name not in self.cluster.row_of
        amounts, problems = node_amounts(node.status.allocatable)
        self._refresh_axis(amounts)
        row = self.cluster.put(node)
        self._grow_rows()
        self.allocatable[row] = self.classes.axis.vector(amounts)
        leave_to_devices(self.allocatable, self.classes.axis, self.cluster.alive)
        if problems:
            self.node_problems[name] = problems
        else:
            self.node_problems.pop(name, None)
        if is_new:
            for held in self._move_held(name, row):
                self._count(held.pod_class, row, 1)
        self.version += 1
        self.changed_at[row] = self.node_version = self.version

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay held, in case it comes back."""
        row = self.cluster.remove(name)
        if row is None:
            return
        self._move_held(name, NO_ROW)
        self.allocatable[row] = self.used[row] = 0
        self.scored[row] = 0
        self.node_problems.pop(name, None)
        for tally in (*self.tallies, self.attachments, self.device_allocator.rooms.nominated):
            tally.forget(row)
        self.version += 1
        self.changed_at[row] = self.node_version = self.version

    def put_pod(self, pod: Pod, node_name: str) -> None:
        """Count a pod at a node, in place of its last state; raise ``RequestError`` if its requests are no amounts."""
        pod_class = self._class_for(
            pod, pod_devices(pod, pod.metadata.uid.removeprefix(NOMINATED), self.devices) if is_nominated(pod) else None
        )
        if not pod_class.nominated:
            self.device_allocator.claims.put_user(pod.metadata.uid, used_claims(pod))
        known = self._held.get(pod.metadata.uid)
        if known is not None and known.pod_class is pod_class and known.node_name == node_name:
            self._held[pod.metadata.uid] = replace(known, pod=pod)
            return
        self.remove_pod(pod.metadata.uid)
        row = self.cluster.row_of.get(node_name, NO_ROW)
        self._held[pod.metadata.uid] = HeldPod(pod, pod_class, node_name, row)
        self._on_node.setdefault(node_name, set()).add(pod.metadata.uid)
        if row != NO_ROW:
            self._count(pod_class, row, 1)

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod; one that is not held changes nothing."""
        found = self._held.pop(uid, None)
        if found is None:
            return
        self.device_allocator.claims.remove_user(uid)
        there = self._on_node[found.node_name]
        there.discard(uid)
        if not there:
            del self._on_node[found.node_name]
        if found.row != NO_ROW:
            self._count(found.pod_class, found.row, -1)

    def _move_held(self, node_name: str, row: int) -> list[HeldPod]:
        """Set the row of the pods of a node; return them."""
        found = {uid: replace(self._held[uid], row=row) for uid in self._on_node.get(node_name, ())}
        self._held.update(found)
        return list(found.values())

    def class_of(self, pod: Pod) -> PodClass:
        """Return the class of a pod that waits, made for the first of its kind and kept while anything holds it.

        Selectors of a new class may ask for labels that no class before it has asked for. Then the classes of held pods
        are split by these labels, and classes returned earlier for pending pods may be out of date.
        """
        needs_none = not (pod.spec.resource_claims or self.devices.backing or pod.status.extended_resource_claim_status)
        uid = pod.metadata.uid.removeprefix(NOMINATED)
        return self._class_for(pod, None if needs_none else pod_devices(pod, uid, self.devices))

    def _class_for(self, pod: Pod, devices: PodDevices | None) -> PodClass:
        """Return the class of a pod that still needs these devices; a pod that is held has them by its claims."""
        if self._classes_seen != self.devices.class_version:
            self._refresh_axis()
        found = self.classes.by_signature.get(signature(pod, self.asked_labels, devices))
        if found is None:
            self._ask(asked_labels(pod.spec))
            found = self.classes.of(pod, self.asked_labels, devices)
        return found

    def _ask(self, labels: Iterable[str]) -> None:
        """Distinguish pods by these labels, too; held pods that have one get another class.

        Labels that no class in use asks for are dropped now and then. A class that was split by one stays as it is,
        which is right as well, only finer.
        """
        asked = frozenset(labels)
        if asked <= self.asked_labels:
            return
        if len(self.asked_labels) > self._most_labels:
            self.asked_labels = self.classes.asked_labels()
            self._most_labels = 2 * len(self.asked_labels) + MAX_STALE_LABELS
        new = asked - self.asked_labels
        self.asked_labels |= new
        for uid, held in self._held.items():
            if new.isdisjoint(held.pod.metadata.labels):
                continue
            pod_class = self.classes.of(held.pod, self.asked_labels, held.pod_class.devices)
            self._held[uid] = replace(held, pod_class=pod_class)
            if held.row != NO_ROW:
                self._count(held.pod_class, held.row, -1)
                self._count(pod_class, held.row, 1)

    # Within a cycle: simulation.

    def place(self, pod_class: PodClass, rows: Rows) -> None:
        """Place one pod of a class at each of the rows."""
        self._journal.append(JournalEntry(pod_class, rows, reserved=self.allocators.reserve(pod_class, rows)))
        self._apply(pod_class, rows, 1)

    def uids_on_node(self, node_name: str) -> Iterable[str]:
        """Return the UIDs of the pods that are held at a node, whether it is known or not."""
        return self._on_node.get(node_name, ())

    def location_of(self, uid: str) -> tuple[PodClass, int] | None:
        """Return the class and the row of a held pod, or None where it takes nothing of any node at present."""
        held = self._held.get(uid)
        return None if held is None or held.row == NO_ROW or uid in self._ignored else (held.pod_class, held.row)

    def locations_of(self, uids: Iterable[str]) -> tuple[list[int], list[int]]:
        """Return the row of each pod and the index of its class; the row is negative where it takes nothing now."""
        ignored = self._ignored
        found = [None if uid in ignored else self._held.get(uid) for uid in uids]
        return [held.row if held else NO_ROW for held in found], [held.pod_class.index if held else 0 for held in found]

    def ignore(self, uids: Iterable[str]) -> None:
        """Treat held pods as absent; those that are ignored already, or are at no known node, change nothing."""
        self._move({uid: None for uid in uids if uid not in self._ignored}, -1)

    def restore(self, uids: Iterable[str]) -> None:
        """Put ignored pods back where they were held."""
        self._move({uid: None for uid in uids if uid in self._ignored}, 1)

    def mark(self) -> int:
        """Return a mark to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, last in first out."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if entry.reserved:
                self.allocators.unreserve(entry.reserved)
            self._apply(entry.pod_class, entry.rows, -entry.sign, entry.uids)

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""
        return np.flatnonzero(self.changed_at > version)

    def _move(self, uids: Iterable[str], sign: int) -> None:
        """Let held pods leave or come back, all pods of a class at once."""
        by_class: dict[PodClass, tuple[list[str], list[int]]] = {}
        for uid in uids:
            held = self._held.get(uid)
            if held is not None and held.row != NO_ROW:
                alike, rows = by_class.setdefault(held.pod_class, ([], []))
                alike.append(uid)
                rows.append(held.row)
        for pod_class, (alike, rows) in by_class.items():
            entry = JournalEntry(pod_class, np.array(rows, dtype=np.intp), sign, uids=tuple(alike))
            self._journal.append(entry)
            self._apply(pod_class, entry.rows, sign, entry.uids)

    def _apply(self, pod_class: PodClass, rows: Rows, sign: int, uids: tuple[str, ...] = ()) -> None:
        """Add or subtract pods; the same row may occur several times, so plain indexing would lose some."""
        if uids:
            (self._ignored.update if sign < 0 else self._ignored.difference_update)(uids)
            claims = self.device_allocator.claims
            (claims.lift if sign < 0 else claims.put_back)(uids)
        if len(rows) == 1:
            self._count(pod_class, int(rows[0]), sign)
            return
        distinct, counts = np.unique(rows, return_counts=True)
        numbers = sign * counts
        self.used[distinct] += numbers[:, None] * self.classes.vectors[pod_class.index]
        self.scored[distinct] += numbers[:, None] * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self._tallies_of(pod_class):
            for row, number in zip(distinct.tolist(), numbers.tolist(), strict=True):
                tally.add(pod_class, row, number)
        self.version += 1
        self.changed_at[distinct] = self.version

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        self.used[row] += sign * self.classes.vectors[pod_class.index]
        self.scored[row] += sign * np.array((pod_class.scored_cpu, pod_class.scored_memory))
        for tally in self._tallies_of(pod_class):
            tally.add(pod_class, row, sign)
        self.version += 1
        self.changed_at[row] = self.version

    def _touch(self, row: int) -> None:
        """Note that something else than pods has changed at a row."""
        self.version += 1
        self.changed_at[row] = self.version

    def _tallies_of(self, pod_class: PodClass) -> tuple[Tally, ...]:
        """Return the tallies that count a class; most pods have no volumes or devices and cost nothing there."""
        tallies = self.tallies if pod_class.volumes is None else (*self.tallies, self.attachments)
        return (
            (*tallies, self.device_allocator.rooms.nominated) if pod_class.nominated and pod_class.devices else tallies
        )

    def _refresh_axis(self, names: Iterable[str] = ()) -> None:
        """Give each resource of a node a column of its own, and count there what held pods request of it.

        Where most columns may be unused, those of resources that no node has are dropped. Resources that device classes
        back limit only nodes that offer them.
        """
        old = self.classes.axis
        axis = old.grown(names).backing(self.devices.backing)
        self._classes_seen = self.devices.class_version
        if axis is old:
            return
        take_from_devices(self.allocatable, old)
        if axis.size > self._most_columns:
            has_any = self.allocatable.any(axis=0)
            axis = axis.only({old.names[column] for column in np.flatnonzero(has_any).tolist()}).grown(names)
            self._most_columns = 2 * axis.size + MAX_STALE_COLUMNS
        changes = self.classes.replace_axis(axis)
        self.allocatable, self.used = moved_columns(self.allocatable, old, axis), moved_columns(self.used, old, axis)
        leave_to_devices(self.allocatable, axis, self.cluster.alive)
        if changes:
            self.version += 1
            for held in self._held.values():
                if held.row != NO_ROW and held.pod_class.index in changes:
                    self.used[held.row] += changes[held.pod_class.index]
                    self.changed_at[held.row] = self.version
        if axis.backed != old.backed and (axis.backed_columns or old.backed_columns):
            self.version += 1
            self.changed_at[:] = self.node_version = self.version

    def _grow_rows(self) -> None:
        more = self.cluster.size - len(self.changed_at)
        if not more:
            return
        longer = ((0, more), (0, 0))
        self.allocatable, self.used = np.pad(self.allocatable, longer), np.pad(self.used, longer)
        self.scored = np.pad(self.scored, longer)
        self.changed_at = np.pad(self.changed_at, (0, more))
        self.pod_index.clear_cache()
