"""A choice of devices as plain values: what is offered, what is taken, and what was picked.

A *view* is all that matters about the devices of a node for some claims: names are left out, attributes are reduced to
what selectors and constraints read. Nodes with equal views and states are given equal picks, so that one search serves
all of them. Amounts are in nanos.
"""

from typing import Final, NamedTuple

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

UNIQUE: Final = -1
"""Stands for an attribute's value that no other device of the node has."""
UNKNOWN: Final = -2
"""Stands for an attribute's value of a type that cannot be compared, such as a list."""


class DeviceView(Struct, frozen=True):
    """A device as some claims see it.

    ``position`` is its place in the pool. ``accepted`` are the alternatives, by their index in the shape, whose
    selectors and tolerations it passes; ``amounts`` are, for each of them, what it would consume of a device that can
    be shared. ``blocked`` are alternatives for all devices that include this one, but do not tolerate its taints.
    ``failing`` are alternatives that cannot be evaluated for it, with the reason. ``attributes`` are the values that
    the constraints compare, None where the device has none. ``counters`` are what it consumes of the pool's counters,
    by their index.
    """

    position: int
    accepted: tuple[int, ...] = ()
    amounts: tuple[Amounts, ...] = ()
    blocked: tuple[int, ...] = ()
    failing: tuple[tuple[int, str], ...] = ()
    attributes: tuple[object, ...] = ()
    counters: tuple[tuple[int, int], ...] = ()
    capacity: Amounts = ()
    is_shareable: bool = False


class PoolView(Struct, frozen=True):
    """The devices of a pool that a node can use, in the order in which they are tried.

    ``others`` are devices that can only be taken by other nodes, or for other claims, but consume counters as well.
    ``counters`` are the amounts of the pool's counters. Nothing is taken from a pool that is not ``usable``: it is
    incomplete or contradicts itself.
    """

    devices: tuple[DeviceView, ...] = ()
    others: tuple[DeviceView, ...] = ()
    counters: tuple[int, ...] = ()
    usable: bool = True


class PoolState(Struct, frozen=True):
    """What is taken of a pool.

    ``taken`` has a bit for each position that is allocated as a whole; ``consumed`` has the positions of devices that
    are shared, in ascending order, with what is consumed of each.
    """

    taken: int = 0
    consumed: tuple[tuple[int, Amounts], ...] = ()

    def with_taken(self, position: int) -> "PoolState":
        """Return the state with a device taken as a whole."""
        return PoolState(self.taken | 1 << position, self.consumed)

    def with_share(self, position: int, amounts: Amounts) -> "PoolState":
        """Return the state with a further share of a device."""
        consumed = dict(self.consumed)
        consumed[position] = add_amounts(consumed.get(position, ()), amounts)
        return PoolState(self.taken, tuple(sorted(consumed.items())))


FREE = PoolState()
"""The state of a pool of which nothing is taken."""


def add_amounts(amounts: Amounts, more: Amounts) -> Amounts:
    """Return the sum by name."""
    if not amounts:
        return more
    total = dict(amounts)
    for name, amount in more:
        total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))


def fits_capacity(amounts: Amounts, capacity: Amounts) -> bool:
    """Return whether a capacity suffices; amounts of what it does not have do not count."""
    found = dict(amounts)
    return all(found.get(name, 0) <= total for name, total in capacity)


class Pick(NamedTuple):
    """A device that was picked for an alternative: pool by its index in the view, device by its position."""

    alternative: int
    pool: int
    position: int
