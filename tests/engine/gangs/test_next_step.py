"""The one next step, derived from the reports."""

import pytest

from cpg_api.problems import Problem
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.next_step import next_step
from cpg_engine.verdicts import (
    CandidateDomain,
    Domain,
    Finding,
    GroupReport,
    InvalidPod,
    Lack,
    NextStep,
    Remedy,
    StatusCounts,
)

ROOT, MID, LEAF, OTHER = (GroupKey("CompositePodGroup", "default", name) for name in ("root", "mid", "leaf", "other"))
RACK = Domain("rack", "r1")
BLOCK = Domain("block", "b1")
BAD = InvalidPod("uid", (Problem("spec", "makes no sense"),))


def closest(domain: Domain, short: int = 0) -> tuple[CandidateDomain, ...]:
    """Return candidates that begin with this one; the others do not matter."""
    far = CandidateDomain(Domain("rack", "far"), nodes=1, fits=0, wanted=9, shortage=9)
    return (CandidateDomain(domain, nodes=1, fits=1, wanted=9, shortage=short), far)


def test_a_placed_tree_needs_no_step() -> None:
    """Even if extra pods were not placed."""
    assert next_step(Finding.PLACED, [GroupReport(ROOT, StatusCounts(1, scheduled=1, unschedulable=3))]) is None


def test_missing_members_are_to_be_added() -> None:
    """The path passes groups that only wait for others, and the step says how many are missing."""
    reports = [
        GroupReport(ROOT, StatusCounts(2, remaining=1, unresolvable=1), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(5, scheduled=1, remaining=2)),
    ]
    assert NextStep(Remedy.ADD_MEMBERS, LEAF, count=2) == next_step(Finding.INADMISSIBLE, reports)


def test_invalid_pods_are_to_be_corrected_first() -> None:
    """Where they are what is missing, neither more pods nor more room helps."""
    report = GroupReport(LEAF, StatusCounts(2, remaining=1, unresolvable=1), invalid=(BAD,))
    assert NextStep(Remedy.MEND_PODS, LEAF, count=1) == next_step(Finding.INADMISSIBLE, [report])
    assert NextStep(Remedy.MEND_PODS, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, [report])


def test_invalid_pods_beyond_the_minimum_are_ignored() -> None:
    """If room for the others is enough, the step is to make room."""
    report = GroupReport(LEAF, StatusCounts(2, scheduled=1, unschedulable=1, unresolvable=1), invalid=(BAD,))
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, [report])


def test_an_unresolvable_group_has_to_change_its_demands() -> None:
    """Whatever else ran out."""
    report = GroupReport(LEAF, StatusCounts(1, unresolvable=1))
    for finding in (Finding.IMPOSSIBLE, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET):
        assert NextStep(Remedy.CHANGE_DEMANDS, LEAF) == next_step(finding, [report])


def test_missing_volumes_are_to_be_provided() -> None:
    """No node would help, nor fewer demands."""
    report = GroupReport(LEAF, StatusCounts(1, unresolvable=1), lack=Lack.VOLUMES)
    assert NextStep(Remedy.PROVIDE_VOLUMES, LEAF) == next_step(Finding.IMPOSSIBLE, [report])


def test_an_exhausted_search_needs_a_larger_budget() -> None:
    """Where room may be enough, the budget was too small."""
    reports = [
        GroupReport(ROOT, StatusCounts(2, scheduled=1, unschedulable=1), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(2, scheduled=1, unschedulable=1)),
    ]
    assert NextStep(Remedy.RAISE_BUDGET, LEAF) == next_step(Finding.OUT_OF_BUDGET, reports)
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.NOT_FOUND, reports)


def test_members_in_the_wrong_place_are_to_be_moved() -> None:
    """The step names the contradicting group, not its root."""
    reports = [
        GroupReport(ROOT, StatusCounts(1, unresolvable=2), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(1, unresolvable=3)),
    ]
    assert NextStep(Remedy.MOVE_MEMBERS, LEAF) == next_step(Finding.CONTRADICTION, reports)


def test_room_is_to_be_made_in_the_domain_that_comes_closest() -> None:
    """The first candidate is the closest, and has the shortage."""
    report = GroupReport(LEAF, StatusCounts(5, scheduled=3, unschedulable=2), candidates=closest(RACK, short=2))
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=2, domain=RACK) == next_step(Finding.IMPOSSIBLE, [report])


def test_room_is_counted_in_pods_also_for_groups() -> None:
    """A group that lacks one child of four pods lacks four pods; one pod for each child is the least."""
    group = GroupReport(ROOT, StatusCounts(2, scheduled=1, unschedulable=1), candidates=closest(BLOCK, short=4))
    assert NextStep(Remedy.MAKE_ROOM, ROOT, count=4, domain=BLOCK) == next_step(Finding.IMPOSSIBLE, [group])
    group = GroupReport(ROOT, StatusCounts(3, scheduled=1, unschedulable=2), candidates=closest(BLOCK))
    assert NextStep(Remedy.MAKE_ROOM, ROOT, count=2, domain=BLOCK) == next_step(Finding.NOT_FOUND, [group])


def test_a_group_without_domains_has_the_domain_above() -> None:
    """It is that of the nearest group on the path that has one."""
    reports = [
        GroupReport(ROOT, StatusCounts(1, unschedulable=1), candidates=closest(BLOCK), blockers=(MID,)),
        GroupReport(MID, StatusCounts(1, unschedulable=1), candidates=closest(RACK), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(4, scheduled=1, unschedulable=3)),
    ]
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=3, domain=RACK) == next_step(Finding.NOT_FOUND, reports)


@pytest.mark.parametrize(
    ("minimum", "step"),
    [
        (1, NextStep(Remedy.MAKE_ROOM, OTHER, count=1)),
        (2, NextStep(Remedy.CHANGE_DEMANDS, LEAF)),
    ],
)
def test_of_several_blockers_the_deciding_one_is_followed(minimum: int, step: NextStep) -> None:
    """Room helps where one of both is enough; where both are needed, the unresolvable one has to change."""
    reports = [
        GroupReport(ROOT, StatusCounts(minimum, unschedulable=1, unresolvable=1), blockers=(LEAF, OTHER)),
        GroupReport(LEAF, StatusCounts(1, unresolvable=1)),
        GroupReport(OTHER, StatusCounts(1, unschedulable=1)),
    ]
    assert step == next_step(Finding.IMPOSSIBLE, reports)


def test_without_a_blocker_of_the_same_status_the_first_is_followed() -> None:
    """Too many children that could be helped alone do not help together."""
    reports = [
        GroupReport(ROOT, StatusCounts(3, unschedulable=2), blockers=(LEAF, OTHER)),
        GroupReport(LEAF, StatusCounts(1, unschedulable=1)),
        GroupReport(OTHER, StatusCounts(1, unschedulable=1)),
    ]
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, reports)
