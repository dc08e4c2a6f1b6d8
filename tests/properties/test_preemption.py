"""What holds for every plan, whatever waits and whatever runs."""

from collections.abc import Collection, Mapping

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.plan import plan_preemption
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan, VictimUnit
from cpg_engine.preemption.victims import importance
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_engine.testing.oracle import find, free, has_room, violations
from cpg_engine.testing.preemption_model import chosen
from cpg_engine.testing.preemption_strategies import PRIORITY, PreemptionSetup, preemption_setups, subsets
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import cases
from cpg_engine.testing.victim_units import budgets_of, units_of
from cpg_engine.verdicts import Finding, Status

EITHER = st.one_of(preemption_setups(), preemption_setups(alone=True))
WITH_DEPENDENT_PODS = st.one_of(preemption_setups(dependent=True), preemption_setups(dependent=True, alone=True))


def units(setup: PreemptionSetup) -> list[VictimUnit]:
    """Return all running pods in the units in which they are evicted."""
    groups = [*setup.others, *(found.group for found in setup.situation.tree.nodes)]
    return units_of(groups, setup.situation.pods)


def planned(setup: PreemptionSetup, *, turned: bool = False) -> PreemptionPlan:
    """Return the plan for what waits; discard the example if nothing does."""
    simulator = setup.simulator()
    root = setup.root(simulator)
    assume(root is not None)
    assert root is not None
    some = units(setup)
    return plan_preemption(
        simulator.snapshot,
        simulator.unit(root),
        SearchOptions(),
        priority=PRIORITY,
        units=some[::-1] if turned else some,
        budgets=ListedBudgets(budgets_of(setup.budgets, setup.situation.pods)),
    )


def bound_pods(setup: PreemptionSetup) -> int:
    """Return how many pods an ordinary cycle binds."""
    simulator = setup.simulator()
    root = setup.root(simulator)
    return len(simulator.decide(root).binds) if root else 0


def evicted(found: PreemptionPlan) -> set[str]:
    """Return the pods that a plan evicts."""
    return {uid for eviction in found.evictions for uid in eviction.unit.pods}


def trace(simulator: ClusterSimulator) -> list[bytes]:
    """Return everything that a simulation may change."""
    ledger = simulator.snapshot.ledger
    return [
        found.tobytes()
        for name, found in sorted(vars(ledger).items())
        if name != "changed_at" and isinstance(found, np.ndarray)
    ]


@cases(300)
@given(st.one_of(EITHER, WITH_DEPENDENT_PODS))
def test_only_whole_units_of_lower_priority_are_evicted(setup: PreemptionSetup) -> None:
    """No pod of equal or higher priority, no pod of the tree itself, no unit in part; reasons are given."""
    found = planned(setup)
    known = units(setup)
    own = {pod.metadata.uid for place in setup.situation.below(0) for pod in setup.situation.members(place)}
    for eviction in found.evictions:
        assert eviction.unit.priority < PRIORITY
        assert eviction.unit in known
        assert own.isdisjoint(eviction.unit.pods)
        assert eviction.reason.node
    assert len(evicted(found)) == sum(len(eviction.unit.pods) for eviction in found.evictions)
    assert found.nominations or not found.evictions


@cases(250)
@given(st.one_of(EITHER, WITH_DEPENDENT_PODS))
def test_planning_leaves_no_trace(setup: PreemptionSetup) -> None:
    """The ledger is bit for bit what it was, and the next decision the same."""
    simulator = setup.simulator()
    root = setup.root(simulator)
    assume(root is not None)
    assert root is not None
    before, decided = trace(simulator), simulator.decide(root)
    simulator.plan(root)
    assert before == trace(simulator)
    assert decided == simulator.decide(root)


@cases(300)
@given(st.one_of(EITHER, WITH_DEPENDENT_PODS))
def test_the_order_of_things_does_not_matter(setup: PreemptionSetup) -> None:
    """Nodes, pods, groups and units may come in any order, and the same problem has the same plan twice."""
    there, back, again = planned(setup), planned(setup.reversed(), turned=True), planned(setup)
    assert there == again
    assert [eviction.unit.key for eviction in there.evictions] == [eviction.unit.key for eviction in back.evictions]
    assert [eviction.reason for eviction in there.evictions] == [eviction.reason for eviction in back.evictions]
    assert (there.outcome, there.nominations) == (back.outcome, back.nominations)


@cases(300)
@given(EITHER)
def test_nominations_keep_to_the_rules(setup: PreemptionSetup) -> None:
    """Once the victims have evicted, all nominated pods together may go to their nodes."""
    found = planned(setup)
    binds = {nomination.uid: nomination.node for nomination in found.nominations}
    if not setup.alone:
        assert violations(setup.without(evicted(found)).situation, binds) == []
    left = free(setup.without(evicted(found)).situation)
    pods = {pod.metadata.uid: pod for pod in setup.situation.pods}
    assert all(has_room(pods[uid], left[name]) for uid, name in binds.items())


