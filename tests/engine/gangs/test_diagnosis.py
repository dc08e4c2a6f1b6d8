"""Explanations: statuses and counts at every level, blockers, candidates and reasons, each of one attempt."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.verdicts import CandidateDomain, Domain, FilterReason, Finding, Lack, Status, StatusCounts

Form = Mapping[str, Any]
NOWHERE = {"nodeSelector": {"disk": "none"}}
CPU = "Insufficient cpu"


def decision_about(
    nodes: Sequence[str | Form],
    root: Form | None,
    pods: Sequence[str | Form],
    *,
    budget: int = 100,
    detail: bool = True,
    candidates: int = 10,
) -> NamedDecision:
    """Return the decision about a tree with this root."""
    return DecisionCase(nodes, {"root": root}, pods).decide(
        SearchOptions(budget=budget, detail=detail, candidates=candidates)
    )


def children(**found: Form | None) -> Form:
    """Return a root that needs all of its children."""
    return {"gang": len(found), "children": found}


def statuses(found: NamedDecision) -> dict[str, Status]:
    """Return the status of every group."""
    return {report.key.name: report.status for report in found.decision.explanation.reports}


# Counts of pods.


def test_a_placed_leaf_counts_all_its_members() -> None:
    """Running and finished members, and those placed now; pods beyond the room are unschedulable."""
    pods: list[str | Form] = ["1@root on n1", {"pod": "1@root", "phase": "Succeeded"}, "3x1@root"]
    found = decision_about(["n1 3"], {"gang": 3}, pods)
    assert StatusCounts(3, scheduled=4, unschedulable=1) == found.counts("root")
    assert (1, (FilterReason(CPU, 1),)) == (found.report("root").nodes, found.report("root").reasons)


def test_the_failed_ancestor_is_reported() -> None:
    """It is the highest without a place; a group that has a place, or fails alone, has none."""
    one, two, far = {"gang": 1}, {"gang": 2}, {"pod": "1@far", **NOWHERE}
    children = {"fits": one, "mid": {"gang": 2, "children": {"low": {"gang": 1, "children": {"fit": one}}, "far": two}}}
    found = decision_about(["n1 9"], {"gang": 1, "children": children}, ["1@fits", "1@fit", far, far])
    lost = {name: found.report(name).failed_ancestor for name in ("root", "fits", "mid", "low", "fit", "far")}
    mid = found.report("mid").key
    assert lost == {"root": None, "fits": None, "mid": None, "low": mid, "fit": mid, "far": mid}


def test_extra_pods_that_no_eviction_helps_are_unresolvable() -> None:
    """They are counted apart from those that an eviction could help, and from invalid ones."""
    pods: list[str | Form] = ["3x1@root", {"pod": "far=1@root", **NOWHERE}, {"pod": "bad=x@root"}]
    found = decision_about(["n1 2"], {"gang": 1}, pods)
    assert StatusCounts(1, scheduled=2, unschedulable=1, unresolvable=2) == found.counts("root")
    assert [refused.uid for refused in found.report("root").invalid] == ["uid-default-bad"]


def test_invalid_pods_do_not_hide_unschedulable_ones() -> None:
    """One pod is invalid, two find no room: each has its own count."""
    found = decision_about(["n1 1"], {"gang": 1}, ["3x1@root", "bad=x@root"])
    assert StatusCounts(1, scheduled=1, unschedulable=2, unresolvable=1) == found.counts("root")


def test_a_leaf_that_fits_in_part_is_unschedulable() -> None:
    """What fitted is scheduled, the rest could be helped by evictions."""
    found = decision_about(["n1 2"], {"gang": 3}, ["3x1@root"])
    assert (Status.UNSCHEDULABLE, StatusCounts(3, scheduled=2, unschedulable=1)) == (
        found.report("root").status,
        found.counts("root"),
    )


@pytest.mark.parametrize("pod", [{"pod": "1@root", **NOWHERE}, "9@root"])
def test_a_pod_that_no_eviction_can_help_is_unresolvable(pod: str | Form) -> None:
    """No node is feasible, or none is large enough: then its group is unresolvable, too."""
    found = decision_about(["n1 4"], {"gang": 3}, ["2x1@root", pod])
    assert StatusCounts(3, scheduled=2, unresolvable=1) == found.counts("root")
    assert Status.UNRESOLVABLE is found.report("root").status


def test_pods_that_depend_on_others_are_checked_by_their_filters() -> None:
    """Evictions could help against anti-affinity, but not with required affinity."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "rack"}
    nodes = ["n1 4 rack=a"]
    for kind, counts in (
        ("podAntiAffinity", StatusCounts(1, unschedulable=1)),
        ("podAffinity", StatusCounts(1, unresolvable=1)),
    ):
        pod = {"pod": "1@root", "affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
        other = {"pod": "1@x on n1", "labels": {"app": "db" if kind == "podAntiAffinity" else "web"}}
        assert counts == decision_about(nodes, {"gang": 1}, [pod, other]).counts("root")


def test_inadmissible_leaves_count_what_they_have() -> None:
    """The existing pods remain, the minimum is beyond them."""
    found = decision_about(["n1 9"], {"gang": 5}, ["1@root on n1", "2x1@root", "bad=x@root"])
    assert (Finding.INADMISSIBLE, StatusCounts(5, scheduled=1, remaining=2, unresolvable=1)) == (
        found.finding,
        found.counts("root"),
    )


# Counts of groups.


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]}


