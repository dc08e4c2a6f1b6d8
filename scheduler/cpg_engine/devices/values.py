"""A choice of devices as plain values: what is offered, what is taken, and what was picked.

A *view* is all that matters about the devices of a node for some claims: names are left out, attributes are reduced to
what selectors and constraints read. Nodes with equal views and states are given equal picks, so that one search serves
all of them. Amounts are in nanos.
"""

from typing import NamedTuple

from msgspec import Struct


class PoolId(NamedTuple):
    """A pool, which is named by its driver."""

    driver: str
    pool: str


class DeviceId(NamedTuple):
    """A device, which is named within its pool."""

    driver: str
    pool: str
    device: str


Amounts = tuple[tuple[str, int], ...]
"""Amounts by name, in the order of the names."""


class DeviceView(Struct, frozen=True):
    """A device as some claims see it.

    ``position`` is its place in the pool. ``accepted`` are the alternatives, by their index in the search, whose
    selectors and tolerations it passes; ``amounts`` are, for each of them, what it would consume of a device that can
    be shared. ``attributes`` are the values that the constraints compare, None where the device has none.
    """

    position: int
    accepted: tuple[int, ...] = ()
    amounts: tuple[Amounts, ...] = ()
    attributes: tuple[object, ...] = ()
    counters: tuple[tuple[str, str, int], ...] = ()
    capacity: Amounts = ()
    is_shareable: bool = False


class PoolView(Struct, frozen=True):
    """The devices of a pool that a node can use, in the order in which they are tried.

    ``others`` are devices that can only be taken by other nodes, or for other claims, but consume counters as well.
    Nothing is taken from a pool that is not ``usable``: it is incomplete or contradicts itself.
    """

    devices: tuple[DeviceView, ...] = ()
    others: tuple[DeviceView, ...] = ()
    counters: tuple[tuple[str, str, int], ...] = ()
    usable: bool = True


class PoolState(Struct, frozen=True):
    """What is taken of a pool.

    ``taken`` has a bit for each position that is allocated as a whole; ``consumed`` has the positions of devices that
    are shared, in ascending order, with what is consumed of each.
    """

    taken: int = 0
    consumed: tuple[tuple[int, Amounts], ...] = ()


FREE = PoolState()
"""The state of a pool of which nothing is taken."""


class Pick(NamedTuple):
    """A device that was picked for an alternative: pool by its index in the view, device by its position."""

    alternative: int
    pool: int
    position: int
