"""How full domains are after a preemption: the share of CPU and memory in use, as in the placement scores.

Of domains that cost the same, the one that ends up fuller wins, so that large gaps stay whole for large groups. All of
it is integer arithmetic, in per cent, rounded down.
"""

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import CPU, MEMORY, Amounts, Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.preemption.simulation import PreemptionCandidate
from cpg_engine.topology.domains import Partition

SCORED = [CPU, MEMORY]
"""The resources that count, in the order of the columns of ``Ledger.scored``."""
HeldByNode = tuple[Rows, Rows, Amounts]
"""For each victim and each of its rows the number of the victim, the row, and what the victim requests there."""


class DomainUsage(Struct, frozen=True, eq=False, dict=True):
    """CPU and memory of a domain: how much there is, how much is taken, and how much of it each victim requests.

    What is taken counts as for scores, where a pod without requests counts with defaults. So a victim takes at least
    what it requests.
    """

    rows: Rows
    capacity: Amounts
    taken: Amounts
    held: Amounts

    @cached_property
    def profile(self) -> tuple[bytes, ...]:
        """Return what two domains have in common that are taken to become equally full."""
        return self.capacity.tobytes(), self.taken.tobytes(), np.sort(self.held, axis=0).tobytes()

    def fullness_after(self, candidate: PreemptionCandidate) -> int:
        """Return how full the domain is without the victims and with the pods of a candidate that is placed in it."""
        inside = set(self.rows.tolist())
        leaving = (at[0] for found in candidate.victims for at in found.locations if at[1] in inside)
        placed = (member.pod_class for member, _ in candidate.assignments)
        return self._share(self.taken - scored(leaving) + scored(placed))

    def most_fullness(self, least: int, missing: Amounts, placed: Amounts) -> int:
        """Return how full the domain can become at most.

        At least so many of the victims leave, with no less than what is missing, and at most ``placed`` comes.
        """
        leaving = np.sort(self.held, axis=0)[:least].sum(axis=0)
        return self._share(self.taken - np.maximum(leaving, missing) + placed)

    def _share(self, taken: Amounts) -> int:
        """Return the mean share of what is taken; a resource that the domain does not have is left out."""
        pairs = zip(taken.tolist(), self.capacity.tolist(), strict=True)
        shares: list[int] = [100 * min(amount, capacity) // capacity for amount, capacity in pairs if capacity > 0]
        return sum(shares) // max(len(shares), 1)


def scored(classes: Iterable[PodClass]) -> Amounts:
    """Return the CPU and memory of a pod of each class in sum, as counted for scores."""
    cpu = memory = 0
    for found in classes:
        cpu += found.scored_cpu
        memory += found.scored_memory
    return np.array((cpu, memory), dtype=np.int64)


def usage_by_domain(
    ledger: Ledger, partition: Partition, domain_of: NDArray[np.intp], entries: HeldByNode
) -> list[DomainUsage]:
    """Return the usage of each domain of a partition, given the number of the domain of each row; negative for none."""
    capacity = np.stack([partition.sums(ledger.allocatable[:, column]) for column in SCORED], axis=1)
    taken = np.stack([partition.sums(column) for column in ledger.scored.T], axis=1)
    owners, rows, amounts = entries
    victims = int(owners.max(initial=0)) + 1
    places = domain_of[rows] * victims + owners
    inside = places >= 0
    places, place_of = np.unique(places[inside], return_inverse=True)
    held = np.zeros((len(places), len(SCORED)), dtype=np.int64)
    np.add.at(held, place_of.reshape(-1), amounts[inside][:, SCORED])
    bounds = np.searchsorted(places, np.arange(len(partition.scopes) + 1) * victims).tolist()
    return [
        DomainUsage(scope.rows, capacity[number], taken[number], held[begin:end])
        for number, (scope, (begin, end)) in enumerate(zip(partition.scopes, pairwise(bounds), strict=True))
    ]