def test_groups_that_no_node_could_help_say_what_they_lack() -> None:
    """Members, or volumes of their pods; what is below them failed with them, and not with the root."""
    root = children(
        full=None,
        stuck={"gang": 2, "children": {"fine": None, "claims": {"gang": 2}}},
        short={"gang": 1, "children": {"few": {"gang": 2}}},
        spare={"gang": 1, "children": {"also": {"gang": 1}}},
    )
    pods: list[str | Form] = ["9@full", "1@fine", "1@claims", {"pod": "1@claims", **CLAIM}, "1@few"]
    pods += ["1@also", {"pod": "1@also", **CLAIM}]
    found = decision_about(["n1 4"], {**root, "gang": 1}, pods)
    reports = {report.key.name: report for report in found.decision.explanation.reports}
    lacks = dict.fromkeys(("stuck", "claims"), Lack.VOLUMES) | dict.fromkeys(("short", "few"), Lack.MEMBERS)
    assert {name: report.lack for name, report in reports.items() if report.lack} == lacks
    assert {name: report.failed_ancestor and report.failed_ancestor.name for name, report in reports.items()} == {
        **dict.fromkeys(("root", "full", "stuck", "short", "spare", "also")),
        "fine": "stuck",
        "claims": "stuck",
        "few": "short",
    }


def test_a_parent_counts_the_statuses_of_its_children() -> None:
    """One was placed, one could be helped, one could not, one was not needed."""
    root = {"gang": 4, "children": {"pg1": None, "pg2": None, "pg3": None, "pg4": None, "pg5": None}}
    pods: list[str | Form] = ["1@pg1", "9@pg3", {"pod": "1@pg2", **NOWHERE}, "1@pg4", "1@pg5"]
    found = decision_about(["n1 4"], root, pods)
    assert StatusCounts(4, scheduled=3, unresolvable=2) == found.counts("root")
    assert found.blockers("root") == ["pg2", "pg3"]
    assert [statuses(found)[name] for name in ("pg5", "pg3")] == [Status.SUCCESS, Status.UNRESOLVABLE]


def test_unresolvable_pods_make_their_ancestors_unresolvable() -> None:
    """A pod, its group, and every ancestor that needs the group."""
    low = children(pg={"gang": 1})
    found = decision_about(["n1 4"], children(mid=children(low=low)), [{"pod": "1@pg", **NOWHERE}])
    assert {Status.UNRESOLVABLE} == set(statuses(found).values())
    assert [found.blockers(name) for name in ("root", "mid", "low", "pg")] == [["mid"], ["low"], ["pg"], []]


