"""What simulate predicts for seeded cases is what the scheduler does on the stage of its own tests."""

from collections import Counter

import pytest
from tests.cli.analysis.simulated_cases import CREATED, SUBMITTED, SimulatedCase, generate

from cpg_api.core.pod import Pod
from cpg_cli.analysis.simulated_scheduler import UNITS_IN_FLIGHT
from cpg_cli.analysis.simulation import SimulatedCluster, simulate
from cpg_cli.cluster.manifests import read_manifests
from cpg_cli.cluster.sources import existing_cluster
from cpg_scheduler.debug.dump import Dump
from cpg_scheduler.testing.stage import CRD, Stage

SEEDS = range(1, 61)


def simulated(case: SimulatedCase) -> tuple[Dump, SimulatedCluster]:
    """Return the cluster of a case before and after."""
    base = existing_cluster(case.cluster(), namespace=case.namespace)
    submitted = read_manifests(case.documents(), namespace=case.namespace, created=CREATED)
    return base, simulate(base, submitted, now=SUBMITTED)


def on_stage(base: Dump, found: SimulatedCluster) -> Stage:
    """Let the scheduler of the stage meet the same objects: those of the cluster first, then all others at once."""
    stage = Stage(*base.nodes, *base.priority_classes, flavours=[CRD], units_in_flight=UNITS_IN_FLIGHT)
    stage.put(*base.groups[CRD].pod_groups, *base.pods)
    stage.settle()
    stage.put(*(change.after for change in found.groups), *found.pods)
    for _ in range(20):
        stage.now += 10.0
        while stage.run_passes() or stage.binder.batches or not stage.executor.is_idle:
            stage.complete_binds()
            evict_in_turn(stage)
    return stage


def evict_in_turn(stage: Stage) -> None:
    """Perform what the preemption machine asks for now: the next unit of each plan, and not yet those after it."""
    executor = stage.executor
    units, executor.units = executor.units, []
    preparing, executor.preparing = executor.preparing, []
    stage.evict()
    for unit in units:
        stage.evict_unit(unit)
    later, executor.units = executor.units, []
    executor.preparing = preparing
    for job in list(preparing):
        stage.prepare(job)
    executor.units += later


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scheduler_does_what_simulate_predicts(seed: int) -> None:
    """The same pods of each group on the same nodes, and the same victims."""
    case = generate(seed)
    base, found = simulated(case)
    if case.waits:  # the stage has no controllers: pods that come later are compared on a real API server
        assert found.pods
        return
    stage = on_stage(base, found)
    placed = {pod.metadata.name: pod.spec.node_name for pod in stage.objects() if isinstance(pod, Pod)}
    after = {pod.metadata.name: pod.spec.node_name for pod in found.scheduler.cache.pods.values()}
    assert placed.keys() == after.keys()
    assert _by_group(found, placed) == _by_group(found, after)


def _by_group(found: SimulatedCluster, nodes: dict[str, str]) -> Counter[tuple[str, str]]:
    """Return the pods of each group on each node. Where several trees preempt, any of them may choose first."""
    cache = found.scheduler.cache
    if len({one.preemptor.uid for one in found.scheduler.evicted}) > 1:
        nodes = {pod: "some node" if node else "" for pod, node in nodes.items()}
    return Counter(
        (str(cache.group_of(pod) or cache.unit_of(pod).key.kind), nodes[pod.metadata.name])
        for pod in cache.pods.values()
    )


def test_the_cases_are_of_all_kinds() -> None:
    """Some fit, some do not, and some evict."""
    found = [simulated(generate(seed))[1] for seed in SEEDS]
    evicting = sum(bool(one.scheduler.evicted) for one in found)
    waiting = sum(bool(one.scheduler.pod_status) for one in found)
    assert min(evicting, waiting, len(found) - waiting) > 10
