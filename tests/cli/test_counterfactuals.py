"""What would help, in generated clusters: each change that is shown places the tree, and checks leave no trace."""

from typing import Any, TypeVar

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import Struct

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.assessment import Assessment, assess
from cpg_cli.analysis.candidates.case import smallest
from cpg_cli.analysis.changes import apply
from cpg_cli.analysis.counterfactuals import CANDIDATES, counterfactuals
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_client.flavours import CRD
from cpg_scheduler.keys import UnitKey

RACK, BLOCK = "example.com/rack", "example.com/block"
Plain = dict[str, Any]
SPACE = "default"
T = TypeVar("T", bound=Struct)


def converted(plain: Plain, kind: type[T]) -> T:
    """Return an object."""
    found = convert_object(plain, kind)
    assert not isinstance(found, Rejected), found
    return found


def meta(name: str, **more: Any) -> Plain:
    """Return metadata."""
    return {"name": name, "namespace": SPACE, "uid": name, **more}


def pod(name: str, cpu: int, *, group: str = "", **spec: Any) -> Pod:
    """Return a pod of a number of CPUs."""
    labels = {POD_GROUP_LABEL: group} if group else {}
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    whole = {"schedulerName": SCHEDULER_NAME, "priority": 0, "containers": containers, **spec}
    return converted({"metadata": meta(name, labels=labels), "spec": whole, "status": {"phase": "Pending"}}, Pod)


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """Draw nodes in racks of two blocks, some of them tainted or cordoned."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        rack = draw(st.integers(0, 2))
        spec: Plain = {"unschedulable": draw(st.sampled_from([False, False, False, True]))}
        if draw(st.sampled_from([False, False, True])):
            spec["taints"] = [{"key": "example.com/taint", "effect": "NoSchedule"}]
        labels = {RACK: f"r{rack}", BLOCK: f"b{rack // 2}", "kind": draw(st.sampled_from(["a", "b"]))}
        status = {"allocatable": {"cpu": draw(st.integers(1, 4)), "pods": 10}}
        plain = {"metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": labels}}
        found.append(converted({**plain, "spec": spec, "status": status}, Node))
    return found


@st.composite
def clusters(draw: st.DrawFn) -> ClusterObjects:
    """Draw nodes, running pods, and a tree of one to three gangs; some pods are missing, gated or selective."""
    objects = ClusterObjects()
    objects.by_kind[Node] = draw(nodes())
    objects.by_kind[PriorityClass] = [
        converted({"metadata": {"name": "high", "uid": "high"}, "value": 50}, PriorityClass)
    ]
    for node in objects.by_kind[Node]:
        if draw(st.booleans()):
            name = node.metadata.name
            priority = draw(st.sampled_from([-5, 0, 20]))
            objects.by_kind[Pod].append(pod(f"other-{name}", 1, nodeName=name, priority=priority))
    leaves = draw(st.integers(1, 3))
    reference = {"workloadName": "train", "templateName": "workers"}
    groups: dict[type, list[Any]] = {PodGroup: [], CompositePodGroup: [], Workload: []}
    keys = st.sampled_from([None, None, RACK, BLOCK])
    parent = {"parentCompositePodGroupName": "train", "workloadRef": reference} if leaves > 1 else {}
    if leaves > 1 and draw(st.integers(0, 9)):
        spec = {"schedulingPolicy": {"gang": {"minGroupCount": leaves}}, "workloadRef": reference} | constraints(
            draw(keys)
        )
        groups[CompositePodGroup].append(converted({"metadata": meta("train"), "spec": spec}, CompositePodGroup))
    for leaf in range(leaves):
        name, minimum = f"train-{leaf}" if leaves > 1 else "train", draw(st.integers(1, 3))
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **parent, **constraints(draw(keys))}
        groups[PodGroup].append(converted({"metadata": meta(name), "spec": spec}, PodGroup))
        cpu, more = draw(st.integers(1, 4)), draw(pod_specs())
        for number in range(draw(st.sampled_from([minimum, minimum, minimum, max(minimum - 1, 1)]))):
            objects.by_kind[Pod].append(pod(f"{name}-{number}", cpu, group=name, **more))
    objects.groups = {CRD: groups}
    return objects


def constraints(key: str | None) -> Plain:
    """Return the part of a spec that requires a topology key."""
    return {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}


@st.composite
def pod_specs(draw: st.DrawFn) -> Plain:
    """Draw what the pods of a group have in common."""
    anti = {"labelSelector": {}, "topologyKey": RACK}
    return draw(
        st.sampled_from(
            [
                {},
                {},
                {"nodeSelector": {"kind": "a"}},
                {"nodeSelector": {"kind": "a", "none": "x"}},
                {"schedulingGates": [{"name": "gate"}]},
                {"tolerations": [{"key": "example.com/taint", "operator": "Exists"}]},
                {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}},
                {"preemptionPolicy": "Never"},
            ]
        )
    )


def assessed(objects: ClusterObjects) -> tuple[OfflineScheduler, Assessment]:
    """Return a scheduler over objects, and what it finds for the tree."""
    scheduler = OfflineScheduler(objects.to_dump())
    store = scheduler.cache.stores[CRD]
    unit = UnitKey(CRD, store.anchor(GroupKey(PodGroup.kind, SPACE, objects.groups[CRD][PodGroup][0].metadata.name)))
    return scheduler, assess(scheduler, unit)


@given(clusters())
def test_each_change_that_is_shown_places_the_tree(objects: ClusterObjects) -> None:
    """In a fresh cache the tree is placed after the change, or evicts what was said."""
    scheduler, found = assessed(objects)
    if found.is_placed:
        return
    shown = counterfactuals(scheduler, found, seconds=1e9)
    assert shown.unchecked == 0
    for one in shown.found:
        event(one.kind)
        fresh, before = assessed(objects)
        apply(fresh.cache, one.changes)
        fresh.cache.take_events()
        after = assess(fresh, fresh.cache.current_unit(before.unit))
        if one.evictions:
            assert after.preemption is not None, one.text
            assert after.preemption.outcome == "WouldEvict", one.text
        else:
            assert after.is_placed, one.text


@given(clusters())
def test_checks_leave_no_trace(objects: ClusterObjects) -> None:
    """After all checks the same scheduler finds what it found before."""
    scheduler, found = assessed(objects)
    if not found.is_placed:
        counterfactuals(scheduler, found, seconds=1e9)
        scheduler.cache.take_events()
        again = assess(scheduler, found.unit)
        assert again.decision == found.decision
        assert again.preemption == found.preemption


def test_checks_end_in_time() -> None:
    """Once the time is up, what was not checked is counted and not shown."""
    objects = ClusterObjects()
    objects.by_kind[Node] = []
    group = {"metadata": meta("train"), "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    objects.groups = {CRD: {PodGroup: [converted(group, PodGroup)], CompositePodGroup: [], Workload: []}}
    objects.by_kind[Pod] = [pod("train-0", 1, group="train")]
    scheduler, found = assessed(objects)
    times = iter([0.0, 100.0])
    shown = counterfactuals(scheduler, found, seconds=2.0, clock=lambda: next(times))
    assert (shown.found, 0 < shown.unchecked < len(CANDIDATES)) == ((), True)


@pytest.mark.parametrize("least", range(1, 12))
def test_the_smallest_number_is_found(least: int) -> None:
    """By halving; None where not even the last number is enough."""
    assert smallest(range(1, 11), lambda number: number >= least) == (least if least <= 10 else None)
