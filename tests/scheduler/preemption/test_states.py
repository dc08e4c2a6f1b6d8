"""The table of transitions: what it says, and that nothing else happens."""

from contextlib import nullcontext
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.jobs import Preemptor
from cpg_scheduler.preemption.states import (
    RESERVING,
    TRANSITIONS,
    ActivePreemption,
    Guard,
    PreemptionState,
    TransitionError,
    Trigger,
    next_state,
)

ROWS = {(row.state, row.trigger, row.guard): row.target for row in TRANSITIONS}


PREEMPTOR = Preemptor(GroupKey("Pod", "default", "p"), "uid")
UNLISTED = [found for found in product(PreemptionState, Trigger, Guard) if found not in ROWS]


def test_each_transition_leads_to_one_state() -> None:
    """No two rows have the same state, trigger and guard."""
    assert len(ROWS) == len(TRANSITIONS)
    assert all(next_state(*found) is target for found, target in ROWS.items())


@pytest.mark.parametrize("found", UNLISTED, ids=" ".join)
def test_a_transition_that_is_not_in_the_table_raises(found: tuple[PreemptionState, Trigger, Guard]) -> None:
    """The error names state, trigger and guard."""
    with pytest.raises(TransitionError, match=found[0]):
        next_state(*found)


@given(st.lists(st.tuples(st.sampled_from(Trigger), st.sampled_from(Guard))))
def test_a_preemption_follows_the_table_whatever_is_triggered(triggers: list[tuple[Trigger, Guard]]) -> None:
    """A trigger that is not in the table for its state raises, and changes nothing."""
    preemption = ActivePreemption(
        unit=UnitKey("", PREEMPTOR.key),
        preemptor=PREEMPTOR,
        priority=0,
        pods=set(),
        nominations={},
        victims=frozenset(),
        awaited=set(),
    )
    for trigger, guard in triggers:
        before = preemption.state
        target = ROWS.get((before, trigger, guard))
        with pytest.raises(TransitionError) if target is None else nullcontext():
            preemption.advance(trigger, guard)
        assert preemption.state is (target or before)


def test_every_state_is_reached_and_ends() -> None:
    """From the new one, and at last in the ended one."""
    reached = {PreemptionState.NEW}
    for _ in PreemptionState:
        reached |= {row.target for row in TRANSITIONS if row.state in reached}
    assert reached == set(PreemptionState)
    ending = {PreemptionState.ENDED}
    for _ in PreemptionState:
        ending |= {row.state for row in TRANSITIONS if row.target in ending}
    assert ending == set(PreemptionState)


def test_a_preemption_that_has_given_up_its_room_does_not_reserve_any_again() -> None:
    """A broken preemption is replaced by another one instead."""
    given_up = set(PreemptionState) - RESERVING - {PreemptionState.NEW}
    assert {row.target for row in TRANSITIONS if row.state in given_up} <= given_up


@pytest.mark.parametrize("state", sorted(RESERVING))
def test_every_state_that_reserves_room_can_be_invalidated_refused_and_concluded(state: PreemptionState) -> None:
    """Whatever happens in the cluster, there is a transition for it."""
    for trigger in (Trigger.INVALIDATED, Trigger.REFUSED, Trigger.CONCLUDED):
        assert next_state(state, trigger) not in RESERVING
