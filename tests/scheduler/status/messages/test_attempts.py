"""Messages about attempts, word for word."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cpg_api.problems import Problem
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.testing.scenario_wording import contradiction_text
from cpg_engine.verdicts import (
    CandidateDomain,
    Contradiction,
    Domain,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    InvalidPod,
    Lack,
    Limitation,
    NextStep,
    Remedy,
    StatusCounts,
)
from cpg_scheduler.status.messages.attempts import (
    causes,
    contradiction_message,
    failure_reasons,
    group_messages,
    internal_error_message,
    invalid_pod_messages,
    pod_messages,
)
from cpg_scheduler.status.messages.wording import MAX_CHARACTERS

CPU, TAINT = FilterReason("Insufficient cpu", 3), FilterReason("node(s) had untolerated taint(s)", 2)
MANY = tuple(FilterReason(f"reason {letter}", 1) for letter in "abcdef")
ROOT, MID = GroupKey("CompositePodGroup", "ml", "root"), GroupKey("CompositePodGroup", "ml", "mid")
ONE, TWO, SINGLE = GroupKey("PodGroup", "ml", "one"), GroupKey("PodGroup", "ml", "two"), GroupKey("Pod", "ml", "p")
RACK = Domain("rack", "r1")
INVALID_POD = InvalidPod("u", (Problem("spec.containers[0]", "no amount"), Problem("spec.overhead", "no amount")))
NOT_EXHAUSTIVE = "the search is not exhaustive for"


def explanation(finding: Finding, *reports: GroupReport, step: NextStep | None = None) -> Explanation:
    """Return an explanation."""
    return Explanation(finding, reports, step)


def report(
    key: GroupKey, minimum: int, scheduled: int = 0, remaining: int = 0, *, u: int = 0, uu: int = 0
) -> GroupReport:
    """Return a report by its counts alone."""
    return GroupReport(key, StatusCounts(minimum, scheduled, remaining, u, uu))


def short(key: GroupKey, minimum: int, scheduled: int = 0, remaining: int = 0, *, uu: int = 0) -> GroupReport:
    """Return the report of a group with too few members."""
    return replace(report(key, minimum, scheduled, remaining, uu=uu), lack=Lack.MEMBERS)


def failed_with(found: GroupReport, ancestor: GroupKey = ROOT) -> GroupReport:
    """Return the report of a group below an ancestor that has no place."""
    return replace(found, failed_ancestor=ancestor)


def full(key: GroupKey, minimum: int, scheduled: int = 0, *, uu: int = 0) -> GroupReport:
    """Return the report of a leaf that five nodes reject, as full or tainted."""
    counts = StatusCounts(minimum, scheduled, 0, minimum - scheduled - uu, uu)
    return GroupReport(key, counts, nodes=5, reasons=(CPU, TAINT))


def group(key: GroupKey, minimum: int, scheduled: int, *blockers: GroupKey) -> GroupReport:
    """Return the report of a group that children block."""
    return GroupReport(key, StatusCounts(minimum, scheduled, 0, minimum - scheduled), blockers=blockers)


PROBLEM = "spec.containers[0]: no amount (and 1 more problem)"
NODES = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (full(SINGLE, 1), NODES),
        (report(SINGLE, 1, uu=1), "no nodes available to schedule pods"),
        (GroupReport(SINGLE, StatusCounts(1, 0, 0, 1), nodes=7), "0/7 nodes are available"),
        (
            GroupReport(SINGLE, StatusCounts(1, 0, 0, 1), nodes=6, reasons=MANY),
            "0/6 nodes are available: 1 reason a, 1 reason b, 1 reason c, 1 reason d, and 2 more reasons",
        ),
        (
            GroupReport(SINGLE, StatusCounts(1, unresolvable=1), invalid=(INVALID_POD,)),
            f"invalid pod: {PROBLEM}",
        ),
    ],
    ids=["full", "no nodes", "no detail", "many", "refused"],
)
def test_the_message_of_a_single_pod_is_kube_schedulers(found: GroupReport, expected: str) -> None:
    """It counts the nodes; no next step is added, which would say the same again."""
    step = NextStep(Remedy.CHANGE_DEMANDS, SINGLE)
    assert pod_messages(explanation(Finding.IMPOSSIBLE, found, step=step)) == {SINGLE: expected}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (short(ONE, 5, 0, 3), "waiting for 2 more pods: minCount is 5, there are 3"),
        (short(ONE, 2, 1), "waiting for 1 more pod: minCount is 2, there is 1"),
        (short(ONE, 1), "waiting for 1 more pod: minCount is 1, there is none"),
        (short(ROOT, 2, 0, 1), "waiting for 1 more child group: minGroupCount is 2, there is 1"),
        (
            replace(short(ONE, 2, 0, 1, uu=1), invalid=(INVALID_POD,)),
            f"waiting for 1 more pod that can be scheduled: minCount is 2, there is 1; 1 invalid pod: {PROBLEM}",
        ),
    ],
    ids=["two", "one", "none", "group", "refused"],
)
def test_a_group_counts_its_missing_members(found: GroupReport, expected: str) -> None:
    """That implies the next step."""
    step = NextStep(Remedy.ADD_MEMBERS, found.key, count=1)
    assert group_messages(explanation(Finding.INADMISSIBLE, found, step=step)) == {found.key: expected}


def test_the_message_of_pods_does_not_count_members() -> None:
    """Otherwise each new pod would change the condition of all others."""
    messages = [pod_messages(explanation(Finding.INADMISSIBLE, short(ONE, 5, 0, have))) for have in range(5)]
    assert messages == [{ONE: "waiting for more pods: minCount is 5"}] * 5


def test_a_tree_that_waits_for_members_names_their_group() -> None:
    """The group that lacks a pod counts it, the root names that group, and the others name the root."""
    root = replace(short(ROOT, 2, 0, 1, uu=1), blockers=(TWO,))
    found = explanation(Finding.INADMISSIBLE, root, failed_with(report(ONE, 2, 0, 2)), failed_with(short(TWO, 2, 0, 1)))
    own = (
        "waiting for 1 more child group that can be scheduled: minGroupCount is 2, there is 1; "
        "PodGroup ml/two: waiting for 1 more pod: minCount is 2, there is 1"
    )
    assert group_messages(found) == {
        ROOT: own,
        ONE: f"CompositePodGroup ml/root cannot be placed: {own}",
        TWO: "waiting for 1 more pod: minCount is 2, there is 1",
    }


def test_a_gang_without_room_counts_the_pods_that_fit() -> None:
    """And says why the nodes reject the next one."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2), step=NextStep(Remedy.MAKE_ROOM, ONE, count=1))
    assert group_messages(found) == {ONE: f"minCount (3) cannot be satisfied: room for 2 of 3 pods; {NODES}"}


