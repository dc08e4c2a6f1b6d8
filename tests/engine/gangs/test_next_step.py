"""Advice: the one next step, read off the reports."""

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
    NextStep,
    Remedy,
    StatusCounts,
)

ROOT, MID, LEAF, OTHER = (GroupKey("CompositePodGroup", "default", name) for name in ("root", "mid", "leaf", "other"))
RACK = Domain("rack", "r1")
BLOCK = Domain("block", "b1")
BAD = InvalidPod("uid", (Problem("spec", "makes no sense"),))


def closest(domain: Domain, short: int = 0) -> tuple[CandidateDomain, ...]:
    """Return a list of candidates that one leads; the others do not matter."""
    far = CandidateDomain(Domain("rack", "far"), nodes=1, fits=0, wanted=9, shortage=9)
    return (CandidateDomain(domain, nodes=1, fits=1, wanted=9, shortage=short), far)


def test_nothing_is_to_be_done_where_nothing_is_wrong() -> None:
    """A tree that was placed needs no advice, also where extra pods were not."""
    assert next_step(Finding.PLACED, [GroupReport(ROOT, StatusCounts(1, scheduled=1, unschedulable=3))]) is None


def test_too_few_members_are_to_be_added_where_they_lack() -> None:
    """The way goes past groups that only wait for others, and says how many are missing."""
    reports = [
        GroupReport(ROOT, StatusCounts(2, remaining=1, unresolvable=1), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(5, scheduled=1, remaining=2)),
    ]
    assert NextStep(Remedy.ADD_MEMBERS, LEAF, count=2) == next_step(Finding.INADMISSIBLE, reports)


def test_pods_that_make_no_sense_are_to_be_mended_first() -> None:
    """Where refused pods are what lacks, neither more pods nor more room is the answer."""
    report = GroupReport(LEAF, StatusCounts(2, remaining=1, unresolvable=1), invalid=(BAD,))
    assert NextStep(Remedy.MEND_PODS, LEAF, count=1) == next_step(Finding.INADMISSIBLE, [report])
    assert NextStep(Remedy.MEND_PODS, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, [report])


def test_pods_that_make_no_sense_but_are_not_needed_are_left_alone() -> None:
    """If room for the others is enough, room is what is asked for."""
    report = GroupReport(LEAF, StatusCounts(2, scheduled=1, unschedulable=1, unresolvable=1), invalid=(BAD,))
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, [report])


def test_what_no_eviction_can_help_has_to_ask_for_less() -> None:
    """A group that is unresolvable is told to change, whatever else ran out."""
    report = GroupReport(LEAF, StatusCounts(1, unresolvable=1))
    for finding in (Finding.IMPOSSIBLE, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET):
        assert NextStep(Remedy.CHANGE_DEMANDS, LEAF) == next_step(finding, [report])


def test_a_search_that_was_cut_short_is_to_be_given_more() -> None:
    """Where room may be enough, the budget is what lacks."""
    reports = [
        GroupReport(ROOT, StatusCounts(2, scheduled=1, unschedulable=1), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(2, scheduled=1, unschedulable=1)),
    ]
    assert NextStep(Remedy.RAISE_BUDGET, LEAF) == next_step(Finding.OUT_OF_BUDGET, reports)
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.NOT_FOUND, reports)


def test_members_in_the_wrong_place_are_to_be_moved() -> None:
    """The advice names the group that contradicts itself, not its root."""
    reports = [
        GroupReport(ROOT, StatusCounts(1, unresolvable=2), blockers=(LEAF,)),
        GroupReport(LEAF, StatusCounts(1, unresolvable=3)),
    ]
    assert NextStep(Remedy.MOVE_MEMBERS, LEAF) == next_step(Finding.CONTRADICTION, reports)


def test_room_is_to_be_made_in_the_domain_that_comes_closest() -> None:
    """The first candidate is the closest, and says how much it is short of."""
    report = GroupReport(LEAF, StatusCounts(5, scheduled=3, unschedulable=2), candidates=closest(RACK, short=2))
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=2, domain=RACK) == next_step(Finding.IMPOSSIBLE, [report])


def test_room_is_counted_in_pods_also_for_groups() -> None:
    """A group that lacks one child of four pods lacks four pods; one pod for each child is the least."""
    group = GroupReport(ROOT, StatusCounts(2, scheduled=1, unschedulable=1), candidates=closest(BLOCK, short=4))
    assert NextStep(Remedy.MAKE_ROOM, ROOT, count=4, domain=BLOCK) == next_step(Finding.IMPOSSIBLE, [group])
    group = GroupReport(ROOT, StatusCounts(3, scheduled=1, unschedulable=2), candidates=closest(BLOCK))
    assert NextStep(Remedy.MAKE_ROOM, ROOT, count=2, domain=BLOCK) == next_step(Finding.NOT_FOUND, [group])


def test_a_group_without_domains_is_helped_in_the_one_above() -> None:
    """The domain is that of the nearest group on the way that has any."""
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
def test_of_several_blockers_the_one_that_decides_is_followed(minimum: int, step: NextStep) -> None:
    """Room helps where one of both is enough; where both are needed, the one that nothing helps has to change."""
    reports = [
        GroupReport(ROOT, StatusCounts(minimum, unschedulable=1, unresolvable=1), blockers=(LEAF, OTHER)),
        GroupReport(LEAF, StatusCounts(1, unresolvable=1)),
        GroupReport(OTHER, StatusCounts(1, unschedulable=1)),
    ]
    assert step == next_step(Finding.IMPOSSIBLE, reports)


def test_where_no_blocker_is_like_its_parent_the_first_is_followed() -> None:
    """Too many children that could be helped alone do not help together."""
    reports = [
        GroupReport(ROOT, StatusCounts(3, unschedulable=2), blockers=(LEAF, OTHER)),
        GroupReport(LEAF, StatusCounts(1, unschedulable=1)),
        GroupReport(OTHER, StatusCounts(1, unschedulable=1)),
    ]
    assert NextStep(Remedy.MAKE_ROOM, LEAF, count=1) == next_step(Finding.IMPOSSIBLE, reports)
