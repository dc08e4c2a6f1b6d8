"""The domain in which placing a tree costs least."""

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.domains import MAX_FULLER_DOMAINS, cheapest_domain
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.testing.preemption_case import PreemptionCase, names
from cpg_engine.testing.scenario_wording import eviction_text

GROUPS = {"high": {"gang": 2, "key": "rack"}}


def racks(*pods: object, budget: int = 100) -> PreemptionCase:
    """Return three racks of two nodes, and a gang that requires one."""
    nodes = [f"{rack}{place} 1 rack={rack}" for rack in "abc" for place in (1, 2)]
    return PreemptionCase(nodes, [*pods, "2x1@high"], GROUPS, options=SearchOptions(budget=budget))


FULL = [{"pod": f"{rack}=1 on {rack}{place}", "priority": 1} for rack in "abc" for place in (1, 2)]


def test_domains_that_cannot_be_better_are_not_tried() -> None:
    """All have the same bound, so that the first is enough."""
    pods = [{**one, "pod": str(one["pod"]).replace("=", f"{number}=")} for number, one in enumerate(FULL)]
    found = racks(*pods).plan()
    assert ([eviction.unit.key.name for eviction in found.evictions], found.domains) == (["a0", "a1"], 1)


def racks_with(fillers: dict[str, str], *, victims: dict[str, list[int]] | None = None) -> PreemptionPlan:
    """Return the plan for a gang of one pod of 1 CPU in racks of a full node and one with an important pod.

    The full node of each rack has victims of these sizes, by default one of 1 CPU.
    """
    pods: list[object] = ["1@high"]
    for rack, cpu in fillers.items():
        pods.append({"pod": f"keep-{rack}={cpu} on {rack}2", "priority": 200})
        for number, size in enumerate((victims or {}).get(rack, [1000])):
            pods.append({"pod": f"{rack}{number}={size}m on {rack}1", "priority": 1})
    nodes = [f"{rack}{place} {cpu} rack={rack}" for rack in fillers for place, cpu in ((1, "1"), (2, "950m"))]
    return PreemptionCase(nodes, pods, {"high": {"gang": 1, "key": "rack"}}).plan()


def test_of_equal_domains_the_fullest_wins() -> None:
    """Whatever its name; the bound of the others shows that they cannot become fuller, so none of them is tried."""
    found = racks_with({"a": "100m", "b": "900m", "c": "500m"})
    assert ([eviction.unit.key.name for eviction in found.evictions], found.domains) == (["b0"], 1)


def test_fewer_victims_matter_more_than_fullness() -> None:
    """The fuller rack needs two victims, and the emptier one is chosen."""
    found = racks_with({"a": "100m", "b": "900m"}, victims={"b": [500, 500]})
    assert [eviction.unit.key.name for eviction in found.evictions] == ["a0"]


def test_a_domain_that_could_become_fuller_is_tried() -> None:
    """By its smallest victim rack a could become fuller, but the large one has to go; then rack b is fuller."""
    sizes = {"a": [900, 20], "b": [500, 500]}
    pods: list[object] = [
        {"pod": f"{rack}{number}={size}m on {rack}1", "priority": 1}
        for rack, there in sizes.items()
        for number, size in enumerate(there)
    ]
    case = PreemptionCase(["a1 1 rack=a", "b1 1 rack=b"], [*pods, "500m@high"], {"high": {"gang": 1, "key": "rack"}})
    found = case.plan()
    assert ([eviction.unit.key.name for eviction in found.evictions], found.domains) == (["b1"], 2)


def test_few_domains_are_tried_only_for_their_fullness() -> None:
    """Five racks could become fuller than the first, and no more of them are tried than the constant allows."""
    sizes = {rack: [900, 20 + place] for place, rack in enumerate("abcdef")}
    pods: list[object] = [
        {"pod": f"{rack}{number}={size}m on {rack}1", "priority": 1}
        for rack, there in sizes.items()
        for number, size in enumerate(there)
    ]
    nodes = [f"{rack}1 1 rack={rack}" for rack in sizes]
    found = PreemptionCase(nodes, [*pods, "500m@high"], {"high": {"gang": 1, "key": "rack"}}).plan()
    assert (len(found.evictions), found.domains, found.exhausted) == (1, 1 + MAX_FULLER_DOMAINS, False)


