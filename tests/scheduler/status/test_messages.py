"""What people are told, word for word."""

import pytest
from msgspec.structs import replace

from cpg_api.problems import Problem
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.testing.scenario_wording import contradiction_text, eviction_text
from cpg_engine.verdicts import (
    CandidateDomain,
    Contradiction,
    Domain,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    InvalidPod,
    NextStep,
    Remedy,
    StatusCounts,
)
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.status.messages import (
    LONGEST,
    causes,
    contradiction_message,
    eviction_message,
    group_messages,
    overcommit_message,
    pod_messages,
    preemption_message,
    refusals,
)

CPU, TAINT = FilterReason("Insufficient cpu", 3), FilterReason("node(s) had untolerated taint(s)", 2)
MANY = tuple(FilterReason(f"reason {letter}", 1) for letter in "abcdef")
ROOT, MID = GroupKey("CompositePodGroup", "ml", "root"), GroupKey("CompositePodGroup", "ml", "mid")
ONE, TWO, ALONE = GroupKey("PodGroup", "ml", "one"), GroupKey("PodGroup", "ml", "two"), GroupKey("Pod", "ml", "p")
RACK = Domain("rack", "r1")
WRONG = InvalidPod("u", (Problem("spec.containers[0]", "no amount"), Problem("spec.overhead", "no amount")))


def explanation(finding: Finding, *reports: GroupReport, step: NextStep | None = None) -> Explanation:
    """Return an explanation."""
    return Explanation(finding, reports, step)


def report(
    key: GroupKey, minimum: int, scheduled: int = 0, remaining: int = 0, *, u: int = 0, uu: int = 0
) -> GroupReport:
    """Return a report by its counts alone."""
    return GroupReport(key, StatusCounts(minimum, scheduled, remaining, u, uu))


def lost(found: GroupReport, above: GroupKey = ROOT) -> GroupReport:
    """Return the report of a group below one that has no place."""
    return replace(found, failed_ancestor=above)


def full(key: GroupKey, minimum: int, scheduled: int = 0, *, uu: int = 0) -> GroupReport:
    """Return the report of a leaf that found five nodes full or tainted."""
    counts = StatusCounts(minimum, scheduled, 0, minimum - scheduled - uu, uu)
    return GroupReport(key, counts, nodes=5, reasons=(CPU, TAINT))


def group(key: GroupKey, minimum: int, scheduled: int, *blockers: GroupKey) -> GroupReport:
    """Return the report of a group whose children kept it waiting."""
    return GroupReport(key, StatusCounts(minimum, scheduled, 0, minimum - scheduled), blockers=blockers)


INVALID = "spec.containers[0]: no amount (and 1 more problem)"
NODES = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (full(ALONE, 1), NODES),
        (report(ALONE, 1, uu=1), "no nodes available to schedule pods"),
        (GroupReport(ALONE, StatusCounts(1, 0, 0, 1), nodes=7), "0/7 nodes are available"),
        (
            GroupReport(ALONE, StatusCounts(1, 0, 0, 1), nodes=6, reasons=MANY),
            "0/6 nodes are available: 1 reason a, 1 reason b, 1 reason c, 1 reason d, and 2 more reasons",
        ),
        (
            GroupReport(ALONE, StatusCounts(1, unresolvable=1), invalid=(WRONG,)),
            f"invalid pod: {INVALID}",
        ),
    ],
    ids=["full", "no nodes", "no detail", "many", "refused"],
)
def test_a_pod_that_is_alone_is_told_of_the_nodes(found: GroupReport, expected: str) -> None:
    """In the words of kube-scheduler, and without an advice that would say the same again."""
    step = NextStep(Remedy.CHANGE_DEMANDS, ALONE)
    assert pod_messages(explanation(Finding.IMPOSSIBLE, found, step=step)) == {ALONE: expected}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (report(ONE, 5, 0, 3), "waiting for 2 more pods: minCount is 5, there are 3"),
        (report(ONE, 2, 1), "waiting for 1 more pod: minCount is 2, there is 1"),
        (report(ONE, 1), "waiting for 1 more pod: minCount is 1, there is none"),
        (report(ROOT, 2, 0, 1), "waiting for 1 more child group: minGroupCount is 2, there is 1"),
        (
            GroupReport(ONE, StatusCounts(2, 0, 1, 0, 1), invalid=(WRONG,)),
            f"waiting for 1 more pod that can be scheduled: minCount is 2, there is 1; 1 invalid pod: {INVALID}",
        ),
    ],
    ids=["two", "one", "none", "group", "refused"],
)
def test_a_group_says_how_many_are_missing(found: GroupReport, expected: str) -> None:
    """That is what to do, so no advice is added."""
    step = NextStep(Remedy.ADD_MEMBERS, found.key, count=1)
    assert group_messages(explanation(Finding.INADMISSIBLE, found, step=step)) == {found.key: expected}