def test_an_ancestor_with_enough_other_children_is_resolvable() -> None:
    """The root needs one of two; the other could be helped."""
    root = {"gang": 1, "children": {"lost": children(pg1={"gang": 1}), "full": children(pg2={"gang": 1})}}
    found = decision_about(["n1 2"], root, [{"pod": "1@pg1", **NOWHERE}, "1@pg2", "2@x on n1"])
    assert StatusCounts(1, unschedulable=1, unresolvable=1) == found.counts("root")
    assert (statuses(found)["root"], statuses(found)["lost"]) == (Status.UNSCHEDULABLE, Status.UNRESOLVABLE)


def test_untried_children_wait() -> None:
    """When the first child has no place, the others are not tried."""
    found = decision_about(
        ["n1 1"], children(pg1={"gang": 2}, pg2={"gang": 1}, pg3={"gang": 9}), ["2x1@pg1", "1@pg2", "1@pg3"]
    )
    assert found.finding is Finding.INADMISSIBLE
    found = decision_about(["n1 1"], children(pg1={"gang": 2}, pg2={"gang": 1}), ["2x1@pg1", "1@pg2"])
    assert StatusCounts(2, remaining=1, unschedulable=1) == found.counts("root")
    assert (Status.WAIT, StatusCounts(1, remaining=1)) == (statuses(found)["pg2"], found.counts("pg2"))


def test_inadmissible_children_are_unresolvable() -> None:
    """They never remain: the parent is placed without them or not at all."""
    root = {"gang": 2, "children": {"pg1": {"gang": 2}, "pg2": {"gang": 1}, "pg3": {"gang": 9}}}
    found = decision_about(["n1 1"], root, ["2x1@pg1", "1@pg2", "1@pg3"])
    assert StatusCounts(2, remaining=1, unschedulable=1, unresolvable=1) == found.counts("root")
    assert found.blockers("root") == ["pg1", "pg3"]


def test_inadmissible_groups_name_the_children_that_lack_members() -> None:
    """Complete children wait; a group without enough children blames none."""
    found = decision_about(["n1 9"], children(pg1={"gang": 2}, pg2={"gang": 1}), ["1@pg1", "1@pg2"])
    assert (StatusCounts(2, remaining=1, unresolvable=1), ["pg1"]) == (found.counts("root"), found.blockers("root"))
    found = decision_about(["n1 9"], {"gang": 3, "children": {"pg1": None}}, ["1@pg1"])
    assert (StatusCounts(3, remaining=1), []) == (found.counts("root"), found.blockers("root"))


def test_a_child_that_fitted_is_not_reported_as_failed() -> None:
    """The group before the one that did not fit was asked for other ways and had none: it is still a success."""
    root = children(mid1=children(pg1={"gang": 2}, pg2={"gang": 1}), mid2=children(pg3={"gang": 3}))
    found = decision_about(["n1 5"], root, ["2x1@pg1", "1@pg2", "3x1@pg3"])
    assert (StatusCounts(2, scheduled=1, unschedulable=1), ["mid2"]) == (found.counts("root"), found.blockers("root"))
    assert (StatusCounts(2, scheduled=2), []) == (found.counts("mid1"), found.blockers("mid1"))
    assert StatusCounts(3, scheduled=2, unschedulable=1) == found.counts("pg3")


def test_extra_pods_remain_where_only_minimums_were_placed() -> None:
    """A failed attempt places no more than minimums."""
    found = decision_about(["n1 3"], children(pg1={"gang": 1}, pg2={"gang": 3}), ["4x1@pg1", "3x1@pg2"])
    assert (StatusCounts(1, scheduled=1, remaining=3), Status.SUCCESS) == (found.counts("pg1"), statuses(found)["pg1"])


