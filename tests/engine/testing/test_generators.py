"""What the properties are tried on is what it is said to be."""

import hypothesis.strategies as st
from hypothesis import given

from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.preemption_strategies import PreemptionSetup, preemption_setups, subsets
from cpg_engine.testing.strategies import cases, situations


@cases(40)
@given(st.one_of(preemption_setups(), preemption_setups(alone=True), preemption_setups(dependent=True)))
def test_a_crowd_is_the_same_from_either_end(setup: PreemptionSetup) -> None:
    """It has what waits and what runs, can be told the other way round, and deciding about it moves nobody."""
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
def test_who_is_alike_asks_for_the_same(situation: Situation) -> None:
    """Members differ in their names and in where they run."""
    members = [pod for place in situation.below(0) for pod in situation.members(place)]
    asked = {(str(pod.spec.containers), str(pod.spec.node_selector), str(pod.spec.tolerations)) for pod in members}
    assert len(asked) <= 1


@cases(20)
@given(situations(dependent=True))
def test_who_is_social_is_a_member(situation: Situation) -> None:
    """Strangers look out for nobody: the oracle of the plain predicates still knows what they take."""
    members = {pod.metadata.uid for place in situation.below(0) for pod in situation.members(place)}
    for pod in situation.pods:
        looks_out = pod.spec.affinity or pod.spec.topology_spread_constraints
        assert pod.metadata.uid in members or not looks_out


def test_subsets_are_all_there_are() -> None:
    """Each once."""
    assert sorted(map(sorted, subsets(2))) == [[], [0], [0, 1], [1]]