def test_pods_are_told_what_is_missing_without_the_number() -> None:
    """Or each pod that comes would change what all others are told."""
    told = [pod_messages(explanation(Finding.INADMISSIBLE, report(ONE, 5, 0, have))) for have in range(5)]
    assert told == [{ONE: "waiting for more pods: minCount is 5"}] * 5


def test_a_tree_that_waits_says_for_which_group() -> None:
    """The group that lacks a pod says so, the root names it, and the others name the root."""
    short = GroupReport(ROOT, StatusCounts(2, 0, 1, 0, 1), blockers=(TWO,))
    found = explanation(Finding.INADMISSIBLE, short, lost(report(ONE, 2, 0, 2)), lost(report(TWO, 2, 0, 1)))
    own = (
        "waiting for 1 more child group that can be scheduled: minGroupCount is 2, there is 1; "
        "PodGroup ml/two: waiting for 1 more pod: minCount is 2, there is 1"
    )
    assert group_messages(found) == {
        ROOT: own,
        ONE: f"CompositePodGroup ml/root cannot be placed: {own}",
        TWO: "waiting for 1 more pod: minCount is 2, there is 1",
    }


def test_a_gang_without_room_says_how_far_it_came() -> None:
    """And why the nodes were out for the next pod."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2), step=NextStep(Remedy.MAKE_ROOM, ONE, count=1))
    assert group_messages(found) == {ONE: f"minCount (3) cannot be satisfied: room for 2 of 3 pods; {NODES}"}


def test_a_gang_that_no_node_could_hold_says_so() -> None:
    """An autoscaler or a person has to do something; eviction will not."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 1, uu=1), step=NextStep(Remedy.CHANGE_DEMANDS, ONE))
    assert group_messages(found)[ONE] == (
        f"minCount (1) cannot be satisfied: room for 0 of 1 pod; {NODES}. "
        "Next: add nodes, or change the requests or constraints of PodGroup ml/one; evictions would not help"
    )


def test_a_gang_without_nodes_says_so() -> None:
    """And otherwise than one whose topology no node has a label for."""
    lack = "minCount (2) cannot be satisfied: room for 0 of 2 pods; "
    assert group_messages(explanation(Finding.IMPOSSIBLE, report(ONE, 2, uu=2))) == {
        ONE: f"{lack}no nodes available to schedule pods"
    }
    unlabelled = GroupReport(
        ONE, StatusCounts(2, 0, 0, 0, 2), nodes=3, reasons=(FilterReason("node(s) had no label rack", 3),)
    )
    assert group_messages(explanation(Finding.IMPOSSIBLE, unlabelled)) == {
        ONE: f"{lack}0/3 nodes are available: 3 node(s) had no label rack"
    }


def test_the_closest_domain_is_named_with_what_to_do_there() -> None:
    """The first of the candidates, with the reasons of its nodes."""
    near, far = CandidateDomain(RACK, 2, 2, 4, 2, (CPU,)), CandidateDomain(Domain("rack", "r2"), 2, 0, 4, 4)
    found = GroupReport(ONE, StatusCounts(4, 2, 0, 2), candidates=(near, far), nodes=9, reasons=(TAINT,), domains=3)
    step = NextStep(Remedy.MAKE_ROOM, ONE, count=2, domain=RACK)
    assert group_messages(explanation(Finding.NOT_FOUND, found, step=step)) == {
        ONE: "minCount (4) cannot be satisfied: 0/3 domains of rack have room for 4 pods "
        "(r1 is closest: 2 of 4, 3 Insufficient cpu). Next: make room for 2 more pods in r1"
    }


