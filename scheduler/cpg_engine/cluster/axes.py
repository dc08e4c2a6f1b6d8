"""The axis of resources: which column of every array holds which resource.

An extended resource gets a column when the first node offers it, and may lose it when no node offers it any more. Both
happen between cycles only. All resources without a column share one, because a pod may request thousands of invented
names. No node has anything there, so a pod that requests such a resource fits no node.
"""

from collections.abc import Container, Iterable, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

Amounts = NDArray[np.int64]
"""Amounts by resource, or by node and resource: thousandths of CPU, bytes, or counts."""
Rows = NDArray[np.intp]
"""Positions of nodes in the arrays."""
Flags = NDArray[np.bool_]
"""One truth value per node."""
Scores = NDArray[np.int64]
"""One number per node."""

CPU, MEMORY, STORAGE, PODS, UNOFFERED = 0, 1, 2, 3, 4
BASE = ("cpu", "memory", "ephemeral-storage", "pods")
UNOFFERED_NAME = "(resources that no node offers)"
"""Stands for the shared column among the names; it is no valid name of a resource."""

MAX_AMOUNT = 2**50
"""The largest amount, a pebibyte. A hundred times it fits into int64.

So does the sum of eight thousand of them, over the pods of one node or the nodes of one domain.
"""


BY_DEVICES = 2**40
"""What a node without a resource has of it if a device class backs it: devices limit it instead.

Eight million of them fit into int64, and no device plugin offers as many.
"""


class ResourceAxis(Struct, frozen=True, dict=True):
    """The names of the resources in column order, and those that device classes back.

    A resource that is backed, but that no node offers, has no column and limits nothing: devices do.
    """

    names: tuple[str, ...] = (*BASE, UNOFFERED_NAME)
    backed: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Return the number of columns."""
        return len(self.names)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Return the column of each resource, as a mapping, because objects may name thousands of resources."""
        return {name: place for place, name in enumerate(self.names) if place != UNOFFERED}

    def grown(self, names: Iterable[str]) -> "ResourceAxis":
        """Return the axis with the missing names appended, sorted, so that their order of arrival does not count."""
        missing = sorted({name for name in names if name not in self.places})
        return replace(self, names=(*self.names, *missing)) if missing else self

    def only(self, names: Container[str]) -> "ResourceAxis":
        """Return the axis without the extended resources that are not among the names."""
        kept = tuple(name for place, name in enumerate(self.names) if place <= UNOFFERED or name in names)
        return replace(self, names=kept)

    def backing(self, names: Iterable[str]) -> "ResourceAxis":
        """Return the axis if device classes back these resources."""
        backed = frozenset(names)
        return self if backed == self.backed else replace(self, backed=backed)

    @cached_property
    def backed_columns(self) -> tuple[int, ...]:
        """Return the columns of the resources that device classes back; mostly none."""
        return tuple(place for name, place in self.places.items() if name in self.backed)

    def vector(self, amounts: Mapping[str, int]) -> Amounts:
        """Return amounts, none above ``MAX_AMOUNT``, as a row.

        The shared column has one if any resource belongs there, so its sum over pods is never too large.
        """
        row = np.zeros(self.size, dtype=np.int64)
        for name, amount in amounts.items():
            place = self.places.get(name)
            if place is not None:
                row[place] = amount
            elif amount and name not in self.backed:
                row[UNOFFERED] = 1
        return row


def moved_columns(rows: Amounts, old: ResourceAxis, new: ResourceAxis) -> Amounts:
    """Return rows of one axis on another: a resource that both have keeps its amounts, others have none."""
    found = np.zeros((len(rows), new.size), dtype=np.int64)
    shared = [(new.places[name], place) for name, place in old.places.items() if name in new.places]
    shared.append((UNOFFERED, UNOFFERED))
    targets, sources = zip(*shared, strict=True)
    found[:, targets] = rows[:, sources]
    return found


def leave_to_devices(rows: Amounts, axis: ResourceAxis, alive: Flags) -> None:
    """Have nodes that offer none of a resource which classes back not be limited by it."""
    for column in axis.backed_columns:
        rows[alive & (rows[:, column] == 0), column] = BY_DEVICES


def take_from_devices(rows: Amounts, axis: ResourceAxis) -> None:
    """Undo ``leave_to_devices``."""
    for column in axis.backed_columns:
        rows[rows[:, column] == BY_DEVICES, column] = 0


def offered(rows: Amounts, axis: ResourceAxis, resource: str) -> Flags | None:
    """Return which nodes offer a resource themselves, or None if no node does."""
    column = axis.places.get(resource)
    if column is None:
        return None
    found: Flags = (rows[:, column] > 0) & (rows[:, column] != BY_DEVICES)
    return found


def own_amounts(rows: Amounts, axis: ResourceAxis) -> Amounts:
    """Return what nodes offer themselves."""
    found = rows.copy()
    take_from_devices(found, axis)
    return found
