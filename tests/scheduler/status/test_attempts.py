"""What groups show of an attempt: the group that blocks them, why, and what would help."""

import re
from typing import get_args, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.scheduling.attempts import (
    MAX_ATTEMPT_BYTES,
    AttemptFinding,
    AttemptPreemption,
    BlockingGroup,
    ClosestDomain,
    ConsideredDomains,
    LastAttempt,
    NodeRejection,
    SuggestedStep,
)
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.validation import Fault, TreeProblem
from cpg_api.schema import MAX_LABEL, MAX_LABEL_KEY, MAX_SUBDOMAIN
from cpg_engine.verdicts import (
    CandidateDomain,
    Domain,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    Lack,
    Remedy,
    StatusCounts,
)
from cpg_scheduler.binding.batch import BindInDoubt, BindProblem
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    InconsistentMembership,
    InvalidTree,
    PodDeleted,
    PodGated,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
    UnitProblem,
)
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.status.attempts import AttemptResult, last_attempt, search_result

ROOT, OTHER = GroupKey("CompositePodGroup", "ml", "root"), GroupKey("PodGroup", "ml", "other")
LEAF = GroupKey("PodGroup", "ml", "leaf")
NOW = "2026-11-20T12:00:00Z"
GPU, TAINT = FilterReason("Insufficient nvidia.com/gpu", 2), FilterReason("node(s) had untolerated taint(s)", 1)
_ABOUT_REMEDIES = get_type_hints(SuggestedStep, include_extras=True)["remedy"].__metadata__[0].description
REMEDIES = set(re.findall(r"\w+", _ABOUT_REMEDIES))
"""The words in the description of a remedy."""
OF_SINGLE_PODS = (PodDeleted, PodGated, InconsistentMembership)


def candidate(name: str, *reasons: FilterReason, key: str = "rack") -> CandidateDomain:
    """Return a domain with room for three of four pods."""
    return CandidateDomain(Domain(key, name), nodes=5, fits=3, wanted=4, shortage=1, reasons=reasons)


def blocked(leaf: GroupReport, **root: object) -> Explanation:
    """Return the explanation of a tree that one of its two leaves blocks; the other waits."""
    reports = (
        replace(GroupReport(ROOT, StatusCounts(2, 0, 1, 1), blockers=(LEAF,)), **root),
        GroupReport(OTHER, StatusCounts(1, 0, 1), failed_ancestor=ROOT),
        leaf,
    )
    return Explanation(Finding.IMPOSSIBLE, reports)


def test_every_group_names_the_one_that_blocks_it() -> None:
    """The root by its blockers, and a group that only waits by the ancestor that it failed with."""
    domains = tuple(candidate(name, GPU, TAINT) for name in ("r1", "r2", "r3", "r4"))
    leaf = GroupReport(LEAF, StatusCounts(4, 3, 0, 1), candidates=domains, domains=6, failed_ancestor=ROOT)
    outlook = PreemptionOutlook(PreemptionVerdict.NO_VICTIMS, "PodGroup")
    result = search_result(blocked(leaf), outlook, number=7)
    shown = [last_attempt(result, group, NOW) for group in (ROOT, OTHER, LEAF)]
    reasons = (NodeRejection(GPU.text, 2), NodeRejection(TAINT.text, 1))
    assert shown[0] == LastAttempt(
        finding="Impossible",
        time=NOW,
        number=7,
        blocked_at=BlockingGroup("PodGroup", "leaf", 4, 3),
        domains=ConsideredDomains("rack", 6, tuple(ClosestDomain(f"r{n}", 5, 3, 4, 1, reasons) for n in (1, 2, 3))),
        preemption=AttemptPreemption(
            "NoVictims", None, "pod group preemption: No preemption victims found for incoming preemptor"
        ),
        next_step=SuggestedStep("MakeRoom", "PodGroup", "leaf", 1, "r1", "make room for 1 more pod in r1"),
    )
    assert shown == [shown[0]] * 3


def test_a_group_without_domains_of_its_own_shows_those_above_and_its_nodes() -> None:
    """The nodes are those of the domain that came closest."""
    leaf = GroupReport(LEAF, StatusCounts(4, 1, 0, 3), nodes=5, reasons=(GPU,) * 9)
    found = last_attempt(search_result(blocked(leaf, candidates=(candidate("b1"),), domains=2)), ROOT, NOW)
    assert (found.nodes, found.reasons) == (5, (NodeRejection(GPU.text, 2),) * 5)
    assert found.domains == ConsideredDomains("rack", 2, (ClosestDomain("b1", 5, 3, 4, 1),))
    assert found.next_step is not None
    assert found.next_step.text == "make room for 3 more pods in b1"


def test_groups_beyond_the_minimum_of_a_placed_tree_show_their_own_failure() -> None:
    """The others are placed, with nothing of what blocked a group before."""
    reports = (
        GroupReport(ROOT, StatusCounts(1, 1, 0, 1)),
        GroupReport(OTHER, StatusCounts(1, 1)),
        GroupReport(LEAF, StatusCounts(4, 1, 0, 3), nodes=5, reasons=(GPU,)),
    )
    result = search_result(Explanation(Finding.PLACED, reports), number=2)
    assert [last_attempt(result, group, NOW) for group in (ROOT, OTHER)] == [LastAttempt("Placed", NOW, 2)] * 2
    left = last_attempt(result, LEAF, NOW)
    assert (left.finding, left.blocked_at) == ("NotFound", BlockingGroup("PodGroup", "leaf", 4, 1))


