"""What holds for every decision, whatever the cluster and the tree."""

import hypothesis.strategies as st
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import node
from cpg_engine.testing.oracle import Situation, contradicts, find, violations
from cpg_engine.testing.simulator import ClusterSimulator, RootUnit
from cpg_engine.testing.strategies import cases, situations
from cpg_engine.verdicts import Finding, Status

UNPROVEN = {Finding.NOT_FOUND, Finding.OUT_OF_BUDGET}
BUDGETS = st.sampled_from([0, 3, 100])


def root_of(simulator: ClusterSimulator) -> RootUnit:
    """Return the tree in the simulator; discard the example if it has nothing to schedule."""
    roots = [root for root in simulator.roots() if root.tree is not None]
    assume(roots)
    return roots[0]


def decided(situation: Situation, budget: int = 100) -> Decision:
    """Return the decision about the tree of a situation."""
    simulator = ClusterSimulator.of(situation, SearchOptions(budget=budget))
    return simulator.decide(root_of(simulator))


def binds_of(decision: Decision) -> dict[str, str]:
    """Return the node of each pod."""
    return {bind.uid: bind.node for bind in decision.binds}


@cases(1000)
@given(situations(), BUDGETS)
def test_no_rule_is_broken(situation: Situation, budget: int) -> None:
    """No node is overfull, no group below its minimum at any level, no group with required topology in two domains."""
    decision = decided(situation, budget)
    assert violations(situation, binds_of(decision)) == []


@cases(300)
@given(situations(dependent=True))
def test_no_rule_is_broken_by_dependent_pods(situation: Situation) -> None:
    """The same holds on the path that places pods one by one."""
    assert violations(situation, binds_of(decided(situation))) == []


@cases(1000)
@given(situations(), BUDGETS)
def test_what_can_be_placed_is_never_called_impossible(situation: Situation, budget: int) -> None:
    """Where trying everything finds a placement, the engine finds one or says that it has no proof."""
    possible = find(situation) is not None
    finding = decided(situation, budget).explanation.finding
    if contradicts(situation):
        assert finding is not Finding.PLACED or possible
    else:
        assert finding in {Finding.PLACED, *UNPROVEN} if possible else finding is not Finding.PLACED


@cases(300)
@given(situations())
def test_a_contradiction_is_one_by_the_oracle(situation: Situation) -> None:
    """The oracle's rules agree."""
    if decided(situation).explanation.finding is Finding.CONTRADICTION:
        assert contradicts(situation)


@cases(300)
@given(situations())
def test_the_report_agrees_with_the_decision(situation: Situation) -> None:
    """The root succeeds if and only if it is placed; every group has a report, with counts that add up."""
    simulator = ClusterSimulator.of(situation)
    root = root_of(simulator)
    decision = simulator.decide(root)
    reports = decision.explanation.reports
    assert [report.key for report in reports] == [node.key for node in simulator.unit(root).nodes]
    assert (decision.explanation.finding is Finding.PLACED) == (reports[0].status is Status.SUCCESS)
    for report in reports:
        counts = report.counts
        assert min(counts.scheduled, counts.remaining, counts.unschedulable, counts.unresolvable) >= 0


@cases(300)
@given(situations(alike=True), st.sampled_from([{"zone": "z1"}, {"zone": "z1", "rack": "r1"}, {"rack": "r2"}, {}]))
def test_a_free_node_never_hurts_a_gang_of_one_shape(situation: Situation, labels: dict[str, str]) -> None:
    """What could be placed still can with one more node."""
    assume(decided(situation).explanation.finding is Finding.PLACED)
    more = (*situation.nodes, node("a-new-one", cpu=4, memory="4Gi", labels=labels))
    assert decided(replace(situation, nodes=more)).explanation.finding is Finding.PLACED


@cases(200)
@given(situations(), st.booleans())
def test_repeated_rounds_end(situation: Situation, budget: bool) -> None:  # noqa: FBT001 - drawn
    """Repeated until nothing more is bound, the engine breaks no rule and ends."""
    simulator = ClusterSimulator.of(situation, SearchOptions(budget=100 if budget else 0))
    simulator.settle()
    assert simulator.broken == []
