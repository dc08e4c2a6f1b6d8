"""The table of transitions: what it says, and that nothing else happens."""

from itertools import product

import pytest

from cpg_scheduler.preemption.states import (
    RESERVING,
    TRANSITIONS,
    Guard,
    PreemptionState,
    TransitionError,
    Trigger,
    next_state,
)

ROWS = {(row.state, row.trigger, row.guard): row.target for row in TRANSITIONS}


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
