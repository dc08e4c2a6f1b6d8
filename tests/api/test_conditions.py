"""Conditions: what changes, what stays, and when the transition time changes."""

from typing import TypeVar, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.conditions import (
    FINAL_ONCE_TRUE,
    MAX_MESSAGE_LENGTH,
    find_condition,
    merge_conditions,
    set_condition,
    status_since,
)
from cpg_api.core.pod import PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.names import COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED, POD_GROUP_INITIALLY_SCHEDULED

EARLIER, LATER, OWN = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z", "2025-12-31T00:00:00Z"
TYPES = ("Healthy", "PodScheduled", POD_GROUP_INITIALLY_SCHEDULED, COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED)

AnyCondition = TypeVar("AnyCondition", Condition, PodCondition)


def draw_condition(kind: type[AnyCondition]) -> st.SearchStrategy[AnyCondition]:
    """Draw conditions that often agree in some of their fields."""
    return st.builds(
        kind,
        type=st.sampled_from(TYPES),
        status=st.sampled_from(["True", "False", "Unknown"]),
        reason=st.sampled_from(["Scheduled", "Unschedulable"]),
        message=st.sampled_from(["", "0/3 nodes"]),
        observed_generation=st.sampled_from([None, 1, 2]),
        last_transition_time=st.sampled_from([None, OWN]),
    )


@pytest.mark.parametrize("kind", [Condition, PodCondition])
def test_a_new_condition_is_appended_with_the_present_time(kind: type[Condition] | type[PodCondition]) -> None:
    """For groups and for pods."""
    first, new = kind(type="A", status="True", last_transition_time=EARLIER), kind(type="B", status="False")
    assert set_condition((first,), new, LATER) == ((first, replace(new, last_transition_time=LATER)), True)
    assert set_condition(None, new, LATER) == ((replace(new, last_transition_time=LATER),), True)


def test_an_explicit_transition_time_is_kept() -> None:
    """For a new condition and for a changed status."""
    new = Condition("A", "True", last_transition_time=OWN)
    assert set_condition((), new, LATER) == ((new,), True)
    assert set_condition((Condition("A", "False", last_transition_time=EARLIER),), new, LATER) == ((new,), True)


def test_a_new_status_sets_the_transition_time() -> None:
    """The condition keeps its position."""
    before = (Condition("A", "True", last_transition_time=EARLIER), Condition("B", "True"))
    after, changed = set_condition(before, Condition("A", "False"), LATER)
    assert changed
    assert after == (Condition("A", "False", last_transition_time=LATER), Condition("B", "True"))


@pytest.mark.parametrize(
    "new",
    [
        Condition("A", "True", 1, LATER, "Other", "message"),
        Condition("A", "True", 1, LATER, "Reason", "other"),
        Condition("A", "True", 2, LATER, "Reason", "message"),
    ],
)
def test_an_unchanged_status_keeps_the_transition_time(new: Condition) -> None:
    """Another reason, message or generation is a change, but no transition, even with an explicit time."""
    before = Condition("A", "True", 1, EARLIER, "Reason", "message")
    assert set_condition((before,), new, LATER) == ((replace(new, last_transition_time=EARLIER),), True)


def test_an_equal_condition_changes_nothing() -> None:
    """The same tuple is returned, so that there is nothing to send."""
    before = (Condition("A", "True", 1, EARLIER, "Reason", "message"),)
    after, changed = set_condition(before, replace(before[0], last_transition_time=None), LATER)
    assert after is before
    assert not changed


@pytest.mark.parametrize("kind", [Condition, PodCondition])
def test_a_message_is_truncated_to_the_limit_of_the_api_server(kind: type[Condition] | type[PodCondition]) -> None:
    """Set again, the long message changes nothing."""
    new = kind(type="A", status="True", message="é" * 40_000, last_transition_time=EARLIER)
    before, _ = set_condition((), new, LATER)
    assert [len(one.message) for one in before] == [MAX_MESSAGE_LENGTH]
    assert before[0].message.endswith("é…")
    assert set_condition(before, new, LATER) == (before, False)
    (allowed,) = get_type_hints(Condition, include_extras=True)["message"].__metadata__
    assert allowed.extra["mark"].max_length == MAX_MESSAGE_LENGTH