def test_an_unresolvable_child_is_reported_although_another_failed_first() -> None:
    """Alone, the second child would fit and the third would not: room for the second would be made in vain."""
    root = children(pg1={"gang": 3}, pg2={"gang": 1}, pg3={"gang": 1})
    found = decision_about(["n1 3"], root, ["3x1@pg1", "1@pg2", {"pod": "1@pg3", **NOWHERE}])
    assert (StatusCounts(3, scheduled=2, unresolvable=1), ["pg3"]) == (found.counts("root"), found.blockers("root"))
    assert Status.SUCCESS is statuses(found)["pg2"]


def test_a_placed_group_reports_the_children_left_out() -> None:
    """They are counted as in their last attempt, and block nothing."""
    root = {"gang": 1, "children": {"pg1": None, "pg2": {"gang": 9}, "pg3": {"gang": 2}, "pg4": {"gang": 1}}}
    found = decision_about(["n1 2"], root, ["1@pg1", "1@pg2", "2x1@pg3", {"pod": "1@pg4", **NOWHERE}])
    assert StatusCounts(1, scheduled=1, unschedulable=1, unresolvable=2) == found.counts("root")
    assert found.blockers("root") == []


def test_met_children_are_successes_without_being_tried() -> None:
    """Running members count, also in a tree that cannot be placed."""
    found = decision_about(["n1 2"], children(pg1={"gang": 9}, pg2={"gang": 1}), [*["9x1@pg1"], "1@pg2 on n1"])
    assert StatusCounts(2, scheduled=1, unschedulable=1) == found.counts("root")


# Domains.


def test_a_placed_group_names_its_domain() -> None:
    """It is the innermost that contains it: its own, or else that of its parent."""
    root = {"gang": 2, "key": "block", "children": {"pg1": {"gang": 1, "key": "rack"}, "pg2": {"gang": 1}}}
    found = decision_about(["n1 2 block=x rack=a"], root, ["1@pg1", "1@pg2"])
    block, rack = Domain("block", "x"), Domain("rack", "a")
    assert [block, rack, block] == [found.report(name).domain for name in ("root", "pg1", "pg2")]
    assert decision_about(["n1 1"], {"gang": 1}, ["1@root"]).report("root").domain is None


def test_a_preferred_domain_is_named_as_long_as_all_are_in_it() -> None:
    """Extra pods outside of it change the domain of the group and of its parent."""
    root = {"preferred": "block", "children": {"pg1": {"gang": 1, "preferred": "rack"}}}
    nodes = ["n1 1 block=x rack=a", "n2 1 block=y rack=b"]
    found = decision_about(nodes, root, ["1@pg1"])
    assert [Domain("block", "x"), Domain("rack", "a")] == [found.report(name).domain for name in ("root", "pg1")]
    found = decision_about(nodes, root, ["2x1@pg1"])
    assert [found.report(name).domain for name in ("root", "pg1")] == [None, None]


def test_candidates_have_counts_and_reasons() -> None:
    """The closest first, each with the reasons of its nodes if the options request detail."""
    nodes: list[str | Form] = ["n1 2 rack=a", "n2 3 rack=b", {"node": "n3 9 rack=b", "unschedulable": True}]
    candidates = decision_about(nodes, {"gang": 4, "key": "rack"}, ["5x1@root", "1@x on n1"]).report("root").candidates
    b = CandidateDomain(
        Domain("rack", "b"), 2, 3, 5, shortage=1, reasons=(FilterReason("node(s) were unschedulable", 1),)
    )
    assert (b, CandidateDomain(Domain("rack", "a"), 1, 1, 5, shortage=3)) == candidates


