"""Pods of one unit that require each other: the order of placement, and what evictions could do for them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_engine.gangs.affinity_order import AffinityOrder, Requirements, placement_order, satisfaction_rounds
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import PlanOutcome
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.testing.filter_model import PlacedPods, affinity_rejection
from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import cases, labelled
from cpg_engine.verdicts import Finding, Status, StatusCounts

Form = Mapping[str, Any]
ZONES = ["a1 4 zone=a", "a2 4 zone=a", "b1 4 zone=b"]


def one(form: str, app: str = "", near: str = "", **more: Any) -> Form:
    """Return a pod of an app that may require another app near it, or one of several."""
    found: dict[str, Any] = {"pod": form, **more, "labels": {"app": app} if app else {}}
    if near:
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": near.split()}]}
        terms = [{"labelSelector": selector, "topologyKey": "zone"}]
        found["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return found


def leaf(*members: Form) -> dict[str, Any]:
    """Return the arguments of a case with one gang that needs all of some pods."""
    return {"nodes": ZONES, "groups": {"g": {"gang": len(members)}}, "pods": members}


def affinity_order(trial: DecisionCase) -> AffinityOrder:
    """Return the affinity order of the unit of a case."""
    return AffinityOrder(Needs(trial.unit), trial.snapshot.ledger)


# In a leaf.


@pytest.mark.parametrize("name", ["a-near", "z-near"])
def test_required_pods_are_placed_first(name: str) -> None:
    """Both get a place in one zone, whatever their names."""
    found = DecisionCase(**leaf(one(f"{name}=1@g", near="web"), one("web=1@g", "web"))).decide()
    assert found.binds.keys() == {name, "web"}
    assert len({home[0] for home in found.binds.values()}) == 1


def test_a_chain_of_requirements_is_placed_from_its_end() -> None:
    """Each pod requires the next, the last requires none."""
    chain = [one("a=1@g", near="b"), one("b=1@g", "b", "c"), one("c=1@g", "c")]
    assert list(DecisionCase(**leaf(*chain)).decide().binds) == ["c", "b", "a"]


def test_others_keep_their_order() -> None:
    """More important pods still come first, except for those that they require."""
    members = [one("a=1@g", near="web"), one("b=1@g"), one("c=1@g", "web"), one("d=1@g"), one("e=1@g", near="web")]
    assert list(DecisionCase(**leaf(*members)).decide().binds) == ["b", "c", "a", "d", "e"]


def test_a_pod_that_satisfies_its_own_affinity_keeps_its_place() -> None:
    """The first of a kind need not be near any pod."""
    members = [one("a=1@g", "web", "web"), one("b=1@g", "web")]
    assert list(DecisionCase(**leaf(*members)).decide().binds) == ["a", "b"]


def test_beyond_the_minimum_the_order_is_the_same() -> None:
    """One pod is enough for the gang, and the second pass places the pods that required it."""
    trial = DecisionCase(ZONES, {"g": {"gang": 1}}, [one("a=1@g", near="b"), one("b=1@g", "b", "c"), one("c=1@g", "c")])
    assert list(trial.decide().binds) == ["c", "b", "a"]


def test_without_requirements_the_order_is_unchanged() -> None:
    """The pods are those of the unit, as one object."""
    trial = DecisionCase(**leaf(one("a=1@g", "web"), one("b=1@g")))
    found = affinity_order(trial)
    assert found.pods(0) is trial.unit.nodes[0].pending
    assert found.dependent_children(0) == set()
    assert not found.companions(trial.unit.nodes[0].pending[0].pod_class)


# Cycles.


def test_a_cycle_of_requirements_is_not_placed() -> None:
    """Each requires the other, so none can be the first; no eviction helps, and the report says so."""
    found = DecisionCase(**leaf(one("a=1@g", "a", "b"), one("b=1@g", "b", "a"))).decide(SearchOptions(detail=True))
    assert (found.finding, found.binds) == (Finding.IMPOSSIBLE, {})
    assert found.counts("g") == StatusCounts(2, unresolvable=2)
    assert [reason.text for reason in found.report("g").reasons] == ["node(s) didn't match pod affinity rules"]


@pytest.mark.parametrize("helper", [one("x=1 on a1", "a"), one("z=1@g", "a")])
def test_a_cycle_is_broken_from_outside(helper: Form) -> None:
    """The pod that finds its requirement outside of the cycle comes first, and the other after it."""
    circle = [one("a=1@g", "a", "b"), one("b=1@g", "b", "a")]
    trial = DecisionCase(ZONES, {"g": {"gang": 2}}, [*circle, helper])
    assert [name for name in trial.decide().binds if name in "ab"] == ["b", "a"]


# In a tree.


NEAR_FIRST = {"near": {"gang": 2}, "web": {"gang": 1}}


def of_children(nodes: Sequence[str], children: Form, *pods: str | Form, budget: int = 100) -> NamedDecision:
    """Return the decision about a tree that needs all of its children."""
    groups = {"root": {"gang": len(children), "children": children}}
    return DecisionCase(nodes, groups, pods).decide(SearchOptions(budget=budget))


def test_the_required_group_comes_first() -> None:
    """Siblings are ordered by requirement, even where one requires a domain and would come first for that."""
    pods = [one("2x1@near", near="web"), one("1@web", "web")]
    assert len(of_children(ZONES, NEAR_FIRST, *pods).binds) == 3
    assert len(of_children(ZONES, {**NEAR_FIRST, "near": {"gang": 2, "key": "zone"}}, *pods).binds) == 3


def test_requirements_of_inner_groups_order_their_ancestors() -> None:
    """What pods require at the bottom orders the children at the top."""
    children = {"left": {"gang": 1, "children": {"near": {"gang": 1}}}, "right": {"gang": 1, "children": {"web": None}}}
    assert len(of_children(ZONES, children, one("1@near", near="web"), one("1@web", "web")).binds) == 2


def test_a_group_with_the_required_pods_waits_for_no_sibling() -> None:
    """Of two replicas, each with a leader, the older one still comes first."""
    pods = [one("1@a", near="web"), one("1@a", "web"), one("1@b", "web")]
    trial = DecisionCase(ZONES, {"root": {"gang": 2, "children": {"a": {"gang": 2}, "b": {"gang": 1}}}}, pods)
    assert affinity_order(trial).dependent_children(0) == set()
    assert [name[0] for name in trial.decide().binds] == ["a", "a", "b"]


def test_a_required_group_is_moved_to_another_domain() -> None:
    """The best rack for the leader has no room for its workers, so the search backtracks."""
    nodes = ["n1 1 zone=a rack=r1", "n2 1 zone=b rack=r2", "n3 1 zone=b rack=r3", "n4 1 zone=b rack=r3"]
    children = {"near": {"gang": 2}, "web": {"gang": 1, "key": "rack"}}
    pods = [one("2x1@near", near="web"), one("1@web", "web")]
    found = of_children(nodes, children, *pods)
    assert (found.finding, found.binds["web-1"]) == (Finding.PLACED, "n2")
    assert of_children(nodes, children, *pods, budget=0).finding is Finding.OUT_OF_BUDGET


def test_a_dependent_sibling_is_no_blocker() -> None:
    """The leader has no room, so its workers were not tried; a sibling without requirements is placed."""
    children = {"other": {"gang": 1}, **NEAR_FIRST}
    pods = [one("1@other"), one("2x1@near", near="web"), one("9@web", "web")]
    found = of_children(["n1 9 zone=a"], children, *pods)
    assert found.counts("root") == StatusCounts(3, scheduled=1, remaining=1, unschedulable=1)
    assert found.blockers("root") == ["web"]


def test_groups_that_require_each_other_crosswise_are_not_found() -> None:
    """One group is placed as a whole before the next, so what each requires of the other comes too late."""
    pods = [one("1@a", "a", "b"), one("1@a", "a2"), one("1@b", "b", "a2")]
    assert of_children(ZONES, {"a": {"gang": 2}, "b": {"gang": 1}}, *pods).finding is Finding.NOT_FOUND


# What evictions could do.


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ([one("a=2@g", near="web"), one("web=2@g", "web")], StatusCounts(2, unschedulable=2)),
        ([one("a=2@g", near="web"), one("b=2@g")], StatusCounts(2, unschedulable=1, unresolvable=1)),
        ([one("a=2@g", near="web"), one("web=9@g", "web")], StatusCounts(2, unschedulable=1, unresolvable=1)),
        ([one("a=2@g", near="b"), one("b=2@g", "b", "c")], StatusCounts(2, unresolvable=2)),
        ([one("a=2@g", "a", "b"), one("b=2@g", "b", "a")], StatusCounts(2, unresolvable=2)),
    ],
)
def test_a_pod_with_companions_is_resolvable(members: Sequence[Form], counts: StatusCounts) -> None:
    """On full nodes, evictions may help where required pods of the unit may still be placed, else they do not."""
    full = [one(f"old{number}=2 on n{number}") for number in "12"]
    found = DecisionCase(["n1 2 zone=a", "n2 2 zone=a"], {"g": {"gang": 2}}, [*members, *full]).decide()
    assert found.counts("g") == counts


def test_companions_help_in_domains_alone() -> None:
    """A node without the label is in no zone."""
    members = [one("a=1@g", near="web"), one("web=1@g", "web")]
    found = DecisionCase(["n1 1"], {"g": {"gang": 2}}, [*members, one("old=1 on n1")]).decide()
    assert found.counts("g") == StatusCounts(2, unschedulable=1, unresolvable=1)


@pytest.mark.parametrize("groups", [{"high": {"gang": 2}}, {"high": {"gang": 2, "children": {"near": {}, "web": {}}}}])
def test_evictions_make_room_for_required_and_requiring_pods(groups: Form) -> None:
    """Pods of lower priority are evicted for both, and an ordinary cycle then binds them."""
    leaves = ("near", "web") if "children" in groups["high"] else ("high", "high")
    pods = [one(f"a=2@{leaves[0]}", near="web"), one(f"web=2@{leaves[1]}", "web")]
    full = [one(f"old{number}=2 on n{number}", priority=0) for number in "12"]
    case = PreemptionCase(["n1 2 zone=a", "n2 2 zone=a"], [*pods, *full], groups)
    assert (case.plan().outcome, len(case.plan().nominations)) == (PlanOutcome.PLANNED, 2)
    case.simulator.settle()
    assert {name for name, found in case.simulator.pods.items() if found.spec.node_name} == {"a", "web"}


# Against the slow model.


APPS = st.sampled_from(["", "x", "y", "z"])
NEEDED = st.sampled_from(["", "", "x", "y", "z", "x y", "y z"])
PEOPLE = st.lists(st.tuples(APPS, NEEDED), min_size=1, max_size=6)
RUNNING = st.sampled_from(["", "", "x", "y"])


def app_with_affinity(name: str, app: str, near: str, **more: Any) -> Pod:
    """Return a pod of an app that requires others near it."""
    found = labelled(pod(name, cpu=1, **more), {"app": app} if app else {})
    if not near:
        return found
    selector = LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", tuple(near.split())),))
    term = PodAffinityTerm(label_selector=selector, topology_key="zone")
    affinity = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    return replace(found, spec=replace(found.spec, affinity=affinity))


def simulated(nodes: Iterable[Node], groups: Iterable[Any], pods: Iterable[Pod]) -> ClusterSimulator:
    """Return a simulator with all of that."""
    simulator = ClusterSimulator(SearchOptions())
    for place in nodes:
        simulator.put_node(place)
    for group in groups:
        simulator.put_group(group)
    for found in pods:
        simulator.put_pod(found)
    return simulator


def placeable(pods: Iterable[Pod], place: Node) -> set[str]:
    """Return the pods that can be placed on a node at all, one after the other, if all are that can."""
    placed = PlacedPods(nodes=(place,), pods=(), namespaces={})
    waiting = sorted(pods, key=lambda found: not found.spec.node_name)
    while True:
        new = next((one for one in waiting if one.spec.node_name or not affinity_rejection(placed, one, place)), None)
        if new is None:
            return {found.metadata.name for found, _ in placed.pods}
        waiting.remove(new)
        placed = replace(placed, pods=(*placed.pods, (new, place)))


@given(PEOPLE, RUNNING, st.integers(1, 3))
@cases(300)
def test_in_one_domain_every_placeable_pod_is_placed(
    affinities: list[tuple[str, str]], there: str, leaves: int
) -> None:
    """With room for all, only pods are left that no order would help: in a gang at once, in a tree in the end."""
    place = node("n", cpu=99, labels={"zone": "a"})
    members = [app_with_affinity(f"p{n}", *affinity, group=f"g{n % leaves}") for n, affinity in enumerate(affinities)]
    pods = [*members, *([app_with_affinity("there", there, "", node_name="n")] if there else [])]
    names = [f"g{number}" for number in range(leaves)]
    parent = "root" if leaves > 1 else None
    groups = [*([composite("root")] if parent else []), *(pod_group(name, parent=parent) for name in names)]
    simulator = simulated([place], groups, pods)
    simulator.settle(once=leaves == 1)
    assert {name for name, found in simulator.pods.items() if found.spec.node_name} == placeable(pods, place)


@given(PEOPLE, RUNNING)
@cases(200)
def test_unresolvable_gangs_do_not_fit_without_victims(affinities: list[tuple[str, str]], there: str) -> None:
    """A gang for which no eviction helps is not placed after all potential victims have been evicted either."""
    members = [app_with_affinity(f"p{n}", *affinity, group="g", priority=9) for n, affinity in enumerate(affinities)]
    full = [pod(f"old{n}", cpu=9, node_name=f"n{n}", priority=1) for n in range(2)]
    needed = [app_with_affinity("there", there, "", node_name="n2", priority=9)] if there else []
    nodes = [node(f"n{n}", cpu=9, labels={"zone": "ab"[n % 2]}) for n in range(3)]
    groups = [pod_group("g", gang=len(members), priority=9)]
    simulator = simulated(nodes, groups, [*members, *full, *needed])
    (root,) = simulator.roots()
    report = simulator.decide(root).explanation.reports[0]
    assume(report.status is not Status.SUCCESS)
    empty = simulated(nodes, groups, [*members, *needed])
    placed = empty.decide(empty.roots()[0]).binds
    if report.status is Status.UNRESOLVABLE:
        assert not placed
    assert bool(placed) == (simulator.plan(root).outcome is PlanOutcome.PLANNED)


NUMBERS = st.integers(0, 4)
WANTS = st.dictionaries(NUMBERS, st.lists(st.frozensets(NUMBERS, max_size=3), max_size=2), max_size=5)
ITEMS = st.lists(NUMBERS, max_size=8)


def ordered(items: str, wants: dict[str, list[str]]) -> str:
    """Return items, which are letters, in their order of placement."""
    numbers = {ord(one): [frozenset(map(ord, choice)) for choice in choices] for one, choices in wants.items()}
    return "".join(items[place] for place in placement_order([ord(item) for item in items], numbers))


@pytest.mark.parametrize(
    ("items", "wants", "expected"),
    [
        ("cab", {}, "cab"),
        ("nw", {"n": ["w"]}, "wn"),
        ("wn", {"n": ["w"]}, "wn"),
        ("nawbz", {"n": ["w"]}, "awnbz"),  # no further back than it has to be
        ("nwnaw", {"n": ["w"]}, "wawnn"),  # behind the last of the pods that satisfy it
        ("cba", {"c": ["b"], "b": ["a"]}, "abc"),
        ("cxby", {"c": ["xy"]}, "xbyc"),  # either would do, so it waits for both
        ("cxby", {"c": ["x", "y"]}, "xbyc"),
        ("dcab", {"c": ["a"], "d": ["b", "c"]}, "acbd"),
        ("nw", {"n": ["?"]}, "nw"),  # a required pod outside of the items is not waited for
        ("ban", {"a": ["b"], "b": ["a"]}, "ban"),  # a cycle
        ("cban", {"a": ["b"], "b": ["a"], "c": ["a"]}, "bacn"),
        ("acb", {"a": ["b"], "b": ["a?"]}, "cba"),  # a cycle that is broken from outside
        ("abc", {"a": ["b"], "b": ["ac"]}, "cba"),
    ],
)
def test_required_items_come_first(items: str, wants: dict[str, list[str]], expected: str) -> None:
    """An item that requires others comes after them, and all others keep their order."""
    assert ordered(items, wants) == expected


def test_unsatisfiable_items_are_in_no_round() -> None:
    """Rounds count from one; an item without requirements precedes the first, and no cycle is broken from within."""
    wants: Requirements = {1: [{0}], 2: [{1, 5}, {0}], 3: [set()], 4: [{5}], 5: [{4}]}
    assert satisfaction_rounds(wants) == {1: 1, 2: 2}


@given(ITEMS, WANTS)
@cases(300)
def test_satisfiable_items_find_what_they_require(items: list[int], wants: Requirements) -> None:
    """Each item that can be placed has before it what it requires; a requirement that is no item is satisfied."""
    items = [*items, *(one for one in wants if one not in items)]
    places = placement_order(items, wants)
    assert sorted(places) == list(range(len(items)))
    order = [items[place] for place in places]
    for item in satisfaction_rounds(wants):
        before = order[: order.index(item)]
        assert all(choice - set(items) or choice & set(before) for choice in wants[item])


@given(ITEMS, WANTS)
@cases(200)
def test_a_valid_order_is_kept(items: list[int], wants: Requirements) -> None:
    """Equal items keep their order, and so does an order that is right already."""
    places = placement_order(items, wants)
    for item in set(items):
        assert sorted(found for found in places if items[found] == item) == [f for f in places if items[f] == item]
    order = [items[place] for place in places]
    assert placement_order(order, wants) == list(range(len(order)))


@given(WANTS)
@cases(100)
def test_an_order_is_found_if_there_is_one(wants: Requirements) -> None:
    """Compared with all orders: one in which every item has what it requires before it."""
    everybody = sorted({*wants, *(other for choices in wants.values() for choice in choices for other in choice)})

    def holds(order: list[int]) -> bool:
        return all(choice & set(order[: order.index(one)]) for one, choices in wants.items() for choice in choices)

    found = [everybody[place] for place in placement_order(everybody, wants)]
    assert holds(found) == any(holds(list(order)) for order in permutations(everybody))
