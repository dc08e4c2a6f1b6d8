"""Searches without some victims."""

from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.verdicts import Finding

LOW = {"pod": "low=2x1 on a", "priority": 1}


def test_a_simulation_leaves_the_ledger_as_it_was() -> None:
    """It returns what is placed without some victims, inside a scope where one is given."""
    case = PreemptionCase(["a 2 rack=r1", "b 1 rack=r2"], [LOW, "2x1@high"], {"high": {"gang": 1}})
    simulation, some, snapshot = case.simulation(), case.potential_victims(), case.simulator.snapshot
    assert [len(simulation.assign(gone)) for gone in ([], some[:1], some)] == [1, 2, 2]
    first, second = snapshot.topology.partition(snapshot.topology.whole(), "rack").scopes
    assert [len(simulation.assign(some, within)) for within in (first, second)] == [2, 1]
    assert [len(simulation.assign([], within)) for within in (first, second)] == [0, 1]
    assert snapshot.ledger.mark() == 0


def test_a_simulation_explains_its_finding() -> None:
    """For a placement, a failure, and members that contradict their tree."""
    case = PreemptionCase(["a 2"], [LOW, "2x1@high"], {"high": {"gang": 2}})
    simulation = case.simulation()
    assert [simulation.explain(gone)[1].finding for gone in ([], case.potential_victims())] == [
        Finding.IMPOSSIBLE,
        Finding.PLACED,
    ]
    groups = {"high": {"gang": 3, "key": "rack"}}
    torn = PreemptionCase(["a 2 rack=a", "b 2 rack=b"], ["1x1@high on a", "1x1@high on b", "1x1@high"], groups)
    assert torn.simulation().explain()[1].finding is Finding.CONTRADICTION