def test_a_domain_with_enough_room_is_named_by_what_else_is_wrong() -> None:
    """A search that tried it found no place; without reasons the domain stands alone."""
    lack = "minCount (4) cannot be satisfied: room for 0 of 4 pods; 0/2 domains of rack are available"
    for reasons, expected in (((), "r1 is closest"), ((TAINT,), "r1 is closest: 2 node(s) had untolerated taint(s)")):
        candidate = CandidateDomain(RACK, 2, 4, 4, reasons=reasons)
        found = GroupReport(ONE, StatusCounts(4, 0, 0, 4), candidates=(candidate,), domains=2)
        assert group_messages(explanation(Finding.NOT_FOUND, found))[ONE] == f"{lack} ({expected})"


def test_a_composite_group_counts_its_children_and_the_room_in_domains() -> None:
    """The room of a domain is that for pods."""
    candidate = CandidateDomain(RACK, 2, 3, 6, 2)
    found = GroupReport(ROOT, StatusCounts(2, 1, 0, 1), candidates=(candidate,), domains=1)
    assert group_messages(explanation(Finding.IMPOSSIBLE, found))[ROOT] == (
        "minGroupCount (2) cannot be satisfied: room for 1 of 2 child groups; "
        "0/1 domains of rack have room for 5 pods (r1 is closest: 3 of 5)"
    )


def test_a_tree_without_room_leads_from_the_root_to_where_it_hurts() -> None:
    """Each group says what is wrong with itself; one that has its place, or was never asked, says what holds it up."""
    found = explanation(
        Finding.NOT_FOUND,
        group(ROOT, 2, 1, MID),
        lost(report(ONE, 2, 2)),
        lost(group(MID, 1, 0, TWO)),
        lost(full(TWO, 3, 1)),
    )
    two = f"minCount (3) cannot be satisfied: room for 1 of 3 pods; {NODES}"
    mid = f"minGroupCount (1) cannot be satisfied: room for 0 of 1 child group; PodGroup ml/two: {two}"
    root = f"minGroupCount (2) cannot be satisfied: room for 1 of 2 child groups; CompositePodGroup ml/mid: {mid}"
    assert group_messages(found) == {
        ROOT: root,
        ONE: f"CompositePodGroup ml/root cannot be placed: {root}",
        MID: mid,
        TWO: two,
    }