def test_the_number_of_candidates_is_limited() -> None:
    """Of many racks, as many as the options say; without detail only the closest, without reasons."""
    nodes = [f"n{number} {number} rack=r{number:02}" for number in range(1, 21)]
    root, pods = {"gang": 30, "key": "rack"}, ["30x1@root"]
    assert len(decision_about(nodes, root, pods).report("root").candidates) == 10
    (alone,) = decision_about(nodes, root, pods, candidates=1).report("root").candidates
    (only,) = decision_about(nodes, root, pods, detail=False).report("root").candidates
    assert CandidateDomain(Domain("rack", "r20"), 1, 20, 30, shortage=10) == only == alone


def test_a_label_that_no_node_has_is_the_reason() -> None:
    """A mistyped label, an empty cluster, and a rack that the tree's own block does not have."""
    root, pods = {"gang": 2, "key": "rack"}, ["2x1@root"]
    empty, found = (decision_about(nodes, root, pods).report("root") for nodes in ([], ["n1 2", "n2 2"]))
    assert (empty.nodes, empty.reasons) == (0, ())
    assert (2, (FilterReason("node(s) had no label rack", 2),)) == (found.nodes, found.reasons)
    inner = {"gang": 1, "key": "block", "children": {"pg1": {"gang": 1, "key": "rack"}}}
    found = decision_about(["n1 2 block=x", "n2 2 rack=a"], inner, ["1@pg1"]).report("pg1")
    assert (1, (FilterReason("node(s) had no label rack", 1),)) == (found.nodes, found.reasons)


def test_candidates_are_open_to_the_group() -> None:
    """The rack of the running member is full; room in another rack does not help."""
    pods = ["1@root on n1", "2x1@root"]
    found = decision_about(["n1 2 rack=a", "n2 9 rack=b"], {"gang": 3, "key": "rack"}, pods)
    assert [one.domain.value for one in found.report("root").candidates] == ["a"]
    assert found.step is not None
    assert (Domain("rack", "a"), 1) == (found.step.domain, found.step.count)


def test_domains_that_were_tried_in_vain_are_candidates_too() -> None:
    """The rack passes the bounds, but the two shapes do not fit its node together."""
    found = decision_about(["n1 3 rack=a", "n2 1 rack=b"], {"gang": 2, "key": "rack"}, ["big=2@root", "huge=3@root"])
    report = found.report("root")
    assert StatusCounts(2, scheduled=1, unschedulable=1) == report.counts
    assert [(one.domain.value, one.fits, one.shortage) for one in report.candidates] == [("a", 2, 0), ("b", 0, 2)]


def test_the_reported_domain_leads_the_candidates() -> None:
    """Both racks pass the bounds and a scores higher, but the attempt in b placed more."""
    pods = ["big=2@root", "3x1@root"]
    found = decision_about(["n1 3 rack=a", "n2 4 rack=b"], {"gang": 4, "key": "rack"}, pods)
    report = found.report("root")
    assert StatusCounts(4, scheduled=3, unschedulable=1) == report.counts
    assert [(one.domain.value, one.fits) for one in report.candidates] == [("b", 4), ("a", 4)]


def test_of_equal_attempts_the_first_is_reported() -> None:
    """One of the pods fitted in each rack."""
    found = decision_about(["n1 3 rack=a", "n2 3 rack=b"], {"gang": 2, "key": "rack"}, ["2@root", "3@root"])
    assert Domain("rack", "a") == found.report("root").candidates[0].domain


