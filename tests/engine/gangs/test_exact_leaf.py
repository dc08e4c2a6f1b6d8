"""The exact search for a few pods of one group."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_engine.gangs.exact_leaf import MAX_PODS, MAX_STEPS, ExactLeafSearch
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.proof import is_exhaustive
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.decision_case import DecisionCase
from cpg_engine.verdicts import Finding, Limitation, StatusCounts

WEB, WEB_POD = {"matchLabels": {"app": "web"}}, {"labels": {"app": "web"}}
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def case(nodes: list[int], pods: list[int], gang: int, key: str | None = None) -> DecisionCase:
    """Return a gang of pods of these sizes on nodes of these sizes, two to a rack."""
    forms = [f"n{number} {cpu} rack=r{number // 2}" for number, cpu in enumerate(nodes)]
    return DecisionCase(forms, {"g": {"gang": gang, "key": key}}, [f"p{at}={cpu}@g" for at, cpu in enumerate(pods)])


def fits(nodes: list[int], pods: list[int], gang: int) -> bool:
    """Return whether so many of the pods fit, by trying everything."""
    for homes in product(range(-1, len(nodes)), repeat=len(pods)):
        used = [sum(cpu for cpu, home in zip(pods, homes, strict=True) if home == node) for node in range(len(nodes))]
        placed = sum(home >= 0 for home in homes)
        if placed >= gang and all(have <= cpu for have, cpu in zip(used, nodes, strict=True)):
            return True
    return False


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), SIZES, st.data())
@settings(max_examples=200)
def test_a_small_gang_is_placed_exactly_if_it_fits(nodes: list[int], pods: list[int], data: st.DataObject) -> None:
    """Otherwise that is proven."""
    gang = data.draw(st.integers(1, len(pods)))
    found = case(nodes, pods, gang).decide()
    assert found.finding is (Finding.PLACED if fits(nodes, pods, gang) else Finding.IMPOSSIBLE)


@given(st.lists(st.integers(1, 7), min_size=4, max_size=4), SIZES)
@settings(max_examples=100)
def test_a_small_gang_in_a_domain_is_placed_exactly_if_it_fits(nodes: list[int], pods: list[int]) -> None:
    """Every domain is tried."""
    found = case(nodes, pods, len(pods), "rack").decide()
    in_a_rack = fits(nodes[:2], pods, len(pods)) or fits(nodes[2:], pods, len(pods))
    assert found.finding is (Finding.PLACED if in_a_rack else Finding.IMPOSSIBLE)


def test_alike_nodes_cost_one_step() -> None:
    """With a hundred nodes of one kind, the search is as short as with few."""
    steps = []
    for number in (3, 100):
        trial = case([6] * number, [3, 3, 2, 2, 2], 5)
        search = ExactLeafSearch(trial.snapshot, trial.unit.nodes[0].pending)
        assert search.place(trial.snapshot.topology.whole().rows, 5) is not None
        steps.append(search.steps)
    assert steps[0] == steps[1] < 10


def test_the_search_gives_up_after_some_steps() -> None:
    """That proves nothing. The ledger is unchanged."""
    nodes = [5 + number % 7 for number in range(MAX_STEPS)]
    trial = case(nodes, [4, 3, 4, 3, 4, 3, 12, 12], 8)
    search = ExactLeafSearch(trial.snapshot, trial.unit.nodes[0].pending)
    before = trial.trace()
    assert search.place(trial.snapshot.topology.whole().rows, 8) is None
    assert (search.is_exhausted, search.steps, trial.trace()) == (True, MAX_STEPS, before)


def test_a_gang_of_more_pods_is_left_to_the_greedy_search() -> None:
    """As are the searches of a preemption plan, for which it is switched off."""
    nodes, pods = [6, 6], [3, 3, 2, 2, 2]
    greedy = case(nodes, pods, 5).decide(SearchOptions(exact=False))
    assert (greedy.finding, greedy.decision.explanation.limitations) == (Finding.NOT_FOUND, (Limitation.SHAPES,))
    assert case(nodes, pods, 5).decide().finding is Finding.PLACED
    assert case([6] * 4, [*pods, *pods], 2 * 5).decide().finding is Finding.NOT_FOUND
    assert MAX_PODS < 2 * 5


def test_pods_beyond_an_exact_placement_are_reported() -> None:
    """The minimum is placed, and one pod is too large for any node."""
    found = case([6, 6], [3, 3, 2, 2, 2, 9], 5).decide()
    assert (len(found.binds), found.counts("g")) == (5, StatusCounts(5, scheduled=5, unresolvable=1))


def test_pods_with_a_host_port_prove_impossibility() -> None:
    """Each takes a node, whichever it is; that holds for gangs of any size, and for pods that reject their own kind."""
    nodes = [f"n{number} 9 rack=r{number}" for number in range(10)]
    trial = DecisionCase(nodes, {"g": {"gang": 11}}, [{"pod": "11x@g", **port(80)}])
    assert trial.decide().finding is Finding.IMPOSSIBLE
    term = {"labelSelector": {}, "topologyKey": "rack"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    trial = DecisionCase(nodes, {"g": {"gang": 11}}, [{"pod": "11x1@g", "affinity": apart}])
    assert trial.decide().finding is Finding.IMPOSSIBLE


def test_it_proves_nothing_where_the_choice_of_a_node_matters() -> None:
    """Pods must spread, exclude domains of two labels, require other pods, have volumes, or share a domain."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    nodes = [f"n{number} 9 rack=r{number} zone=z{number % 2}" for number in range(11)]
    pods = {"pod": "93x1@g", "topologySpreadConstraints": [spread], **WEB_POD}
    assert DecisionCase(nodes, {"g": {"gang": 93}}, [pods]).decide().finding is Finding.NOT_FOUND
    terms: list[dict[str, Any]] = [{"labelSelector": {}, "topologyKey": key} for key in ("rack", "zone")]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    for number, affinity in ((2, {"podAntiAffinity": anti}), (1, {"podAffinity": anti})):
        assert not proves(nodes, {"pod": f"{number}x1@g", "affinity": affinity})
    assert not proves(nodes, {"pod": "1@g", "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}], **port(80)})
    assert proves(nodes, {"pod": "1@g", **port(80)})
    assert not proves(nodes, {"pod": "1@g", **port(80)}, key="rack")


def port(number: int) -> dict[str, Any]:
    """Return the part of a pod's spec that takes a port of its node."""
    return {"containers": [{"name": "main", "ports": [{"hostPort": number, "containerPort": number}]}]}


def proves(nodes: list[str], pod: dict[str, Any], **group: Any) -> bool:
    """Return whether the greedy search of a gang of such pods is exhaustive."""
    trial = DecisionCase(nodes, {"g": {"gang": 1, **group}}, [pod])
    return is_exhaustive(trial.snapshot, Needs(trial.unit))