@pytest.mark.parametrize("kind", sorted(FINAL_ONCE_TRUE))
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_final_conditions_never_become_false(kind: str, status: str) -> None:
    """The first placement of a group stays True, with its reason and time."""
    before = (Condition(kind, "True", 1, EARLIER, "Scheduled"),)
    assert set_condition(before, Condition(kind, status, 2, reason="Unschedulable"), LATER) == (before, False)


def test_final_conditions_accept_a_new_message() -> None:
    """While True, the generation and message of a final condition still change."""
    before = (Condition(POD_GROUP_INITIALLY_SCHEDULED, "True", 1, EARLIER, "Scheduled"),)
    after, changed = set_condition(before, replace(before[0], observed_generation=2), LATER)
    assert (after, changed) == ((replace(before[0], observed_generation=2),), True)


def test_a_condition_is_found_by_its_type() -> None:
    """Without conditions the result is None."""
    conditions = (Condition("A", "True"), Condition("B", "True"))
    assert find_condition(conditions, "B") is conditions[1]
    assert find_condition(conditions, "C") is None
    assert find_condition(None, "A") is None


def test_only_the_first_condition_of_a_type_is_set() -> None:
    """If a list has a type twice, the second is ignored, as in Kubernetes."""
    before = (Condition("A", "True", last_transition_time=OWN), Condition("A", "True", last_transition_time=OWN))
    after, _ = set_condition(before, Condition("A", "False"), LATER)
    assert after == (Condition("A", "False", last_transition_time=LATER), before[1])


@settings(max_examples=150)
@given(st.lists(draw_condition(Condition), max_size=4, unique_by=lambda one: one.type), draw_condition(Condition))
def test_the_rules_hold_for_any_conditions(existing: list[Condition], new: Condition) -> None:
    """Only one type changes, its time changes with its status alone, and the flag tells whether anything changed."""
    before = tuple(existing)
    old = next((one for one in before if one.type == new.type), None)
    after, changed = set_condition(before, new, LATER)
    result = next(one for one in after if one.type == new.type)
    assert changed == (after != before)
    assert [one for one in after if one.type != new.type] == [one for one in before if one.type != new.type]
    assert [one.type for one in after][: len(before)] == [one.type for one in before]
    if old is not None and old.type in FINAL_ONCE_TRUE and old.status == "True" and new.status != "True":
        assert result == old
    else:
        kept = old is not None and old.status == new.status
        time = old.last_transition_time if old and kept else new.last_transition_time or LATER
        assert result == replace(new, last_transition_time=time)


@given(
    st.lists(draw_condition(PodCondition), max_size=4, unique_by=lambda one: one.type),
    st.lists(draw_condition(PodCondition), max_size=6),
)
def test_merging_equals_setting_one_by_one(existing: list[PodCondition], news: list[PodCondition]) -> None:
    """Merging the result once more changes nothing."""
    expected, any_changed = tuple(existing), False
    for new in news:
        expected, changed = set_condition(expected, new, LATER)
        any_changed |= changed
    assert merge_conditions(tuple(existing), news, LATER) == (expected, any_changed)
    assert merge_conditions(expected, expected, EARLIER) == (expected, False)


def test_merging_nothing_changes_nothing() -> None:
    """The result is an empty tuple."""
    assert merge_conditions(None, (), LATER) == ((), False)


@pytest.mark.parametrize(
    ("condition", "since"),
    [
        (Condition(type="Partial", status="True", last_transition_time="1970-01-01T00:01:00Z"), 60.0),
        (Condition(type="Partial", status="False", last_transition_time="1970-01-01T00:01:00Z"), None),
        (Condition(type="Healthy", status="True", last_transition_time="1970-01-01T00:01:00Z"), None),
        (Condition(type="Partial", status="True"), None),
        (Condition(type="Partial", status="True", last_transition_time="long ago"), None),
    ],
)
def test_status_since_returns_seconds(condition: Condition, since: float | None) -> None:
    """An unreadable time counts as unknown."""
    assert status_since((condition,), "Partial") == since
    assert status_since(None, "Partial") is None
