"""Whether a unit is placed, healthy or gone, by its objects alone."""

from msgspec.structs import replace
from tests.cli.cluster_caches import cache_of, ours

from cpg_api.core.pod import PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.names import COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED, POD_SCHEDULED
from cpg_cli.analysis.standing import health_problem, is_placed, members_left, reason_of
from cpg_engine.testing.builders import composite, pod_group


def test_a_tree_is_placed_by_the_condition_of_its_root_and_healthy_by_its_pods() -> None:
    """Placed pods that do not run yet are starting."""
    condition = Condition(type=COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED, status="True", reason="Scheduled")
    root = composite("root")
    placed = replace(root, status=replace(root.status, conditions=(condition,)))
    leaf = pod_group("leaf", gang=2, parent="root")
    starting = [ours("a", "leaf", node_name="n", phase="Running"), ours("b", "leaf", node_name="n", phase="Pending")]
    cache = cache_of(groups=[placed, leaf], pods=starting)
    unit = cache.unit_of(starting[0])
    assert (is_placed(cache, unit), reason_of(cache, unit)) == (True, "")
    assert (
        health_problem(cache, unit)
        == "Starting: 0 of 1 groups ready, 1 short: PodGroup leaf: 1 of 2 pods running, 1 short"
    )
    assert members_left(cache, unit) == "2 groups and 2 pods left"
    running = [starting[0], replace(starting[1], status=replace(starting[1].status, phase="Running"))]
    assert health_problem(cache_of(groups=[placed, leaf], pods=running), unit) is None


def test_a_tree_without_its_root_waits_for_it() -> None:
    """It is neither placed nor gone."""
    cache = cache_of(groups=[pod_group("leaf", parent="root")], pods=[waiting := ours("a", "leaf")])
    unit = cache.unit_of(waiting)
    assert (is_placed(cache, unit), members_left(cache, unit)) == (False, "1 group and 1 pod left")
    lost = cache_of(pods=[waiting])
    unit = lost.unit_of(waiting)
    assert reason_of(lost, unit) == "waiting for PodGroup default/leaf, which does not exist"
    assert health_problem(lost, unit) == "PodGroup default/leaf does not exist"
    assert (is_placed(lost, unit), members_left(lost, unit)) == (False, "0 groups and 1 pod left")


def test_a_pod_without_a_group_stands_for_itself() -> None:
    """By its node, its phase and its condition."""
    refused = PodCondition(type=POD_SCHEDULED, status="False", reason="Unschedulable", message="0/1 nodes")
    waiting = ours("p")
    waiting = replace(waiting, status=replace(waiting.status, conditions=(refused,)))
    cache = cache_of(pods=[waiting])
    unit = cache.unit_of(waiting)
    assert (is_placed(cache, unit), reason_of(cache, unit)) == (False, "Unschedulable: 0/1 nodes")
    assert (health_problem(cache, unit), members_left(cache, unit)) == ("the pod is Pending", "1 pod left")
    running = cache_of(pods=[ours("p", node_name="n", phase="Running")])
    assert (is_placed(running, unit), health_problem(running, unit)) == (True, None)
    gone = cache_of()
    assert (members_left(gone, unit), health_problem(gone, unit)) == ("", "the pod does not exist")
