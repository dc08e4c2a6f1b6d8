"""The seam for allocations beside a node."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.allocator import Allocators
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import claim, stock, storage_class, using, volume


class TokenAllocation(Struct, frozen=True):
    """A token for a pod."""

    token: str


class TokenAllocator:
    """Reserves one token for every pod, and two tokens are the most that there are."""

    kinds: Any = (TokenAllocation,)

    def __init__(self) -> None:
        """Start with all tokens free."""
        self.taken: list[TokenAllocation] = []

    def reserve(self, _pod_class: PodClass, rows: Rows) -> tuple[Any, ...]:
        """Reserve a token for each pod."""
        made = tuple(TokenAllocation(f"token-{len(self.taken) + number}") for number in range(len(rows)))
        self.taken.extend(made)
        return made

    def unreserve(self, reserved: tuple[Any, ...]) -> None:
        """Release the tokens, which were the last to be reserved."""
        assert tuple(self.taken[-len(reserved) :]) == reserved
        del self.taken[-len(reserved) :]

    def allocations(self, placed: Sequence[PlacedPod]) -> list[tuple[Any, ...]]:
        """Return the last tokens."""
        return [(token,) for token in self.taken[-len(placed) :]]

    def assume(self, allocations: Iterable[Any]) -> None:
        """Count the tokens."""
        self.taken.extend(allocations)

    def forget(self, allocations: Iterable[Any]) -> None:
        """Release the tokens."""
        self.taken = [found for found in self.taken if found not in tuple(allocations)]


def ledger_with_tokens() -> tuple[Ledger, TokenAllocator]:
    """Return a ledger of one node with an open claim and a volume for it, and the allocator of its tokens."""
    ledger, devices = Ledger(), TokenAllocator()
    ledger.put_node(node("n"))
    stock(ledger.storage, storage_class(), claim("c"), volume("v"))
    ledger.allocators = Allocators((ledger.volume_allocator, devices))
    return ledger, devices


def test_rollback_undoes_the_reservations_of_all_allocators() -> None:
    """A placement reserves with every allocator, and its rollback leaves no trace in any."""
    ledger, devices = ledger_with_tokens()
    found = ledger.class_of(pod("p", volumes=using("c")))
    ledger.place(found, np.array([0]))
    expected: Any = (VolumeAllocation("default/c", "v", "n"), TokenAllocation("token-0"))
    assert list(ledger.allocators.allocations([PlacedPod(found, 0)])) == [expected]
    mark = ledger.mark()
    ledger.place(found, np.array([0]))
    assert len(devices.taken) == 2
    ledger.rollback(mark)
    assert list(ledger.allocators.allocations([PlacedPod(found, 0)])) == [expected]
    ledger.rollback(0)
    assert (ledger.volume_allocator.allocated, devices.taken) == ({}, [])


def test_allocations_are_assumed_and_forgotten_by_the_allocator_of_their_type() -> None:
    """The scheduler passes all allocations of a bind at once."""
    ledger, devices = ledger_with_tokens()
    chosen: Any = (VolumeAllocation("default/c", "v", "n"), TokenAllocation("token-0"))
    ledger.allocators.assume(chosen)
    assert (list(ledger.volume_allocator.allocated.values()), devices.taken) == ([chosen[0]], [chosen[1]])
    ledger.allocators.forget(iter(chosen))
    assert (ledger.volume_allocator.allocated, devices.taken) == ({}, [])
