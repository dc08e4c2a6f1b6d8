"""Which changes of the cluster activate which units."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.devices import (
    AllocationResult,
    DeviceClass,
    DeviceClassSpec,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from cpg_api.core.node import Taint
from cpg_api.core.pod import Container
from cpg_api.core.resources import ResourceRequirements
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.testing.builders import (
    composite,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    reference,
    workload,
)
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.queueing.requeue import MAX_UNITS_PER_PASS
from cpg_scheduler.testing.stage import Stage

WEB = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
NEAR = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(WEB,)))
APART = Affinity(pod_anti_affinity=NEAR.pod_affinity)


def full() -> Stage:
    """Return a full node, a pod without room, a gang without its second member, and a pod without its group."""
    stage = Stage(node("n1", cpu=2, labels={"rack": "a"}), pod("big", cpu=2, node_name="n1"))
    stage.put(pod("wants", cpu=1), pod_group("gang", gang=2), pod("g1", group="gang"), pod("orphan", group="missing"))
    stage.settle()
    stage.now += 60
    return stage


def attempts(stage: Stage) -> int:
    """Return how many units are attempted now, inadmissible ones included."""
    before = len(stage.log.calls)
    stage.run_passes()
    return sum(call.kwargs.get("event") in {"attempt", "held"} for call in stage.log.calls[before:])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda stage: stage.delete(stage.pod("big")), 1),
        (lambda stage: stage.put(node("n2")), 1),
        (lambda stage: stage.put(node("n2", cpu=0)), 0),
        (lambda stage: stage.put(node("n2", taints=(Taint(key="mine", effect="NoSchedule"),))), 0),
        (lambda stage: stage.put(node("n1", cpu=3, labels={"rack": "a"})), 1),
        (lambda stage: stage.put(pod("other", cpu=0, node_name="n1")), 0),
        (lambda stage: stage.put(pod("g2", group="gang")), 1),
        (lambda stage: stage.put(pod_group("gang", gang=1)), 1),
        (lambda stage: stage.put(pod_group("missing", gang=1)), 1),
        (lambda stage: stage.put(pod_group("other", gang=1)), 0),
    ],
    ids=[
        "pod ended",
        "new node",
        "node without room",
        "tainted node",
        "larger node",
        "pod bound",
        "new member",
        "lower minimum",
        "missing group",
        "unrelated group",
    ],
)
def test_a_change_activates_the_units_that_it_may_help(change: Callable[[Stage], None], expected: int) -> None:
    """And no others."""
    stage = full()
    change(stage)
    assert attempts(stage) == expected


GPU = DeviceClass(metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))
OTHER = DeviceClass(metadata=ObjectMeta(name="other"), spec=DeviceClassSpec(extended_resource_name="example.com/other"))
FREED = DeviceAllocation("default/x", "uid-x", AllocationResult())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda stage: stage.put(ResourceSlice(metadata=ObjectMeta(name="s"))), 2),
        (lambda stage: stage.delete(claim("taken", AllocationResult())), 2),
        (lambda stage: stage.put(claim("new", AllocationResult())), 0),
        (lambda stage: stage.put(DeviceTaintRule(metadata=ObjectMeta(name="r"))), 2),
        (lambda stage: stage.put(OTHER), 3),
        (lambda stage: stage.put(node("n2")), 2),
        (lambda stage: stage.cache.forget("uid-default-assumed"), 2),
        (lambda stage: stage.delete(stage.pod("assumed")), 2),
        (lambda stage: stage.put(pod("assumed", node_name="n1")), 0),
    ],
    ids=["slice", "free", "taken", "taint rule", "class", "node", "forgotten", "gone", "bound"],
)
def test_a_change_of_devices_activates_the_units_that_need_some(change: Callable[[Stage], None], expected: int) -> None:
    """A pod requests an extended resource of a class, by its name or by the class; a third pod one of no class."""
    stage = Stage(node("n1"), GPU, claim("taken", AllocationResult()), pod("assumed"))
    stage.cache.assume("uid-default-assumed", "n1", (FREED,))
    for resource in ("example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "example.com/other"):
        main = Container(name="main", resources=ResourceRequirements(requests={resource: 1}))
        stage.put(pod(resource.replace("/", "-"), containers=(main,)))
    stage.settle()
    stage.now += 60
    change(stage)
    assert attempts(stage) == expected


def claim(name: str, allocation: AllocationResult) -> ResourceClaim:
    """Return a claim with devices."""
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default"), status=ResourceClaimStatus(allocation))


def test_a_bound_pod_activates_a_pod_with_affinity_to_it() -> None:
    """Any change on a node may help a unit with pods that depend on other pods."""
    stage = full()
    stage.put(node("n3", labels={"rack": "a"}, cpu=1), pod("near", affinity=NEAR))
    stage.settle()
    assert "near" not in stage.bound()
    stage.now += 60
    stage.put(pod("web", node_name="n1", meta=metadata("web", app="web")))
    stage.settle()
    assert "near" in stage.bound()


def test_a_new_selector_dissolves_classes_of_pods_that_it_tells_apart() -> None:
    """A label matters once a selector names it; until then pods that differ in it are equivalent."""
    stage = Stage(node("n1", cpu=1, labels={"rack": "a"}), pod("big", cpu=1, node_name="n1"))
    stage.put(
        pod("a-web", cpu=1, meta=metadata("a-web", app="web")), pod("b-db", cpu=1, meta=metadata("b-db", app="db"))
    )
    stage.settle()
    stage.put(pod("alone", affinity=APART, node_name="n1"))
    stage.delete(stage.pod("big"))
    stage.settle(60)
    assert "b-db" in stage.bound()
    assert "a-web" not in stage.bound()


class _Uncomparable(frozenset[str]):
    """A set that fails when it is compared by value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        """Fail."""
        raise AssertionError

    __ne__ = __eq__


