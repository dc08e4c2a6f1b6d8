"""How full domains are after a preemption."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpg_engine.preemption.domains import _domains_by_bound
from cpg_engine.preemption.fullness import DomainUsage, usage_by_domain
from cpg_engine.preemption.reprieve import reprieve
from cpg_engine.preemption.victim_search import EvictionEstimates, fewest_victims
from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.strategies import cases

GROUPS: dict[str, dict[str, Any]] = {"high": {"gang": 1, "key": "rack"}}


def usages(case: PreemptionCase) -> dict[str, DomainUsage]:
    """Return the usage of each rack."""
    snapshot, victims = case.simulator.snapshot, case.potential_victims()
    partition = snapshot.topology.partition(snapshot.topology.whole(), "rack")
    domain_of = np.full(snapshot.ledger.cluster.size, -1)
    for number, scope in enumerate(partition.scopes):
        domain_of[scope.rows] = number
    found = usage_by_domain(snapshot.ledger, partition, domain_of, EvictionEstimates(case.problem(1), victims).entries)
    return {scope.chain[-1].value: usage for scope, usage in zip(partition.scopes, found, strict=True)}


def usage(capacity: tuple[int, int], taken: tuple[int, int], *held: tuple[int, int]) -> DomainUsage:
    """Return the usage of a domain with this CPU and memory."""
    rows = np.array([0], dtype=np.intp)
    return DomainUsage(rows, np.array(capacity), np.array(taken), np.array(held).reshape(-1, 2))


NOTHING = np.zeros(2, dtype=np.int64)


def test_each_victim_counts_in_the_domains_where_it_runs() -> None:
    """A unit with pods in two racks holds a part in each, and nothing outside of all racks."""
    groups = {**GROUPS, "wide": {"whole": True, "priority": 1}}
    pods = ["wide-1=1@wide on a1", "wide-2=1@wide on a2", "wide-3=1@wide on b1", "wide-4=1@wide on none", "1@high"]
    nodes = ["a1 4 rack=a", "a2 4 rack=a", "b1 4 rack=b", "none 4"]
    found = usages(PreemptionCase(nodes, [*pods, {"pod": "one=2 on b1", "priority": 2}], groups))
    assert {rack: sorted(one.held[:, 0].tolist()) for rack, one in found.items()} == {"a": [2000], "b": [1000, 2000]}
    assert {rack: (one.capacity[0], one.taken[0]) for rack, one in found.items()} == {
        "a": (8000, 2000),
        "b": (4000, 3000),
    }


def test_fullness_is_the_mean_of_the_resources_that_there_are() -> None:
    """In per cent, rounded down, never more than everything; a domain without CPU and memory is empty."""
    assert usage((200, 100), (100, 99)).most_fullness(0, NOTHING, NOTHING) == (50 + 99) // 2
    assert usage((200, 0), (100, 99)).most_fullness(0, NOTHING, NOTHING) == 50
    assert usage((100, 100), (150, 100)).most_fullness(0, NOTHING, NOTHING) == 100
    assert usage((0, 0), (1, 1)).most_fullness(0, NOTHING, NOTHING) == 0


def test_at_least_the_smallest_victims_leave() -> None:
    """Or as much as is missing, where that is more; the pods of the preemptor come."""
    found = usage((100, 100), (90, 90), (30, 10), (10, 20), (20, 30))
    assert found.most_fullness(1, NOTHING, NOTHING) == 80
    assert found.most_fullness(2, np.array([-5, 40]), NOTHING) == (60 + 50) // 2
    assert found.most_fullness(2, NOTHING, np.array([10, 20])) == (70 + 80) // 2


def test_domains_with_equal_victims_have_one_profile() -> None:
    """In whatever order the victims stand; another capacity, usage or victim is another profile."""
    profiles = {
        usage((9, 9), (5, 5), (1, 1), (2, 2)).profile,
        usage((9, 9), (5, 5), (2, 2), (1, 1)).profile,
        usage((8, 9), (5, 5), (1, 1), (2, 2)).profile,
        usage((9, 9), (5, 4), (1, 1), (2, 2)).profile,
        usage((9, 9), (5, 5), (1, 1), (2, 3)).profile,
    }
    assert len(profiles) == 4


RACKS = st.lists(st.lists(st.integers(0, 8), max_size=3), min_size=1, max_size=3)


@cases(150)
@given(racks=st.lists(RACKS, min_size=1, max_size=3), cpu=st.integers(1, 8), count=st.integers(1, 3))
def test_the_bound_is_never_below_what_is_reached(racks: list[list[list[int]]], cpu: int, count: int) -> None:
    """Whatever runs in a rack, no candidate there makes it fuller than its bound says."""
    nodes, pods = [], list[object]()
    for rack, there in enumerate(racks):
        for number, victims in enumerate(there):
            nodes.append(f"n{rack}-{number} 1 rack=r{rack}")
            for each, size in enumerate(victims):
                pods.append({"pod": f"v{rack}-{number}-{each}={size * 100}m on n{rack}-{number}", "priority": 1})
    groups = {"high": {"gang": count, "key": "rack"}}
    case = PreemptionCase(nodes, [*pods, f"{count}x{cpu * 100}m@high"], groups)
    problem, victims_ = case.problem(count), case.potential_victims()
    for bound in _domains_by_bound(problem, victims_, "rack") if victims_ else ():
        candidate = fewest_victims(problem, bound.victims, bound.scope)
        if candidate is not None:
            smaller = reprieve(problem, candidate)
            assert len(smaller.victims) >= bound.least or not smaller.victims
            assert bound.usage.fullness_after(smaller) <= bound.fullness or not smaller.victims
