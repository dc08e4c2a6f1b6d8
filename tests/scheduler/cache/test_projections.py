"""What is kept of objects."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import Raw
from msgspec.structs import asdict, replace

from cpg_api.core.devices import ResourceClaim, ResourceSlice
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.node import Node
from cpg_api.core.pod import MIRROR, Pod
from cpg_api.core.volumes import PersistentVolumeClaim
from cpg_api.parsing import Rejected
from cpg_api.scheduling.attempts import BlockingGroup, LastAttempt
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.workload import Workload
from cpg_client.stores import LARGE_BYTES, ObjectStore, StoredObject
from cpg_engine.cluster.pod_classes import TOO_LARGE, make_class
from cpg_engine.testing.builders import composite, node, pod_group
from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.storage_builders import claim
from cpg_engine.testing.strategies import cases, situations
from cpg_scheduler.cache.projections import KEPT, MAX_EXTENDED_RESOURCES, reduced_pod, slim_claim, slim_node, slim_pod
from cpg_scheduler.testing.cache import used_on
from cpg_scheduler.testing.stage import Stage

BYTES = 1_400_000
NEARLY_NOTHING = 6_000

Item = Callable[[int], Any]


def many(item: Item) -> list[Any]:
    """Return so many items that they have the largest size that an API server takes."""
    return [item(number) for number in range(BYTES // (len(msgspec.json.encode(item(10_000))) + 1))]


def mapping(item: Callable[[int], str], value: str = "1") -> dict[str, str]:
    """Return such a mapping."""
    return dict.fromkeys(many(item), value)


def body(*, annotations: object = None, labels: object = None, owners: object = None, **spec: object) -> dict[str, Any]:
    """Return a pod as JSON has it."""
    meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations or {}, "labels": labels or {}}
    container = {"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "x.io/gpu": "2"}}}
    spec = {"schedulerName": "cpg-scheduler", "containers": [container], **spec}
    status = {"phase": "Pending", "conditions": [{"type": "PodScheduled"}, {"type": "Ready", "message": "x" * 30_000}]}
    return {"metadata": {**meta, "ownerReferences": owners or []}, "spec": spec, "status": status}


def container(**fields: Any) -> dict[str, Any]:
    """Return the containers of a pod of which one is large."""
    return {"containers": [{"name": "main", **fields}]}


def affinity(kind: str, terms: object) -> dict[str, Any]:
    """Return an affinity with these required terms."""
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


UNREAD: Mapping[str, dict[str, Any]] = {
    "environment": body(**container(env=many(lambda n: {"name": f"E{n}", "value": "x"}))),
    "arguments": body(**container(args=many(lambda n: f"--{n}"))),
    "ports": body(**container(ports=many(lambda n: {"containerPort": n}))),
    "volumes": body(volumes=many(lambda n: {"name": f"v{n}", "emptyDir": {}})),
    "annotations": body(annotations=mapping(lambda n: f"a{n}")),
    "owners": body(owners=many(lambda n: {"kind": "Pod", "name": f"p{n}", "uid": f"{n}"})),
}
"""Pods of the largest size in fields that scheduling does not read."""
READ: Mapping[str, dict[str, Any]] = {
    "labels": body(labels=mapping(lambda n: f"k{n}")),
    "host ports": body(**container(ports=many(lambda n: {"containerPort": n, "hostPort": n}))),
    "claims": body(volumes=many(lambda n: {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}})),
    "tolerations": body(tolerations=many(lambda n: {"key": f"k{n}", "operator": "Exists"})),
    "requests": body(**container(resources={"requests": mapping(lambda n: f"e.io/{n}")})),
    "containers": body(containers=many(lambda n: {"name": f"c{n}"})),
    "init containers": body(initContainers=many(lambda n: {"name": f"c{n}"})),
    "node selector": body(nodeSelector=mapping(lambda n: f"k{n}")),
    "node names": body(
        **affinity(
            "nodeAffinity",
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": many(str)}]}]},
        )
    ),
    "pod affinity": body(**affinity("podAntiAffinity", many(lambda n: {"topologyKey": f"k{n}", "labelSelector": {}}))),
    "spreading": body(topologySpreadConstraints=many(lambda n: {"topologyKey": f"k{n}", "maxSkew": 1})),
    "gates": body(schedulingGates=many(lambda n: {"name": f"g{n}"})),
}
"""Pods of the largest size in fields that scheduling reads."""


def kept_of(plain: Mapping[str, Any], kind: type[Any] = Pod) -> Any:  # noqa: ANN401 - any kind
    """Return what the reflectors keep of an object."""
    whole = {**plain, "metadata": {"name": "p", "uid": "u", **plain["metadata"]}}
    is_namespaced = "namespace" in whole["metadata"]
    store = ObjectStore(kind, KEPT[kind].project, reduce=KEPT[kind].reduce, namespaced=is_namespaced)
    found = store.read(Raw(msgspec.json.encode(whole)))
    return found.projected if isinstance(found, StoredObject) else found


@pytest.mark.parametrize("name", UNREAD)
def test_fields_that_scheduling_does_not_read_are_dropped(name: str) -> None:
    """However large they are, the pod is scheduled like one without them."""
    kept = kept_of(UNREAD[name])
    assert len(msgspec.json.encode(kept)) < NEARLY_NOTHING
    assert TOO_LARGE not in make_class(0, kept).problems


@pytest.mark.parametrize("name", READ)
def test_pods_of_which_scheduling_reads_too_much_are_refused(name: str) -> None:
    """Each would take up to 16 MB: it gets a condition that says so, and takes its requests where it runs."""
    kept = kept_of(READ[name])
    assert len(msgspec.json.encode(kept)) < NEARLY_NOTHING
    stage = Stage(node("n1", cpu=4))
    stage.put(kept)
    stage.settle()
    reason, message = stage.status.pods["p"]
    assert (reason, stage.bound()) == ("Invalid", {})
    assert message.startswith("invalid pod: spec: the pod is too large")


def test_a_running_pod_that_is_too_large_takes_its_room() -> None:
    """It may have been bound by another scheduler; of thousands of invented resources, only the first count."""
    resources = {"cpu": "1500m", "memory": "1Gi", **mapping(lambda n: f"e.io/{n}")}
    plain = body(nodeName="n1", **container(resources={"requests": resources}))
    kept = kept_of(plain)
    stage = Stage(node("n1", cpu=4, memory="8Gi", more={"e.io/0": 5}), kept)
    assert used_on(stage)["cpu"] == 1500
    assert used_on(stage)["memory"] == 2**30
    assert used_on(stage)["e.io/0"] == 1
    assert len(kept.spec.containers[0].resources.requests) == 2 + MAX_EXTENDED_RESOURCES
    assert make_class(0, kept).requests["pods"] == 1


def test_malformed_requests_of_a_pod_that_is_too_large_are_dropped() -> None:
    """The API server refuses them, but a file may have them."""
    pod = msgspec.convert(body(**container(resources={"requests": {"cpu": "x"}})), Pod)
    assert not reduced_pod(pod).spec.containers[0].resources.requests  # type: ignore[index]


def test_a_pod_that_is_too_large_stays_a_member_of_its_group() -> None:
    """The condition of the group says what holds it."""
    plain = body(labels={POD_GROUP_LABEL: "pg", **mapping(lambda n: f"k{n}")}, annotations={MIRROR: "x"})
    kept = kept_of(plain)
    assert (membership(kept).group, kept.is_mirror) == ("pg", True)


def test_long_names_of_groups_are_cut() -> None:
    """An annotation has up to 256 KiB, but the name is malformed from 254 characters on."""
    kept = slim_pod(msgspec.convert(body(annotations={POD_GROUP_LABEL: "x" * 250_000}), Pod))
    assert len(kept.metadata.annotations[POD_GROUP_LABEL]) == 254
    assert membership(kept).problem is not None


@cases(300)
@given(situations(dependent=True))
def test_what_is_kept_of_a_pod_says_the_same_to_the_engine(situation: Situation) -> None:
    """The class of a pod is that of the whole pod."""
    for pod in situation.pods:
        whole, kept = (asdict(make_class(0, found)) for found in (pod, slim_pod(pod)))
        assert {name: kept[name] for name in kept if name != "pod"} == {
            name: whole[name] for name in whole if name != "pod"
        }


def test_what_scheduling_reads_of_a_claim_is_kept() -> None:
    """The annotations of other tools are the largest part of most claims."""
    whole = claim("x", bound_to="pv", annotations={"tool/last-applied": "{...}"}, node="n1")
    whole = replace(whole, metadata=replace(whole.metadata, finalizers=("f",), resource_version="3"))
    kept = slim_claim(whole)
    assert sorted(kept.metadata.annotations) == [
        "pv.kubernetes.io/bind-completed",
        "volume.kubernetes.io/selected-node",
    ]
    assert (kept.metadata.finalizers, kept.metadata.resource_version, kept.spec) == ((), "3", whole.spec)


def test_what_scheduling_reads_of_a_node_is_kept() -> None:
    """Its conditions say the same as its taints."""
    plain = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "5"}, "allocatable": {"cpu": "4"}}
    meta = {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    kept = slim_node(msgspec.convert({"metadata": meta, "status": plain}, Node))
    assert msgspec.to_builtins(kept) == {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "status": {"allocatable": {"cpu": "4"}},
    }


@pytest.mark.parametrize("kind", [PodDisruptionBudget, PersistentVolumeClaim])
def test_large_budgets_and_claims_count_as_absent(kind: type[Any]) -> None:
    """A selector of 1.4 MB is refused."""
    spec = {"selector": {"matchLabels": mapping(lambda n: f"k{n}")}}
    found = kept_of({"metadata": {"name": "x", "namespace": "a"}, "spec": spec}, kind)
    assert isinstance(found, Rejected)
    assert (found.name, str(LARGE_BYTES) in str(found.problems[0])) == ("a/x", True)


def test_labels_and_annotations_of_workloads_are_dropped() -> None:
    """Nothing selects them by these."""
    meta = {"name": "w", "labels": mapping(lambda n: f"k{n}"), "annotations": mapping(lambda n: f"a{n}")}
    assert len(msgspec.json.encode(kept_of({"metadata": meta, "spec": {}}, Workload))) < NEARLY_NOTHING


def test_of_the_last_attempt_of_a_group_the_finding_is_kept() -> None:
    """It is one object for all groups that have the same."""
    attempt = LastAttempt("Impossible", "2026-11-20T12:00:00Z", 7, BlockingGroup("PodGroup", "pg", 2, 1))
    whole = pod_group("pg"), composite("root")
    groups = [replace(group, status=replace(group.status, attempt=attempt)) for group in whole]
    kept = [KEPT[type(group)].project(group).status.attempt for group in groups]
    assert kept == [LastAttempt("Impossible")] * 2
    assert kept[0] is kept[1]


@pytest.mark.parametrize("keep", [slim_pod, reduced_pod])
def test_what_was_found_out_about_a_pod_is_kept(keep: Callable[[Pod], Pod]) -> None:
    """Fields that are not of the API, such as that another component has nominated it."""
    assert keep(Pod(is_nominated_by_other=True)).is_nominated_by_other


BAD_AMOUNT = {"memory": {"value": "x"}}
SLICES = (
    {"sharedCounters": [{"name": "s", "counters": BAD_AMOUNT}]},
    {"devices": [{"name": "d", "capacity": BAD_AMOUNT}]},
    {"devices": [{"name": "d", "consumesCounters": [{"counterSet": "s", "counters": BAD_AMOUNT}]}]},
    {
        "devices": [
            {"name": "d", "capacity": {"memory": {"value": "1", "requestPolicy": {"validRange": {"step": "x"}}}}}
        ]
    },
)
REQUEST = {"deviceClassName": "c", "capacity": {"requests": {"memory": "x"}}}
CLAIMS = (
    {"spec": {"devices": {"requests": [{"name": "r", "exactly": REQUEST}]}}},
    {"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [REQUEST]}]}}},
    {"status": {"allocation": {"devices": {"results": [{"consumedCapacity": {"memory": "x"}}]}}}},
)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [*((ResourceSlice, {"spec": spec}) for spec in SLICES), *((ResourceClaim, plain) for plain in CLAIMS)],
)
def test_devices_with_a_malformed_quantity_are_rejected(kind: type[Any], plain: dict[str, Any]) -> None:
    """Amounts of devices are compared without another check."""
    found = kept_of({"metadata": {"name": "x"}, **plain}, kind)
    assert isinstance(found, Rejected)
    assert "'x' is not a quantity" in str(found.problems[0])
    assert isinstance(kept_of({"metadata": {"name": "x"}}, kind), kind)