def test_a_gang_that_fits_on_no_empty_node_needs_other_nodes_or_requests() -> None:
    """Evictions would not help."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 1, uu=1), step=NextStep(Remedy.CHANGE_DEMANDS, ONE))
    assert group_messages(found)[ONE] == (
        f"minCount (1) cannot be satisfied: room for 0 of 1 pod; {NODES}. "
        "Next: add nodes, or change the requests or constraints of PodGroup ml/one; evictions would not help"
    )


def test_a_cluster_without_nodes_is_told_from_nodes_without_the_label() -> None:
    """Of the topology constraint."""
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


def test_the_closest_domain_is_named_with_the_next_step_there() -> None:
    """It is the first of the candidates; the reasons are those of its nodes."""
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


def test_a_tree_without_room_leads_from_the_root_to_the_group_that_fails() -> None:
    """Each group says what is wrong with itself; one that fits, or was not tried, names the ancestor that failed."""
    found = explanation(
        Finding.NOT_FOUND,
        group(ROOT, 2, 1, MID),
        failed_with(report(ONE, 2, 2)),
        failed_with(group(MID, 1, 0, TWO)),
        failed_with(full(TWO, 3, 1)),
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


def test_the_message_of_preemption_follows_what_is_wrong() -> None:
    """On groups and pods."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2))
    expected = f"minCount (3) cannot be satisfied: room for 2 of 3 pods; {NODES}; preemption: none"
    assert group_messages(found, "preemption: none")[ONE] == expected
    assert pod_messages(found, "preemption: none")[ONE] == expected


def test_an_exhausted_search_budget_can_be_raised() -> None:
    """The tree may fit."""
    found = explanation(Finding.OUT_OF_BUDGET, full(ONE, 3, 2), step=NextStep(Remedy.RAISE_BUDGET, ONE))
    assert group_messages(found)[ONE].endswith(". Next: raise the scheduler's search budget, or request less")


