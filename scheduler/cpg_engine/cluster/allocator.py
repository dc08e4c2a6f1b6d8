"""The seam for what a pod is allocated beside its node: volumes and devices.

To allocate another kind of resource, add:

1. a value type to ``cpg_engine.decisions.Allocation``: what has to be written to the API before the pod is bound;
2. an ``Allocator`` in this package, and its instance to ``Ledger.allocators``;
3. a filter in ``cpg_engine.filters`` that rejects the nodes for which ``reserve`` would find nothing;
4. a ``PreBind`` in ``cpg_scheduler.binding`` that carries out allocations of the new type.

What the claims of a pod ask for belongs to its ``PodClass``. Nothing else has to change: the ledger rolls reservations
back with the placement that made them, ``Bind.allocations`` carries allocations to the scheduler, and the scheduler
assumes and forgets them with the bind.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.decisions import Allocation

A = TypeVar("A", bound=Allocation)


class Allocator(Protocol[A]):
    """Reserves one kind of resource for pods.

    ``reserve`` and ``unreserve`` are the simulation within a cycle and undo each other exactly. ``assume`` and
    ``forget`` are about decisions that the scheduler is carrying out: an assumed allocation counts from the next cycle
    on, until the API shows it, the API contradicts it, or the scheduler forgets it.
    """

    @property
    def kinds(self) -> tuple[type[A], ...]:
        """Return the types of its allocations."""

    def reserve(self, pod_class: PodClass, rows: Rows) -> tuple[Any, ...]:
        """Reserve for one pod of the class at each row; return the reservations that are new."""

    def unreserve(self, reserved: tuple[Any, ...]) -> None:
        """Undo what one call of ``reserve`` has returned, the last reservation first."""

    def allocations(self, placed: Sequence[PlacedPod]) -> Iterable[tuple[A, ...]]:
        """Return for each pod all of its allocations, shared ones included.

        The pods are those that the ledger has placed since the last mark, in any order.
        """

    def assume(self, allocations: Iterable[A]) -> None:
        """Count these allocations until the API shows them; those assumed already change nothing."""

    def forget(self, allocations: Iterable[A]) -> None:
        """Stop counting assumed allocations that were not carried out."""


Reserved = tuple[tuple[Allocator[Any], tuple[Any, ...]], ...]
"""What one placement has reserved, by allocator."""


class Allocators:
    """The allocators of one ledger."""

    def __init__(self, allocators: Iterable[Allocator[Any]]) -> None:
        """Use these allocators in this order."""
        self._allocators = tuple(allocators)

    def reserve(self, pod_class: PodClass, rows: Rows) -> Reserved:
        """Reserve everything that one pod of the class needs at each row."""
        reserved: Reserved = ()
        for allocator in self._allocators:
            made = allocator.reserve(pod_class, rows)
            if made:
                reserved = (*reserved, (allocator, made))
        return reserved

    def unreserve(self, reserved: Reserved) -> None:
        """Undo what one call of ``reserve`` has returned."""
        for allocator, allocations in reversed(reserved):
            allocator.unreserve(allocations)

    def allocations(self, placed: Sequence[PlacedPod]) -> Iterator[tuple[Allocation, ...]]:
        """Yield all allocations of each pod, while the ledger holds the placement of all of them."""
        for found in zip(*(allocator.allocations(placed) for allocator in self._allocators), strict=True):
            yield tuple(chain.from_iterable(found))

    def assume(self, allocations: Iterable[Allocation]) -> None:
        """Count allocations that the scheduler is carrying out."""
        for allocator, own in self._by_allocator(allocations):
            allocator.assume(own)

    def forget(self, allocations: Iterable[Allocation]) -> None:
        """Stop counting allocations that the scheduler could not carry out."""
        for allocator, own in self._by_allocator(allocations):
            allocator.forget(own)

    def _by_allocator(self, allocations: Iterable[Allocation]) -> list[tuple[Allocator[Any], list[Allocation]]]:
        found = tuple(allocations)
        return [
            (allocator, [each for each in found if isinstance(each, allocator.kinds)]) for allocator in self._allocators
        ]
