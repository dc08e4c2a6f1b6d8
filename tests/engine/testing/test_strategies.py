"""The strategies generate what their descriptions say."""

import hypothesis.strategies as st
from hypothesis import given

from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.preemption_strategies import PreemptionSetup, preemption_setups, subsets
from cpg_engine.testing.strategies import cases, situations


@cases(40)
@given(st.one_of(preemption_setups(), preemption_setups(alone=True), preemption_setups(dependent=True)))
def test_a_setup_can_be_reversed(setup: PreemptionSetup) -> None:
    """It has the pods that wait and those that run in reverse order, and deciding about it moves no pod."""
    assert setup.reversed().reversed() == setup
    everybody = {pod.metadata.uid for pod in setup.situation.pods}
    assert setup.without(()) == setup
    assert setup.without(everybody).situation.pods == ()
    simulator = setup.simulator()
    before = dict(simulator.pods)
    if (root := setup.root(simulator)) is not None:
        simulator.decide(root)
    assert simulator.pods == before
    assert {pod.metadata.uid for pod in before.values()} == everybody


@cases(20)
@given(situations(alike=True))
def test_identical_members_have_identical_specs(situation: Situation) -> None:
    """They differ in their names and in where they run."""
    members = [pod for place in situation.below(0) for pod in situation.members(place)]
    asked = {(str(pod.spec.containers), str(pod.spec.node_selector), str(pod.spec.tolerations)) for pod in members}
    assert len(asked) <= 1


@cases(20)
@given(situations(dependent=True))
def test_only_members_depend_on_other_pods(situation: Situation) -> None:
    """Other pods depend on none, so the oracle still models what they take."""
    members = {pod.metadata.uid for place in situation.below(0) for pod in situation.members(place)}
    for pod in situation.pods:
        looks_out = pod.spec.affinity or pod.spec.topology_spread_constraints
        assert pod.metadata.uid in members or not looks_out


def test_subsets_are_complete() -> None:
    """Each occurs once."""
    assert sorted(map(sorted, subsets(2))) == [[], [0], [0, 1], [1]]