@pytest.mark.parametrize(
    ("finding", "limitations", "doubt"),
    [
        (Finding.NOT_FOUND, (Limitation.SHAPES,), f"{NOT_EXHAUSTIVE} pods of several shapes"),
        (
            Finding.NOT_FOUND,
            (Limitation.TOPOLOGY, Limitation.OTHER_PODS),
            f"{NOT_EXHAUSTIVE} PodGroups with different topology keys and pods that depend on other pods",
        ),
        (Finding.OUT_OF_BUDGET, (Limitation.SHAPES, Limitation.BUDGET), "the search has used up its budget"),
    ],
)
def test_a_search_that_proves_nothing_says_so(finding: Finding, limitations: Sequence[Limitation], doubt: str) -> None:
    """It names the cause, after preemption and before the next step, and has a reason of its own."""
    step = NextStep(Remedy.MAKE_ROOM, ONE, count=1, domain=RACK)
    found = Explanation(finding, (full(ONE, 3, 2),), step, limitations=tuple(limitations))
    message = group_messages(found, "preemption: none")[ONE]
    assert message.endswith(f"; preemption: none. A placement may exist: {doubt}. Next: make room for 1 more pod in r1")
    assert pod_messages(found, "preemption: none")[ONE] == message
    assert failure_reasons(found) == {ONE: "PlacementNotFound"}


def test_groups_are_unschedulable_only_where_nodes_could_help() -> None:
    """In a tree without room, one group waits for a pod, and another for a claim, and its siblings with them."""
    found = explanation(
        Finding.IMPOSSIBLE,
        group(ROOT, 2, 1, MID),
        failed_with(full(ONE, 3, 1)),
        replace(failed_with(group(MID, 2, 0)), lack=Lack.MEMBERS),
        failed_with(report(TWO, 2, 0, 2), MID),
    )
    waiting = dict.fromkeys((MID, TWO), "WaitingForGroup")
    assert failure_reasons(found) == {**dict.fromkeys((ROOT, ONE), "Unschedulable"), **waiting}
    stuck = explanation(Finding.IMPOSSIBLE, replace(full(SINGLE, 1, uu=1), lack=Lack.VOLUMES))
    assert failure_reasons(stuck) == {SINGLE: "WaitingForVolumes"}
    torn = Explanation(Finding.CONTRADICTION, (report(ONE, 1),), contradiction=Contradiction(ONE, "rack"))
    assert failure_reasons(torn) == {ONE: "SchedulerError"}


def test_an_invalid_pod_has_a_message_of_its_own() -> None:
    """Its group counts it, beside all else that is wrong."""
    bad = GroupReport(ONE, StatusCounts(2, 1, 0, 0, 1), invalid=(INVALID_POD,), nodes=5, reasons=(CPU,))
    found = explanation(Finding.IMPOSSIBLE, bad, step=NextStep(Remedy.MEND_PODS, ONE, count=1))
    assert invalid_pod_messages(found) == {"u": f"invalid pod: {PROBLEM}"}
    assert f"1 invalid pod: {PROBLEM}" in group_messages(found)[ONE]


def test_a_contradiction_is_the_message_of_all_groups() -> None:
    """No group of the tree can be placed before members are deleted."""
    detail = "members of PodGroup ml/one run in 2 domains of rack: r1, r2"
    reports = group(ROOT, 1, 0), report(ONE, 1)
    contradiction = Contradiction(ONE, "rack", ("r1", "r2"))
    found = Explanation(Finding.CONTRADICTION, reports, NextStep(Remedy.MOVE_MEMBERS, ROOT), contradiction)
    expected = f"{detail}. Next: delete the members outside one of these domains"
    assert group_messages(found) == {ROOT: expected, ONE: expected}


def test_a_group_that_fits_names_the_ancestor_that_failed() -> None:
    """In a tree that is placed, too; neither it nor its pods say that its minimum is placed."""
    waits = GroupReport(MID, StatusCounts(2, 1, 0, 0, 1), blockers=(TWO,))
    found = explanation(
        Finding.PLACED,
        report(ROOT, 1, 1),
        waits,
        failed_with(report(ONE, 2, 2), MID),
        failed_with(full(TWO, 3, uu=3), MID),
    )
    two = f"minCount (3) cannot be satisfied: room for 0 of 3 pods; {NODES}"
    mid = f"minGroupCount (2) cannot be satisfied: room for 1 of 2 child groups; PodGroup ml/two: {two}"
    one = f"CompositePodGroup ml/mid cannot be placed: {mid}"
    assert group_messages(found) == {ROOT: "", MID: mid, ONE: one, TWO: two}
    assert pod_messages(found)[ONE] == one