def test_the_labels_of_selectors_are_not_compared_one_by_one() -> None:
    """There may be tens of thousands, of pods that are long gone, and a pass compares them each time."""
    stage = full()
    stage.cache.snapshot.ledger.asked_labels = _Uncomparable({"app", "tier"})
    stage.run_passes()
    stage.put(pod_group("late", gang=1), pod("l1", group="late"))
    stage.settle()
    assert stage.bound()["l1"] == "n1"


def test_a_group_that_gets_a_parent_is_no_unit_any_more() -> None:
    """It is removed from the queue, and the tree that it is part of is attempted."""
    stage = Stage(node("n1"), pod_group("leaf", gang=1, parent="top"), pod("p", group="leaf"))
    stage.settle()
    assert stage.queue.counts()["unschedulable"] == 1
    stage.put(composite("top", gang=1))
    stage.settle()
    assert stage.bound() == {"p": "n1"}
    assert len(stage.queue) == 0


def test_a_unit_whose_pods_are_deleted_is_removed() -> None:
    """No pending pod is left in it."""
    stage = full()
    stage.delete(stage.pod("g1"), stage.pod("orphan"), stage.pod("wants"))
    stage.settle()
    assert len(stage.queue) == 0


def test_a_pod_that_joins_a_group_is_no_unit_any_more() -> None:
    """Its label was changed."""
    stage = full()
    stage.put(pod("wants", cpu=1, group="gang"))
    stage.run_passes()
    alone = UnitKey("", GroupKey("Pod", "default", "wants"))
    assert alone not in stage.queue._units
    assert stage.queue.counts()["unschedulable"] == 2


def test_pods_of_a_missing_group_wait_in_the_flavour_that_gets_it() -> None:
    """They wait in the first flavour at first; nothing of that is left when another one gets the group."""
    stage = Stage(node("n1"), pod("p", group="late"))
    stage.settle()
    assert [key.flavour for key in stage.queue._units] == ["native"]
    stage.put(pod_group("late", gang=1), flavour="crd")
    stage.settle()
    assert stage.bound() == {"p": "n1"}
    assert len(stage.queue) == 0


def test_thousands_of_changed_units_are_requeued_in_several_passes() -> None:
    """A Workload changes all of its groups at once; no unit is attempted before all of them are in the queue."""
    stage = Stage(node("n1", cpu=1))
    groups = [f"g{number:04}" for number in range(3 * MAX_UNITS_PER_PASS)]
    for name in groups:
        found = pod_group(name, gang=1)
        stage.put(
            replace(found, spec=replace(found.spec, workload_ref=reference("w", "t"))),
            pod(f"p-{name}", group=name, cpu=4),
        )
    stage.settle()
    stage.put(workload([replace(leaf_template("t"), priority=5)]))
    sizes = []
    for _ in range(3):
        before = stage.queue.counts()["active"]
        assert stage.loop.run_pass()
        sizes.append(stage.queue.counts()["active"] - before)
    assert sizes == [MAX_UNITS_PER_PASS, MAX_UNITS_PER_PASS, MAX_UNITS_PER_PASS - 1]
    stage.settle()
    assert stage.queue.counts()["active"] == 0