@pytest.mark.parametrize(
    ("node", "counts", "racks"),
    [
        ("n2 2 rack=b", StatusCounts(2, scheduled=1, unschedulable=1), ["b", "a"]),
        ("n2 1 rack=b", StatusCounts(2, unresolvable=2), ["a", "b"]),
    ],
)
def test_a_domain_that_evictions_help_is_reported_first(node: str, counts: StatusCounts, racks: list[str]) -> None:
    """Rack a was tried, and its pods lack required pods; b was too full to be tried, which evictions may change."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[str | Form] = [{"pod": "2x1@root", "affinity": near}, "1@x on n2"]
    report = decision_about(["n1 2 rack=a", node], {"gang": 2, "key": "rack"}, pods).report("root")
    assert (counts, racks) == (report.counts, [one.domain.value for one in report.candidates])


def test_attempts_in_two_domains_are_not_mixed() -> None:
    """Block x is tried first and holds no child; the reports are those of block y, which holds one."""
    nodes = [
        *(f"x{number} {cpu} block=x rack=x{number}" for number, cpu in enumerate((3, 3, 3, 1))),
        "y1 3 block=y rack=c",
    ]
    racks = {"pg1": {"gang": 4, "key": "rack"}, "pg2": {"gang": 6, "key": "rack"}}
    found = decision_about(
        [*nodes, "y2 7 block=y rack=d"], {"gang": 2, "key": "block", "children": racks}, ["4x1@pg1", "6x1@pg2"]
    )
    assert (StatusCounts(2, scheduled=1, unschedulable=1), ["pg2"]) == (found.counts("root"), found.blockers("root"))
    assert [one.domain.value for one in found.report("root").candidates] == ["y", "x"]
    assert (Status.SUCCESS, Domain("rack", "d")) == (statuses(found)["pg1"], found.report("pg1").domain)
    assert StatusCounts(6, scheduled=3, unschedulable=3) == found.counts("pg2")
    assert [(one.domain.value, one.fits) for one in found.report("pg2").candidates] == [("d", 3), ("c", 3)]


def test_a_later_attempt_does_not_replace_a_better_one() -> None:
    """Rack a could be helped by evictions; in b, which is tried after it, one child has no zone."""
    nodes = ["n1 3 rack=a zone=z", "n2 1 rack=b"]
    root = {"gang": 2, "key": "rack", "children": {"pg1": {"key": "zone"}, "pg2": None}}
    found = decision_about(nodes, root, ["1@pg1", {"pod": "1@pg2", "more": {"memory": 0}}, "2@x on n1"], budget=0)
    report = found.report("root")
    assert (report.counts, report.domain) == (StatusCounts(2, scheduled=1, unschedulable=1), None)
    assert (report.candidates[0].domain.value, found.blockers("root")) == ("a", ["pg2"])


def test_preferred_domains_are_not_what_failed() -> None:
    """A preference never decides, so the explanation is about the required scope alone."""
    found = decision_about(["n1 1 rack=a", "n2 1 rack=b"], {"gang": 3, "preferred": "rack"}, ["3x1@root"])
    report = found.report("root")
    assert (StatusCounts(3, scheduled=2, unschedulable=1), (), 2) == (report.counts, report.candidates, report.nodes)


def test_reasons_need_detail() -> None:
    """Counts and the next step are the same without."""
    nodes, pods = ["n1 1", "n2 1"], ["3x1@root"]
    short, long = (decision_about(nodes, {"gang": 3}, pods, detail=detail) for detail in (False, True))
    assert ((), (FilterReason(CPU, 2),)) == (short.report("root").reasons, long.report("root").reasons)
    assert (short.counts("root"), short.step) == (long.counts("root"), long.step)


# Contradictions.


def test_a_contradiction_is_reported_up_to_the_root() -> None:
    """The contradicting group is unresolvable and so are all above it; the others have their own counts."""
    root = {"children": {"mid": {"children": {"pg1": {"gang": 2, "key": "rack"}}}, "pg2": None}}
    found = decision_about(
        ["n1 2 rack=a", "n2 2 rack=b"], root, ["1@pg1 on n1", "1@pg1 on n2", "1@pg1", "1@pg2", "bad=x@pg1"]
    )
    assert [found.blockers(name) for name in ("root", "mid", "pg1", "pg2")] == [["mid"], ["pg1"], [], []]
    assert [found.counts(name).unresolvable for name in ("root", "mid", "pg1")] == [2, 1, 4]
    assert {name: one for name, one in statuses(found).items() if one is not Status.UNRESOLVABLE} == {
        "pg2": Status.WAIT
    }
    assert len(found.report("pg1").invalid) == 1
