"""Decisions: plain values."""

import msgspec
import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.decisions import Bind, Decision
from cpg_engine.verdicts import Explanation, Finding, GroupReport, StatusCounts


def decision() -> Decision:
    """Return a decision to bind one pod."""
    report = GroupReport(GroupKey("PodGroup", "default", "pg"), StatusCounts(1, scheduled=1))
    return Decision((Bind("uid", "n1"),), Explanation(Finding.PLACED, (report,)))


def test_decisions_are_compared_by_value() -> None:
    """Two cycles with the same result return equal decisions."""
    assert decision() == decision()


def test_decisions_cannot_be_changed() -> None:
    """The scheduler performs what was decided."""
    with pytest.raises(AttributeError):
        decision().binds = ()  # type: ignore[misc]


def test_decisions_go_through_json() -> None:
    """A decision can be written to a file and read again without loss."""
    assert decision() == msgspec.json.decode(msgspec.json.encode(decision()), type=Decision)