@pytest.mark.parametrize(
    ("outlook", "said"),
    [
        (
            PreemptionOutlook(PreemptionVerdict.ONGOING, "PodGroup", victims=2),
            "found a placement for podgroup, preempting 2 victims",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.ONGOING, "CompositePodGroup"),
            "ongoing preemption on nominated nodes",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.FORBIDDEN, "PodGroup"),
            "not eligible due to preemptionPolicy=Never.",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.NO_VICTIMS, "PodGroup"),
            "No preemption victims found for incoming preemptor",
        ),
        (PreemptionOutlook(PreemptionVerdict.NO_HELP, "PodGroup"), "no eviction can help"),
    ],
)
def test_what_preemption_does_is_said_after_what_is_wrong(outlook: PreemptionOutlook, said: str) -> None:
    """F35: whoever looks for the one finds it as well as the other, on groups and pods."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2))
    expected = f"minCount (3) cannot be satisfied: room for 2 of 3 pods; {NODES}; pod group preemption: {said}"
    message = preemption_message(outlook)
    assert group_messages(found, message)[ONE] == pod_messages(found, message)[ONE] == expected


def test_what_evictions_could_not_have_helped_is_said_in_a_bracket() -> None:
    """Up to it the sentence is the same for the same cause."""
    rest = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2))
    said = preemption_message(PreemptionOutlook(PreemptionVerdict.NOT_ENOUGH, "Pod", explanation=rest))
    assert said.partition(" (")[0] == "preemption: it would not help to evict all who are less important"
    assert "room for 2 of 3 pods" in said


def test_running_out_of_budget_is_not_being_impossible() -> None:
    """There is something to be done about it."""
    found = explanation(Finding.OUT_OF_BUDGET, full(ONE, 3, 2), step=NextStep(Remedy.RAISE_BUDGET, ONE))
    assert group_messages(found)[ONE].endswith(". Next: raise the scheduler's search budget, or request less")


def test_a_pod_that_makes_no_sense_is_told_itself() -> None:
    """Its group says that there is one, and says all else that is wrong."""
    bad = GroupReport(ONE, StatusCounts(2, 1, 0, 0, 1), invalid=(WRONG,), nodes=5, reasons=(CPU,))
    found = explanation(Finding.IMPOSSIBLE, bad, step=NextStep(Remedy.MEND_PODS, ONE, count=1))
    assert refusals(found) == {"u": f"invalid pod: {INVALID}"}
    assert f"1 invalid pod: {INVALID}" in group_messages(found)[ONE]


def test_running_members_that_contradict_are_told_to_all() -> None:
    """No group of the tree can be placed before they are gone."""
    detail = "members of PodGroup ml/one run in 2 domains of rack: r1, r2"
    reports = group(ROOT, 1, 0), report(ONE, 1)
    contradiction = Contradiction(ONE, "rack", ("r1", "r2"))
    found = Explanation(Finding.CONTRADICTION, reports, NextStep(Remedy.MOVE_MEMBERS, ROOT), contradiction)
    expected = f"{detail}. Next: delete the members outside one of these domains"
    assert group_messages(found) == {ROOT: expected, ONE: expected}


def test_a_group_that_would_fit_says_with_which_it_is_lost() -> None:
    """In a tree that is placed, too; neither it nor its pods say that its minimum has its place."""
    waits = GroupReport(MID, StatusCounts(2, 1, 0, 0, 1), blockers=(TWO,))
    found = explanation(
        Finding.PLACED, report(ROOT, 1, 1), waits, lost(report(ONE, 2, 2), MID), lost(full(TWO, 3, uu=3), MID)
    )
    two = f"minCount (3) cannot be satisfied: room for 0 of 3 pods; {NODES}"
    mid = f"minGroupCount (2) cannot be satisfied: room for 1 of 2 child groups; PodGroup ml/two: {two}"
    one = f"CompositePodGroup ml/mid cannot be placed: {mid}"
    assert group_messages(found) == {ROOT: "", MID: mid, ONE: one, TWO: two}
    assert pod_messages(found)[ONE] == one


def test_what_is_placed_is_not_talked_about() -> None:
    """A group that was left out says why; pods beyond a minimum are told that it is placed."""
    extra = GroupReport(ONE, StatusCounts(2, 2, 0, 1), nodes=5, reasons=(CPU,))
    found = explanation(Finding.PLACED, report(ROOT, 1, 1, u=1), extra, full(TWO, 3, 1))
    two = f"minCount (3) cannot be satisfied: room for 1 of 3 pods; {NODES}"
    assert group_messages(found) == {ROOT: "", ONE: "", TWO: two}
    told = pod_messages(found)
    assert told[ONE] == (
        "the minimum of PodGroup ml/one is placed, there is no room for more: "
        "0/5 nodes are available: 3 Insufficient cpu"
    )
    assert told[ROOT] == "the minimum of CompositePodGroup ml/root is placed, there is no room for more"


def test_a_sentence_is_not_longer_than_anybody_reads() -> None:
    """It is cut between two words, and says what to do all the same."""
    deep = [GroupKey("CompositePodGroup", "n" * 63, letter * 253) for letter in "abc"]
    leaf = GroupKey("PodGroup", "n" * 63, "d" * 253)
    groups = [group(key, 1, 0, below) for key, below in zip(deep, [*deep[1:], leaf], strict=True)]
    step = NextStep(Remedy.MAKE_ROOM, leaf, count=2, domain=RACK)
    for message in group_messages(explanation(Finding.NOT_FOUND, *groups, full(leaf, 3), step=step)).values():
        assert len(message) <= LONGEST
        assert message.endswith(". Next: make room for 2 more pods in r1")
        assert "…" in message or message.startswith(("minCount", "minGroupCount"))


def test_a_cause_is_without_numbers_and_names() -> None:
    """So it is the same while members and nodes come; it has what is wrong, and what preemption does about it."""
    few = [causes(explanation(Finding.INADMISSIBLE, report(ONE, 5, 0, have)))[ONE] for have in range(5)]
    assert len(set(few)) == 1
    outlook = preemption_message(PreemptionOutlook(PreemptionVerdict.NOT_ENOUGH, "Pod", explanation=_full(2)))
    full_ones = [causes(_full(have), outlook)[ONE] for have in range(3)]
    said = "preemption: it would not help to evict all who are less important"
    reasons = "Insufficient cpu, node(s) had untolerated taint(s)"
    assert set(full_ones) == {f"Unschedulable, {reasons}; {said}"}
    bad = GroupReport(ONE, StatusCounts(2, 1, 0, 0, 1), invalid=(WRONG,), nodes=5, reasons=(CPU,))
    assert "spec.containers[0]: no amount" in causes(explanation(Finding.IMPOSSIBLE, bad))[ONE]


def test_a_gang_that_gathers_does_so_whether_its_sibling_is_placed_or_not() -> None:
    """What became of the tree changes no word of what is told to it, so it is no news."""
    few = report(TWO, 3, 0, 2)
    waits = explanation(Finding.INADMISSIBLE, group(ROOT, 1, 0), report(ONE, 3, 0, 1), few)
    goes_on = explanation(Finding.PLACED, report(ROOT, 1, 1), report(ONE, 3, 3), few)
    assert group_messages(waits)[TWO] == group_messages(goes_on)[TWO] != ""
    assert causes(waits)[TWO] == causes(goes_on)[TWO]


def test_the_cause_of_a_group_is_its_own_or_that_of_its_tree() -> None:
    """As its sentence: siblings that fail one after the other are no news to who waits for all of them."""
    for scheduled in (0, 1):
        found = explanation(
            Finding.NOT_FOUND, group(ROOT, 3, scheduled, TWO), lost(report(ONE, 2, 2)), lost(full(TWO, 3, scheduled))
        )
        told = causes(found)
        assert told[ROOT] == told[ONE] == f"Unschedulable, {told[TWO]}"
    candidate = CandidateDomain(RACK, 2, 2, 4, 2, (CPU,))
    near = GroupReport(ONE, StatusCounts(4, 2, 0, 2), candidates=(candidate,), nodes=9, reasons=(TAINT,))
    assert causes(explanation(Finding.NOT_FOUND, near))[ONE] == "Unschedulable, Insufficient cpu"
    extra = GroupReport(TWO, StatusCounts(2, 2, 0, 1), nodes=5, reasons=(CPU,))
    placed = explanation(Finding.PLACED, report(ROOT, 1, 1, u=1), full(ONE, 3, 1), extra)
    assert causes(placed)[TWO] == "Success, Insufficient cpu"
    contradiction = Contradiction(ONE, "rack")
    torn = Explanation(Finding.CONTRADICTION, (group(ROOT, 1, 0), report(ONE, 1)), contradiction=contradiction)
    assert causes(torn) == dict.fromkeys((ROOT, ONE), f"a member of {ONE} runs on a node without the label rack")


def _full(scheduled: int) -> Explanation:
    return explanation(Finding.IMPOSSIBLE, full(ONE, 3, scheduled))


def test_the_order_of_counts_does_not_matter_to_the_words() -> None:
    """The same state is told in the same words."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2))
    assert group_messages(found) == group_messages(explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2)))
    assert pod_messages(found) == group_messages(found)