@cases(375)
@given(st.one_of(EITHER, WITH_DEPENDENT_PODS))
def test_the_next_cycle_finds_what_was_planned(setup: PreemptionSetup) -> None:
    """Once the victims have evicted, an ordinary decision places as many pods as were nominated, or more."""
    found = planned(setup)
    assert bound_pods(setup.without(evicted(found))) >= len(found.nominations)


def pinned(setup: PreemptionSetup, binds: Mapping[str, str]) -> PreemptionSetup:
    """Return the setup with only the nominated pods pending, each restricted to its node."""
    pods = []
    for found in setup.situation.pods:
        name = binds.get(found.metadata.uid)
        if name is not None:
            pods.append(replace(found, spec=replace(found.spec, node_selector={"name": name})))
        elif found.spec.node_name:
            pods.append(found)
    nodes = [
        replace(node, metadata=replace(node.metadata, labels={**node.metadata.labels, "name": node.metadata.name}))
        for node in setup.situation.nodes
    ]
    return replace(setup, situation=replace(setup.situation, nodes=tuple(nodes), pods=tuple(pods)))


@cases(375)
@given(st.one_of(EITHER, WITH_DEPENDENT_PODS))
def test_no_unit_is_evicted_in_vain(setup: PreemptionSetup) -> None:
    """Put any unit back, and the nominated pods cannot run on their nodes, or an ordinary cycle places fewer."""
    found = planned(setup)
    binds = {nomination.uid: nomination.node for nomination in found.nominations}
    for eviction in found.evictions:
        rest = setup.without(evicted(found).difference(eviction.unit.pods))
        assert bound_pods(pinned(rest, binds)) < len(binds) or bound_pods(rest) < len(binds)


@cases(250)
@given(preemption_setups())
def test_no_unit_is_evicted_where_it_does_not_help(setup: PreemptionSetup) -> None:
    """Without a placement nothing is evicted; and where trying everything finds one, the plan is not "not helpful"."""
    simulator = setup.simulator()
    root = setup.root(simulator)
    assume(root is not None)
    assert root is not None
    before = simulator.decide(root).explanation
    assume(before.reports[0].status is not Status.SUCCESS)
    assume(before.finding not in {Finding.INADMISSIBLE, Finding.CONTRADICTION})
    found = planned(setup)
    lesser = {uid for unit in units(setup) if unit.priority < PRIORITY for uid in unit.pods}
    possible = find(setup.without(lesser).situation) is not None
    if found.outcome is PlanOutcome.PLANNED:
        assert possible
        return
    assert (found.evictions, found.nominations) == ((), ())
    if found.outcome is PlanOutcome.NOT_ENOUGH:
        assert found.explanation is not None
        assert not possible or found.explanation.finding is not Finding.IMPOSSIBLE
    elif found.outcome is PlanOutcome.NOT_HELPFUL:
        assert not possible
    else:
        assert not lesser


@cases(625)
@given(preemption_setups(alone=True))
def test_a_single_pod_preempts_as_in_kube_scheduler(setup: PreemptionSetup) -> None:
    """The node and the victims are those of the slow model, rule by rule."""
    assume(not bound_pods(setup))
    found = planned(setup)
    (waiting,) = (pod for pod in setup.situation.pods if pod.metadata.name == setup.alone)
    budgets = budgets_of(setup.budgets, setup.situation.pods)
    expected = chosen(setup.situation, waiting, units(setup), budgets)
    if expected is None:
        assert found.outcome is not PlanOutcome.PLANNED
    else:
        assert expected == (found.nominations[0].node, frozenset(evicted(found)))


def harm(setup: PreemptionSetup, some: Collection[VictimUnit]) -> tuple[int, int]:
    """Return how many units violate a budget if some are evicted, and the highest priority of those."""
    allowances = BudgetAllowances(ListedBudgets(budgets_of(setup.budgets, setup.situation.pods)))
    violated = allowances.violations(sorted(some, key=importance))
    return sum(violated), max(unit.priority for unit in some)


@cases(150)
@given(preemption_setups(depth=2, most_pods=3))
def test_the_harm_is_minimal(setup: PreemptionSetup) -> None:
    """No other set of victims would let the search place as many, with fewer violations or a lower highest priority."""
    found = planned(setup)
    assume(found.outcome is PlanOutcome.PLANNED and found.evictions)
    lesser = [unit for unit in units(setup) if unit.priority < PRIORITY]
    least = min(
        harm(setup, some)
        for chosen in subsets(len(lesser))
        if (some := [lesser[number] for number in chosen])
        and bound_pods(setup.without({uid for unit in some for uid in unit.pods})) >= len(found.nominations)
    )
    assert harm(setup, [eviction.unit for eviction in found.evictions]) == least
