"""A whole cycle, from the unit to the decision; the search and its reports are tested in ``gangs/``."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cycle import could_place, decide
from cpg_engine.decisions import Decision, PlacementCounts
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, pod_unit, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.decision_case import DecisionCase
from cpg_engine.verdicts import Contradiction, Finding, Remedy, Status, StatusCounts


@pytest.fixture
def snapshot() -> Snapshot:
    """Two racks: a of 4 and b of 2 CPU."""
    found = new_snapshot()
    found.ledger.put_node(node("a", cpu=4, labels={"rack": "1"}))
    found.ledger.put_node(node("b", cpu=2, labels={"rack": "2"}))
    return found


def decided(
    snapshot: Snapshot, groups: list[Group], pods: dict[str, int], running: dict[str, str] | None = None
) -> Decision:
    """Decide about a tree with so many pending pods of 1 CPU per leaf, and members that run on these nodes."""
    (tree,) = Forest.of(groups).trees()
    members = {
        key_of(group): GroupPods(
            pending=[
                pod(f"{group.metadata.name}-{number}", cpu=1) for number in range(pods.get(group.metadata.name, 0))
            ],
            scheduled=[pod(name, node_name=home) for name, home in (running or {}).items()],
        )
        for group in groups
    }
    return decide(snapshot, tree_unit(tree, members, snapshot.ledger), SearchOptions())


def places(decision: Decision) -> dict[str, str]:
    """Return the node of each pod."""
    return {bind.uid.removeprefix("uid-default-"): bind.node for bind in decision.binds}


def test_a_pod_goes_to_the_best_node(snapshot: Snapshot) -> None:
    """It is the emptier of two, and the ledger is unchanged afterwards."""
    decision = decide(snapshot, pod_unit(pod("p", cpu=1), snapshot.ledger), SearchOptions())
    assert (places(decision), decision.explanation.finding) == ({"p": "a"}, Finding.PLACED)
    assert decision.explanation.next_step is None
    assert 0 == snapshot.ledger.used.sum() == snapshot.ledger.mark()


@pytest.mark.parametrize(("cpu", "free", "possible"), [(3, True, True), (3, False, False), (5, True, False)])
def test_the_bounds_say_whether_a_unit_could_be_placed(
    snapshot: Snapshot, cpu: int, *, free: bool, possible: bool
) -> None:
    """Without a search, with some pods ignored, and the ledger is unchanged afterwards. A decision says the same."""
    snapshot.ledger.put_pod(pod("runs", cpu=2, node_name="a"), "a")
    unit, ignored = pod_unit(pod("p", cpu=cpu), snapshot.ledger), ["uid-default-runs"] if free else []
    assert could_place(snapshot, unit, SearchOptions(), ignored=ignored) is possible
    assert decide(snapshot, unit, SearchOptions(), ignored=ignored).is_excluded is not possible
    assert snapshot.ledger.mark() == 0


def test_a_unit_that_cannot_be_admitted_or_that_contradicts_itself_could_not_be_placed() -> None:
    """Whatever room there is."""
    nodes = ["a 9 rack=1", "b 9 rack=2"]
    few = DecisionCase(nodes, {"pg": {"gang": 2}}, ["1@pg"])
    torn = DecisionCase(nodes, {"pg": {"gang": 1, "key": "rack"}}, ["1@pg on a", "1@pg on b", "1@pg"])
    for case in (few, torn):
        assert not could_place(case.snapshot, case.unit, SearchOptions())
        assert not case.decide().decision.is_excluded


def test_a_pod_that_fits_nowhere_is_explained(snapshot: Snapshot) -> None:
    """Nothing is bound, and there is one next step."""
    decision = decide(snapshot, pod_unit(pod("p", cpu=5), snapshot.ledger), SearchOptions(detail=True))
    assert (decision.binds, decision.explanation.finding) == ((), Finding.IMPOSSIBLE)
    (report,) = decision.explanation.reports
    assert [(why.text, why.nodes) for why in report.reasons] == [("Insufficient cpu", 2)]
    assert decision.explanation.next_step is not None


def test_a_gang_is_bound_whole_or_not_at_all(snapshot: Snapshot) -> None:
    """Six pods of 1 CPU fit; of seven, none is bound."""
    assert {f"g-{number}" for number in range(6)} == set(places(decided(snapshot, [pod_group("g", gang=6)], {"g": 6})))
    assert places(decided(snapshot, [pod_group("g", gang=7)], {"g": 7})) == {}


def test_a_gang_of_one_rack_stays_there(snapshot: Snapshot) -> None:
    """Three pods fit only rack 1; five fit the cluster, but no rack."""
    group = pod_group("g", gang=3, key="rack")
    assert {"a"} == set(places(decided(snapshot, [group], {"g": 3})).values())
    assert Finding.IMPOSSIBLE is decided(snapshot, [pod_group("g", gang=5, key="rack")], {"g": 5}).explanation.finding


def test_a_tree_is_placed_child_by_child(snapshot: Snapshot) -> None:
    """Both children get a rack of their own, the larger one the larger rack."""
    large = pod_group("x", gang=3, parent="root", key="rack")
    groups: list[Group] = [composite("root", gang=2), large, pod_group("y", gang=2, parent="root", key="rack")]
    found = places(decided(snapshot, groups, {"x": 3, "y": 2}))
    assert ({"a"}, {"b"}) == ({found[f"x-{n}"] for n in range(3)}, {found[f"y-{n}"] for n in range(2)})


def test_a_gang_without_enough_members_is_not_tried(snapshot: Snapshot) -> None:
    """A gang of three with two pods waits for the third."""
    assert Finding.INADMISSIBLE is decided(snapshot, [pod_group("g", gang=3)], {"g": 2}).explanation.finding


def test_members_that_contradict_their_group_are_reported(snapshot: Snapshot) -> None:
    """A gang that requires one rack and runs in two cannot be placed, and the explanation names both."""
    group = pod_group("g", gang=3, key="rack")
    decision = decided(snapshot, [group], {"g": 1}, {"r": "a", "s": "b"})
    assert Finding.CONTRADICTION is decision.explanation.finding
    assert decision.explanation.contradiction == Contradiction(key_of(group), "rack", ("1", "2"))
    assert snapshot.ledger.mark() == 0


def test_reserved_room_is_taken_only_by_ignoring_it(snapshot: Snapshot) -> None:
    """Room on node a that is reserved for others is not free, unless the cycle ignores their pods."""
    reserved = pod("n", cpu=4)
    snapshot.ledger.put_pod(reserved, "a")
    used = snapshot.ledger.used.copy()
    unit = pod_unit(pod("p", cpu=1), snapshot.ledger)
    assert places(decide(snapshot, unit, SearchOptions())) == {"p": "b"}
    assert places(decide(snapshot, unit, SearchOptions(), ignored=[reserved.metadata.uid, "unknown"])) == {"p": "a"}
    assert np.array_equal(used, snapshot.ledger.used)


def test_two_runs_agree(snapshot: Snapshot) -> None:
    """The same unit gets the same decision, in a snapshot that was built in another order, too."""
    other = new_snapshot()
    for name in ("b", "a"):
        found = snapshot.ledger.cluster.nodes[snapshot.ledger.cluster.row_of[name]]
        assert found is not None
        other.ledger.put_node(found)
    group = pod_group("g", gang=5)
    first = decided(snapshot, [group], {"g": 5})
    assert first == decided(snapshot, [group], {"g": 5}) == decided(other, [group], {"g": 5})


def test_a_cycle_leaves_every_array_as_it_was(snapshot: Snapshot) -> None:
    """Whether it places or fails, deciding changes nothing that the next cycle could see."""
    before = (snapshot.ledger.used.copy(), snapshot.ledger.scored.copy(), snapshot.ledger.allocatable.copy())
    for size in (6, 7):
        decided(snapshot, [pod_group("g", gang=size)], {"g": size})
        after = (snapshot.ledger.used, snapshot.ledger.scored, snapshot.ledger.allocatable)
        assert all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))


class Broken:
    """A filter with a fault, which shows at the second call."""

    def __init__(self) -> None:
        self.asked = 0

    def pre_filter(self, _pod_class: PodClass) -> None:
        """Raise once a pod has been placed."""
        self.asked += 1
        if self.asked > 1:
            raise ZeroDivisionError


def test_an_error_inside_leaves_no_trace() -> None:
    """A fault in the engine costs a cycle, never the ledger: what was placed and ignored is rolled back."""
    groups = {"root": {"gang": 2, "children": {"pg1": None, "pg2": None}}}
    trial = DecisionCase(["n1 4"], groups, ["1@pg1", "1@pg2", "1@pg2 on n1"])
    before = trial.trace()
    with pytest.raises(ZeroDivisionError):
        decide(
            replace(trial.snapshot, dynamic_filters=(Broken(),)),
            trial.unit,
            SearchOptions(),
            ignored=["uid-default-pg2-2"],
        )
    assert before == trial.trace()


def test_an_error_in_the_ignored_pods_leaves_no_trace() -> None:
    """The iterator of ignored pods fails after the first."""
    trial = DecisionCase(["n1 4"], {"root": None}, ["1@root", "1@root on n1"])
    before = trial.trace()

    def ignored() -> Iterator[str]:
        yield "uid-default-root-2"
        raise LookupError

    with pytest.raises(LookupError):
        decide(trial.snapshot, trial.unit, SearchOptions(), ignored=ignored())
    assert before == trial.trace()


def test_reserved_room_can_make_a_gang_fail() -> None:
    """The reasons are those of a cluster in which the nominated pods run."""
    trial = DecisionCase(["n1 2"], {"root": {"gang": 2}}, ["2x1@root"])
    reserved = pod("reserved", cpu=1)
    trial.snapshot.ledger.put_pod(reserved, "n1")
    found = trial.decide()
    assert (Finding.IMPOSSIBLE, StatusCounts(2, scheduled=1, unschedulable=1)) == (found.finding, found.counts("root"))
    assert len(trial.decide(ignored=[reserved.metadata.uid]).binds) == 2


def test_an_exhausted_budget_is_reported() -> None:
    """No pod is bound, and the next step is a larger budget."""
    nodes: list[str | dict[str, Any]] = [{"node": "a1 12 rack=a", "pods": 3}, "a2 5 rack=b"]
    racks = {"pg1": {"gang": 3, "key": "rack"}, "pg2": {"gang": 5, "key": "rack"}}
    found = DecisionCase(nodes, {"root": {"gang": 2, "children": racks}}, ["3x1@pg1", "5x1@pg2"]).decide(
        SearchOptions(budget=0)
    )
    assert (found.finding, found.binds) == (Finding.OUT_OF_BUDGET, {})
    assert found.step is not None
    assert (found.step.remedy, found.step.group.name) == (Remedy.RAISE_BUDGET, "pg2")


def test_a_contradiction_names_the_group_and_where_its_members_run() -> None:
    """The next step names the group with the members to be moved; siblings have their own counts."""
    groups = {"root": {"children": {"pg1": {"gang": 2, "key": "rack"}, "pg2": None}}}
    found = DecisionCase(["n1 2 rack=a", "n2 2 rack=b"], groups, ["1@pg1 on n1", "1@pg1 on n2", "1@pg2"]).decide()
    expected = Contradiction(GroupKey("PodGroup", "default", "pg1"), "rack", ("a", "b"))
    assert found.decision.explanation.contradiction == expected
    assert found.step is not None
    assert (found.step.remedy, found.step.group.name) == (Remedy.MOVE_MEMBERS, "pg1")
    assert [found.report(name).status for name in ("pg1", "pg2")] == [Status.UNRESOLVABLE, Status.WAIT]


def test_reports_stand_in_the_order_of_the_tree() -> None:
    """Parents come before their children; there is one report for each group."""
    groups = {"root": {"children": {"mid": {"children": {"pg1": None}}, "pg2": None}}}
    for pods in (["1@pg1", "1@pg2"], ["9@pg1", "9@pg2"], []):
        reports = DecisionCase(["n1 2"], groups, pods).decide().decision.explanation.reports
        assert [report.key.name for report in reports] == ["root", "mid", "pg1", "pg2"]


def test_binds_stand_in_the_order_of_the_tree() -> None:
    """Performing them in order completes one group before the next."""
    found = DecisionCase(["n1 4"], {"root": {"children": {"pg1": None, "pg2": None}}}, ["2x1@pg1", "2x1@pg2"]).decide()
    assert list(found.binds) == ["pg1-1", "pg1-2", "pg2-1", "pg2-2"]


def test_offered_and_tried_domains_are_counted() -> None:
    """Of three racks one has no room and is not tried, one is tried in vain, and the third is taken."""
    nodes = ["n1 1 rack=a", "n2 6 rack=b", "n5 1 rack=b", "n3 2 rack=c", "n4 7 rack=c"]
    found = DecisionCase(nodes, {"root": {"gang": 2, "key": "rack"}}, ["5@root", "2@root"]).decide()
    assert found.decision.placements == PlacementCounts(3, feasible=1, infeasible=1)
    assert DecisionCase(nodes, {"root": {"gang": 2}}, ["2x1@root"]).decide().decision.placements == PlacementCounts()
    preferring = {"root": {"gang": 2, "preferred": "rack"}}
    assert DecisionCase(nodes, preferring, ["2x1@root"]).decide().decision.placements == PlacementCounts(3, feasible=1)