@pytest.mark.parametrize(
    "reason",
    [
        EvictionReason(preemptor=ONE, node="n1", resource="cpu", amount=1500),
        EvictionReason(preemptor=ONE, node="n1", resource="memory", amount=2**30, domain=Domain("rack", "r1")),
        EvictionReason(preemptor=ONE, node="n1", resource="x.io/gpu", amount=2),
        EvictionReason(preemptor=ONE, node="n1", resource="pods", amount=1),
        EvictionReason(preemptor=ONE, node="n1", domain=Domain("rack", "r1")),
        EvictionReason(preemptor=ONE, node="n1", victim_node="n2"),
    ],
)
def test_scenarios_compare_the_message_of_an_eviction(reason: EvictionReason) -> None:
    """The engine plays scenarios without a scheduler, and has to expect the same words."""
    assert eviction_message(reason) == eviction_text(reason)


def test_an_overcommitted_node_names_up_to_three_of_our_pods() -> None:
    """A node may have a hundred; the excess is in the units that users write."""
    node = OvercommittedNode("n1", {"cpu": 1500, "memory": 2**31}, ("default/a", "default/b", "default/c", "default/d"))
    assert overcommit_message(node, "cpg-scheduler") == (
        "its pods request more than it has: cpu by 1500m, memory by 2Gi; "
        "of cpg-scheduler are default/a, default/b, default/c and 1 more"
    )


@pytest.mark.parametrize("domains", [(), ("r1", "r2")])
def test_scenarios_compare_the_message_of_a_contradiction(domains: tuple[str, ...]) -> None:
    """The engine plays scenarios without a scheduler, and has to expect the same words."""
    found = Contradiction(ONE, "rack", domains)
    assert contradiction_message(found) == contradiction_text(found)
