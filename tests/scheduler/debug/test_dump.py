"""Dumps: the cache as one document, and back."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.devices import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceTaintRule,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.pod import Container, Pod, PodCondition
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_client.stores import Added
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.claim_builders import claiming, own_claim
from cpg_engine.testing.device_builders import device_class, device_slice
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.debug.dump import FORMAT, UnreadableDumpError, dump, encoded, load
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import build_unit, queue_key_of

OPTIONS = SearchOptions(detail=True)


def written(stage: Stage) -> bytes:
    """Return the dump of a stage."""
    return b"".join(encoded(dump(stage.cache, OPTIONS, stage.queue.positions(), stage.now)))


def decisions(cache: ClusterCache) -> dict[str, object]:
    """Return the result of an attempt at every pending unit."""
    found: dict[str, object] = {}
    for unit in sorted({cache.unit_of(one) for one in cache.pods.values()}):
        if queue_key_of(cache, unit) is None:
            continue
        attempt = build_unit(cache, unit)
        if isinstance(attempt, Inadmissible):
            found[str(unit)] = attempt.problem
            continue
        ignored = cache.reservations.ignored_by(unit, attempt.priority)
        found[str(unit)] = decide(cache.snapshot, attempt.unit, OPTIONS, ignored=ignored)
    return found


PODS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["", "", "left", "right", "pair", "missing"]), st.integers(0, 1)),
    max_size=12,
)


@settings(max_examples=100)
@given(cpus=st.lists(st.integers(0, 5), max_size=4), pods=PODS, cycles=st.integers(0, 3), confirms=st.booleans())
def test_every_decision_is_the_same_from_the_dump(
    cpus: list[int],
    pods: list[tuple[int, str, int]],
    cycles: int,
    confirms: bool,  # noqa: FBT001 - hypothesis passes by name
) -> None:
    """At any moment: pods are pending, unschedulable, assumed or bound."""
    stage = Stage(composite("tree", gang=2, key="rack"), pod_group("left", gang=2, parent="tree"))
    stage.put(pod_group("right", gang=1, parent="tree"), pod_group("pair", gang=2))
    stage.put(*(node(f"n{place}", cpu=cpu, labels={"rack": "ab"[place % 2]}) for place, cpu in enumerate(cpus)))
    for number, (cpu, group, priority) in enumerate(pods):
        stage.put(pod(f"p{number}", cpu=cpu, group=group or None, priority=priority))
    for _ in range(cycles):
        stage.loop.run_pass()
    if confirms:
        stage.complete_binds()
    again, options, _ = load(written(stage))
    assert (decisions(again), options) == (decisions(stage.cache), OPTIONS)


def test_the_dump_of_a_loaded_dump_is_the_same_document() -> None:
    """Without the queue, which is no part of the cache."""
    stage = everything()
    again, *_ = load(written(stage))
    first, second = json.loads(written(stage)), json.loads(b"".join(encoded(dump(again, OPTIONS))))
    queue = {one["name"]: one["queue"] for one in first.pop("queue")}
    assert queue == {"assumed": "binding", "pending": "unschedulable"}
    assert second.pop("queue") == []
    for found in (first, second):
        found["pods"].sort(key=lambda one: one["metadata"]["name"])
    assert first == second
    kinds = ("nodes", "namespaces", "priorityClasses", "budgets", "storageClasses", "csiNodes", "volumes", "claims")
    assert {kind: len(first[kind]) for kind in kinds} == dict.fromkeys(kinds, 1) | {"priorityClasses": 0}
    assert ([one["uid"] for one in first["assumed"]], len(first["nominations"])) == (["uid-default-assumed"], 1)


def everything() -> Stage:
    """Return a stage with one object of every kind."""
    stage = Stage(node("n1", cpu=2), pod("assumed", cpu=1))
    stage.run_passes()
    stage.put(
        pod("pending", cpu=9),
        PodDisruptionBudget(metadata=ObjectMeta(name="budget", namespace="default")),
        StorageClass(metadata=ObjectMeta(name="fast")),
        CSINode(metadata=ObjectMeta(name="n1")),
        PersistentVolume(metadata=ObjectMeta(name="volume")),
        PersistentVolumeClaim(metadata=ObjectMeta(name="claim", namespace="default")),
        DeviceTaintRule(metadata=ObjectMeta(name="rule")),
    )
    space = Namespace(metadata=ObjectMeta(name="default", labels={"team": "a"}))
    stage.cache.on_namespace(Added("default", space))
    stage.run_passes()
    pending = stage.cache.unit_of(stage.pod("pending"))
    stage.cache.reservations.put(stage.pod("pending"), Reservation("n1", pending, 0))
    return stage


@pytest.mark.parametrize("confirms", [False, True])
def test_decisions_about_devices_are_the_same_from_the_dump(confirms: bool) -> None:  # noqa: FBT001 - a case
    """Whether the devices of a claim are assumed or allocated; its owner says that it was made for the pod."""
    stage = Stage(node("n1"), device_class(), device_slice("gpu-0", "gpu-1", node="n1"))
    for name in ("first", "second", "third"):
        stage.put(own_claim(name), claiming(name, made={"gpu": f"{name}-gpu"}))
        if name == "first":
            stage.run_passes()
    if confirms:
        stage.complete_binds()
    again = load(written(stage)).cache
    assert decisions(again) == decisions(stage.cache)
    assert [isinstance(one, Decision) and len(one.binds) for one in decisions(again).values()] == [1, 1]
    stage.put(own_claim("fourth"), claiming("fourth", made={"gpu": "fourth-gpu"}))
    stage.run_passes()
    assert [len(getattr(one, "binds", ())) for one in decisions(load(written(stage)).cache).values()] == [0, 0]


def test_a_dump_has_no_parameters_for_drivers() -> None:
    """They may be secret, and no decision depends on them."""
    parameters = OpaqueDeviceConfiguration("gpu.example.com", {"token": "secret"})
    result = DeviceAllocationResult(config=(DeviceAllocationConfiguration("FromClaim", opaque=parameters),))
    spec = replace(own_claim("p").spec.devices, config=(DeviceClaimConfiguration(opaque=parameters),))
    claim = replace(own_claim("p"), spec=ResourceClaimSpec(spec), status=ResourceClaimStatus(AllocationResult(result)))
    named = replace(device_class(), spec=DeviceClassSpec(config=(DeviceClassConfiguration(parameters),)))
    text = written(Stage(claim, named))
    assert b"p-gpu" in text
    assert b"secret" not in text


def test_a_dump_has_no_secrets() -> None:
    """No environment, arguments, annotations, owners or conditions of other components."""
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p", "annotations": {"token": "secret"}},
        "spec": {"schedulerName": "cpg-scheduler", "containers": [{"env": [{"value": "secret"}], "args": ["secret"]}]},
    }
    found = msgspec.convert(raw, Pod)
    owned = replace(found.metadata, owner_references=(OwnerReference(name="secret"),), finalizers=("secret",))
    status = replace(found.status, conditions=(PodCondition(type="Ready", message="secret"),))
    stage = Stage(replace(found, metadata=owned, status=status))
    stage.put(replace(node("n1"), metadata=ObjectMeta(name="n1", annotations={"token": "secret"})))
    text = written(stage)
    assert b"secret" not in text
    assert isinstance(load(text)[0].pods["p"].spec.containers, tuple)
    assert [field for field in Container.__struct_fields__ if field in {"env", "env_from", "args", "command"}] == []


def test_a_large_dump_is_encoded_in_pieces() -> None:
    """The loop goes on in between."""
    stage = Stage(*(pod(f"p{number}") for number in range(600)))
    assert max(map(len, encoded(dump(stage.cache, OPTIONS)))) < len(written(stage)) / 2
    assert len(load(written(stage))[0].pods) == 600


@pytest.mark.parametrize("data", [b"no", b"{}", b"[" * 5000])
def test_a_document_that_is_no_dump_is_refused(data: bytes) -> None:
    """With what is wrong."""
    with pytest.raises(UnreadableDumpError, match="not a dump"):
        load(data)


def test_a_dump_of_another_format_is_refused() -> None:
    """This version would misread it."""
    data = written(Stage()).replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1))
    with pytest.raises(UnreadableDumpError, match=f"format {FORMAT + 1}"):
        load(data)