def test_a_domain_like_one_that_was_tried_is_passed_over() -> None:
    """Six racks are alike, and each could become fuller than the first by its bound."""
    pods: list[object] = [
        {"pod": f"{rack}{size}={size}m on {rack}1", "priority": 1} for rack in "abcdef" for size in (900, 20)
    ]
    nodes = [f"{rack}1 1 rack={rack}" for rack in "abcdef"]
    found = PreemptionCase(nodes, [*pods, "500m@high"], {"high": {"gang": 1, "key": "rack"}}).plan()
    assert ([eviction.unit.key.name for eviction in found.evictions], found.domains) == (["a900"], 1)


def test_a_domain_above_its_bound_is_not_the_best() -> None:
    """By resources rack a would cost one unit, but on each of its nodes a unit rejects a pod."""
    pods = [
        {"pod": "half=2x500m on a1", "priority": 1},
        {"pod": "also=2x500m on a2", "priority": 1},
        {"pod": "b1=1 on b1", "priority": 1},
        {"pod": "b2=1 on b2", "priority": 1},
        "c1=1 on c1",
    ]
    found = racks(*pods).plan()
    assert [eviction.unit.key.name for eviction in found.evictions] == ["b1", "b2"]


def uneven(*lines: object, budget: int = 100) -> PreemptionPlan:
    """Return the plan for two pods of 600m where one unit fills one node of each rack, and three the other."""
    pods: list[object] = [
        {"pod": f"{rack}{cpu}={cpu}m on {rack}{2 if cpu < 1000 else 1}", "priority": 1}
        for rack in "ba"
        for cpu in (1000, 400, 301, 299)
    ]
    nodes = [f"{rack}{place} 1 rack={rack}" for rack in "ab" for place in (1, 2)]
    return PreemptionCase(nodes, [*pods, *lines, "2x600m@high"], GROUPS, options=SearchOptions(budget=budget)).plan()


def test_the_budget_bounds_how_many_domains_are_compared() -> None:
    """By the bounds two units are enough in either rack; three are needed, so that the other is tried, if allowed."""
    both, one = uneven(), uneven(budget=1)
    assert (len(both.evictions), both.domains, both.exhausted) == (3, 2, False)
    assert (len(one.evictions), one.domains, one.exhausted) == (3, 1, True)
    assert [eviction.unit.key.name for eviction in one.evictions] == ["a1000", "a301", "a299"]


def test_a_domain_that_is_closed_is_passed_over() -> None:
    """There is room in rack a, but an important pod uses the host port there."""
    port = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "600m"}}, "ports": [{"hostPort": 80}]}]}
    pods = [
        {"pod": "strong= on a1", **port},
        {"pod": "low=1 on a2", "priority": 1},
        {"pod": "b1=1 on b1", "priority": 1},
        {"pod": "b2=1 on b2", "priority": 1},
        {"pod": "2x@high", **port},
    ]
    case = PreemptionCase(["a1 2 rack=a", "a2 1 rack=a", "b1 1 rack=b", "b2 1 rack=b"], pods, GROUPS)
    found = case.plan()
    assert ([eviction.unit.key.name for eviction in found.evictions], found.domains) == (["b1", "b2"], 2)


def test_without_enough_room_there_is_no_candidate() -> None:
    """The goal is larger than every domain."""
    case = racks(*({**one, "pod": str(one["pod"]).replace("=", f"{number}=")} for number, one in enumerate(FULL)))
    assert cheapest_domain(case.problem(3), case.potential_victims(), "rack") is None
    assert cheapest_domain(case.problem(2), case.potential_victims(), "nowhere") is None


def test_a_rejecting_pod_outside_the_domain_is_evicted() -> None:
    """It rejects the gang in the whole zone, so evicting the pods of one rack is not enough."""
    away = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "rival"}}, "topologyKey": "zone"}
            ]
        }
    }
    pods = [
        {"pod": "rival=1 on out", "priority": 1, "labels": {"app": "rival"}},
        {"pod": "2x1@high", "affinity": away},
    ]
    case = PreemptionCase(["a 2 rack=a zone=z", "out 1 rack=b zone=z"], pods, GROUPS)
    found = case.plan()
    assert (found.outcome, [eviction.unit.key.name for eviction in found.evictions]) == (PlanOutcome.PLANNED, ["rival"])
    assert (
        eviction_text(found.evictions[0].reason)
        == "PodGroup default/high cannot run on a while it runs on out (rack a)"
    )
    assert names(case.potential_victims()) == ["rival"]