def test_a_placed_group_has_no_message() -> None:
    """A group that was left out has one; the message of pods beyond a minimum says that it is placed."""
    extra = GroupReport(ONE, StatusCounts(2, 2, 0, 1), nodes=5, reasons=(CPU,))
    found = explanation(Finding.PLACED, report(ROOT, 1, 1, u=1), extra, full(TWO, 3, 1))
    two = f"minCount (3) cannot be satisfied: room for 1 of 3 pods; {NODES}"
    assert group_messages(found) == {ROOT: "", ONE: "", TWO: two}
    messages = pod_messages(found)
    assert messages[ONE] == (
        "the minimum of PodGroup ml/one is placed, there is no room for more: "
        "0/5 nodes are available: 3 Insufficient cpu"
    )
    assert messages[ROOT] == "the minimum of CompositePodGroup ml/root is placed, there is no room for more"


def test_a_long_message_is_cut_between_two_words() -> None:
    """Its next step stays whole."""
    deep = [GroupKey("CompositePodGroup", "n" * 63, letter * 253) for letter in "abc"]
    leaf = GroupKey("PodGroup", "n" * 63, "d" * 253)
    groups = [group(key, 1, 0, below) for key, below in zip(deep, [*deep[1:], leaf], strict=True)]
    step = NextStep(Remedy.MAKE_ROOM, leaf, count=2, domain=RACK)
    for message in group_messages(explanation(Finding.NOT_FOUND, *groups, full(leaf, 3), step=step)).values():
        assert len(message) <= MAX_CHARACTERS
        assert message.endswith(". Next: make room for 2 more pods in r1")
        assert "…" in message or message.startswith(("minCount", "minGroupCount"))


def test_a_cause_has_no_numbers_and_names() -> None:
    """It stays the same while members and nodes come; it says what is wrong, and what preemption does about it."""
    few = [causes(explanation(Finding.INADMISSIBLE, short(ONE, 5, 0, have)))[ONE] for have in range(5)]
    assert len(set(few)) == 1
    full_ones = [causes(_full(have), "preemption: none")[ONE] for have in range(3)]
    reasons = "Insufficient cpu, node(s) had untolerated taint(s)"
    assert set(full_ones) == {f"Unschedulable, {reasons}; preemption: none"}
    bad = GroupReport(ONE, StatusCounts(2, 1, 0, 0, 1), invalid=(INVALID_POD,), nodes=5, reasons=(CPU,))
    assert "spec.containers[0]: no amount" in causes(explanation(Finding.IMPOSSIBLE, bad))[ONE]


def test_a_gang_that_waits_for_members_has_one_message_whether_its_sibling_is_placed_or_not() -> None:
    """The result of the tree is no part of its cause."""
    few = short(TWO, 3, 0, 2)
    waits = explanation(Finding.INADMISSIBLE, group(ROOT, 1, 0), short(ONE, 3, 0, 1), few)
    goes_on = explanation(Finding.PLACED, report(ROOT, 1, 1), report(ONE, 3, 3), few)
    assert group_messages(waits)[TWO] == group_messages(goes_on)[TWO] != ""
    assert causes(waits)[TWO] == causes(goes_on)[TWO]


def test_the_cause_of_a_group_is_its_own_or_that_of_its_failed_ancestor() -> None:
    """As its message is."""
    for scheduled in (0, 1):
        found = explanation(
            Finding.NOT_FOUND,
            group(ROOT, 3, scheduled, TWO),
            failed_with(report(ONE, 2, 2)),
            failed_with(full(TWO, 3, scheduled)),
        )
        cause = causes(found)
        assert cause[ROOT] == cause[ONE] == f"Unschedulable, {cause[TWO]}"
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


def test_the_same_state_has_the_same_message() -> None:
    """For a group and its pods."""
    found = explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2))
    assert group_messages(found) == group_messages(explanation(Finding.IMPOSSIBLE, full(ONE, 3, 2)))
    assert pod_messages(found) == group_messages(found)


@pytest.mark.parametrize("domains", [(), ("r1", "r2")])
def test_scenarios_expect_the_message_of_a_contradiction(domains: tuple[str, ...]) -> None:
    """The engine plays scenarios without a scheduler, in the same words."""
    found = Contradiction(ONE, "rack", domains)
    assert contradiction_message(found) == contradiction_text(found)


def test_an_internal_error_is_named() -> None:
    """Users report it."""
    assert internal_error_message(ValueError("x")) == "internal error of the scheduler: ValueError('x')"
