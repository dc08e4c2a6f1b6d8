"""Verdicts: the four statuses, and what is frozen."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import GroupReport, Status, StatusCounts


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        (StatusCounts(2, scheduled=2), Status.SUCCESS),
        (StatusCounts(2, scheduled=3, unresolvable=9), Status.SUCCESS),
        (StatusCounts(2, scheduled=1, remaining=1), Status.WAIT),
        (StatusCounts(2, remaining=2, unresolvable=1), Status.WAIT),
        (StatusCounts(2, scheduled=1, unschedulable=1), Status.UNSCHEDULABLE),
        (StatusCounts(3, scheduled=1, remaining=1, unschedulable=1), Status.UNSCHEDULABLE),
        (StatusCounts(2, scheduled=1, unresolvable=1), Status.UNRESOLVABLE),
        (StatusCounts(3, scheduled=1, remaining=1, unresolvable=5), Status.UNRESOLVABLE),
        (StatusCounts(1), Status.UNRESOLVABLE),
        (StatusCounts(0), Status.SUCCESS),
    ],
)
def test_the_status_follows_from_the_counts(counts: StatusCounts, status: Status) -> None:
    """It is KEP-6012's rule: S >= M, else S + R >= M, else S + R + U >= M, else nothing helps."""
    assert status is counts.status


def test_a_report_has_the_status_of_its_counts() -> None:
    """The status is never stored beside the numbers that it follows from."""
    report = GroupReport(GroupKey("PodGroup", "default", "pg"), StatusCounts(1, remaining=1))
    assert report.status is Status.WAIT


def test_the_statuses_have_the_names_of_the_kep() -> None:
    """Reports use the words of KEP-6012."""
    assert [str(status) for status in Status] == ["Success", "Wait", "Unschedulable", "UnschedulableAndUnresolvable"]