@pytest.mark.parametrize(
    ("report", "finding", "remedy"),
    [
        (GroupReport(LEAF, StatusCounts(4, 0, 2), lack=Lack.MEMBERS), "Inadmissible", Remedy.ADD_MEMBERS),
        (GroupReport(LEAF, StatusCounts(4, unresolvable=4), lack=Lack.VOLUMES), "Impossible", Remedy.PROVIDE_VOLUMES),
        (GroupReport(LEAF, StatusCounts(4, unresolvable=4)), "Impossible", Remedy.CHANGE_DEMANDS),
        (GroupReport(LEAF, StatusCounts(4, unschedulable=4)), "NotFound", Remedy.MAKE_ROOM),
    ],
)
def test_the_finding_for_a_group_of_a_placed_tree_follows_from_its_counts(
    report: GroupReport, finding: str, remedy: Remedy
) -> None:
    """Room beyond the minimum is not searched exhaustively, so that there is none is not proven."""
    reports = (GroupReport(ROOT, StatusCounts(1, 1, 0, 1)), report)
    found = last_attempt(search_result(Explanation(Finding.PLACED, reports)), LEAF, NOW)
    assert found.next_step is not None
    assert (found.finding, found.next_step.remedy) == (finding, remedy)


FAULT = TreeProblem(Fault.TOO_DEEP, LEAF, "root", "PodGroup ml/leaf is too deep")


@pytest.mark.parametrize(
    ("problem", "blocking", "remedy", "text"),
    [
        (GroupMissing(LEAF), "leaf", "CreateGroup", "create PodGroup ml/leaf"),
        (
            GroupMissing(LEAF, "JobSet train"),
            "leaf",
            "CreateGroup",
            "see the events of JobSet train, and whether the operator runs",
        ),
        (
            GroupKindsNotServed(LEAF),
            "leaf",
            "ServeGroups",
            "serve the API of PodGroup ml/leaf, and let the scheduler read it",
        ),
        (
            TemplateMissing("waiting for Workload ml/train"),
            "",
            "CreateTemplate",
            "create what is missing: Workload ml/train",
        ),
        (InvalidTree((FAULT,)), "leaf", "MendTree", FAULT.message),
        (PrioritiesDiffer((FAULT,)), "leaf", "MendPods", FAULT.message),
        (
            SchedulerNamesDiffer("ml/p", "default-scheduler", "cpg-scheduler"),
            "",
            "MendPods",
            "give all pods of the tree the schedulerName cpg-scheduler",
        ),
        (PreemptionPoliciesDiffer({}), "", "MendPods", "give all pods of the tree one preemptionPolicy"),
        (TreeGated(("ml/p",)), "", "RemoveGates", "remove the scheduling gates of all pods of the tree"),
    ],
)
def test_a_tree_that_cannot_be_attempted_says_what_to_do(
    problem: UnitProblem, blocking: str, remedy: str, text: str
) -> None:
    """Each problem has a finding of its name."""
    found = last_attempt(AttemptResult(1, problem=problem), ROOT, NOW)
    assert found.finding == type(problem).__name__
    assert (found.blocked_at.name if found.blocked_at else "") == blocking
    assert found.next_step is not None
    assert (found.next_step.remedy, found.next_step.text) == (remedy, text)
    assert remedy in REMEDIES


def test_a_defect_of_ours_and_a_bind_without_an_answer_have_no_next_step() -> None:
    """There is nothing that a user could do."""
    findings = (
        last_attempt(AttemptResult(problem=problem), ROOT, NOW) for problem in (KeyError(), BindInDoubt("n1", "lost"))
    )
    assert list(findings) == [LastAttempt("SchedulerError", NOW), LastAttempt("BindInDoubt", NOW)]


def test_every_finding_and_every_problem_of_a_tree_can_be_shown() -> None:
    """No other value is documented."""
    problems = {
        kind.__name__ for kind in (*get_args(UnitProblem), *get_args(BindProblem)) if kind not in OF_SINGLE_PODS
    }
    assert {one.value for one in AttemptFinding} == {*Finding, *problems, "SchedulerError"}
    assert {remedy.value for remedy in Remedy} <= REMEDIES


def test_the_largest_attempt_is_cut() -> None:
    """Farther domains and rarer reasons are left out first, and the names stay whole."""
    long = FilterReason("node(s) had untolerated taint {" + "é" * 400 + "}", 2**31 - 1)
    leaf = GroupKey("PodGroup", "n" * MAX_LABEL, "g" * MAX_SUBDOMAIN)
    key, value = "k" * MAX_LABEL_KEY, "v" * MAX_LABEL
    domains = (candidate(value, *(long,) * 9, key=key),) * 9
    report = GroupReport(leaf, StatusCounts(4, 3, 0, 1), candidates=domains, domains=2**31 - 1, lack=Lack.VOLUMES)
    outlook = PreemptionOutlook(
        PreemptionVerdict.NOT_ENOUGH,
        "PodGroup",
        explanation=Explanation(Finding.IMPOSSIBLE, (replace(report, reasons=(long,)),)),
    )
    found = last_attempt(search_result(Explanation(Finding.IMPOSSIBLE, (report,)), outlook, 2**31 - 1), leaf, NOW)
    assert len(msgspec.json.encode(found)) <= MAX_ATTEMPT_BYTES
    assert found.blocked_at == BlockingGroup("PodGroup", leaf.name, 4, 3)
    assert found.domains is not None
    assert found.domains.closest is not None
    assert (found.domains.key, found.domains.closest[0].domain) == (key, value)
