"""Where pods fit that need devices on some nodes and not on others, because nodes may offer an extended resource."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.device_room import DeviceRoom
from cpg_engine.cluster.device_solver import UNLIMITED


class Room(Protocol):
    """The nodes as pods see them that need devices."""

    def slots(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices."""

    def most(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices at most: no search has shown that there are fewer."""

    def most_if_free(self, rows: Rows) -> Scores:
        """Return for how many pods each node would have devices at most if none was taken."""

    def groups(self, rows: Rows) -> Rows:
        """Return a number for each node; nodes with the same number have equal devices left."""

    def fits(self, rows: Rows) -> Flags:
        """Return which nodes have devices for one more pod."""

    def is_coupled(self) -> bool:
        """Return whether a device that could be chosen can be used by several nodes."""

    def is_exact(self) -> bool:
        """Return whether no node could have devices for more pods than were found, whichever they are given."""

    def has_alternatives(self) -> bool:
        """Return whether a request has several alternatives."""

    def ranks(self, rows: Rows) -> Scores:
        """Return for each node how early the alternatives are that a pod would be given, in sum over its requests."""

    def reach_key(self, row: int) -> object:
        """Return what nodes have in common that would give a pod the same devices, of which none is theirs alone."""


class RoomPart(Struct, frozen=True):
    """The nodes on which pods need the same devices; without a room, they fit as often as ``limit`` says."""

    rows: Flags
    room: DeviceRoom | None
    limit: int = UNLIMITED


class MixedRoom:
    """Each node with the room for what pods need there."""

    def __init__(self, parts: Sequence[RoomPart]) -> None:
        """Use parts that have each node once, for as long as nodes and classes stay as they are."""
        self._parts = parts
        self._rooms = [part.room for part in parts if part.room is not None]

    def slots(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices."""
        return self._read(rows, DeviceRoom.slots)

    def most(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices at most: no search has shown that there are fewer."""
        return self._read(rows, DeviceRoom.most)

    def most_if_free(self, rows: Rows) -> Scores:
        """Return for how many pods each node would have devices at most if none was taken."""
        return self._read(rows, DeviceRoom.most_if_free)

    def groups(self, rows: Rows) -> Rows:
        """Return a number for each node; nodes with the same number have equal devices left."""
        found = np.zeros(len(rows), dtype=np.intp)
        for place, part in enumerate(self._parts):
            here = part.rows[rows]
            number = 0 if part.room is None else part.room.groups(rows[here])
            found[here] = number * len(self._parts) + place
        return found

    def fits(self, rows: Rows) -> Flags:
        """Return which nodes have devices for one more pod."""
        found: Flags = self._read(rows, DeviceRoom.fits) > 0
        return found

    def is_coupled(self) -> bool:
        """Return whether a device that could be chosen can be used by several nodes."""
        return any(room.is_coupled() for room in self._rooms)

    def is_exact(self) -> bool:
        """Return whether no node could have devices for more pods than were found, whichever they are given."""
        return all(room.is_exact() for room in self._rooms)

    def has_alternatives(self) -> bool:
        """Return whether a request has several alternatives."""
        return any(room.has_alternatives() for room in self._rooms)

    def ranks(self, rows: Rows) -> Scores:
        """Return for each node how early the alternatives are that a pod would be given, in sum over its requests."""
        return self._read(rows, DeviceRoom.ranks)

    def reach_key(self, row: int) -> object:
        """Return what nodes have in common that would give a pod the same devices, of which none is theirs alone."""
        return next(part.room for part in self._parts if part.room is not None and part.rows[row]).reach_key(row)

    def _read(self, rows: Rows, number_of: Callable[[DeviceRoom, Rows], Scores | Flags]) -> Scores:
        found = np.zeros(len(rows), dtype=np.int64)
        for part in self._parts:
            here = part.rows[rows]
            if here.any():
                found[here] = part.limit if part.room is None else number_of(part.room, rows[here])
        return found
