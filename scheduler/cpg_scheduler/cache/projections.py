"""What is kept of each object that the watches bring: the fields that scheduling reads.

The API server takes objects of up to 1.5 MB, and a decoded object is up to ten times as large as its JSON. Annotations,
owners, volumes without storage and ports of containers are most of it, and scheduling does not read them. What it reads
has a few kB in every pod that people write. So where more than ``LARGE_BYTES`` is left of an object, its size is the
problem: such a pod is not scheduled; where it runs it takes its room, but other pods do not see its labels and terms.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import (
    EXTENDED_RESOURCE_CLAIM,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
    claim_quantities,
    slice_quantities,
)
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.node import Node
from cpg_api.core.pod import MIRROR, Container, Pod, PodSpec, PodStatus
from cpg_api.core.resources import ResourceRequirements
from cpg_api.core.volumes import PersistentVolumeClaim
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected
from cpg_api.problems import Problem
from cpg_api.quantity import Quantity, QuantityError, nano_value
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.expected import MAX_LENGTH
from cpg_api.scheduling.membership import membership_entries
from cpg_api.scheduling.names import DISRUPTION_TARGET, EXPECTED_PODS, POD_GROUP_LABEL, POD_SCHEDULED
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_api.schema import MAX_SUBDOMAIN
from cpg_client.stores import LARGE_BYTES
from cpg_engine.cluster.axes import BASE, CPU
from cpg_engine.cluster.pod_classes import TOO_LARGE_NAME
from cpg_engine.cluster.requests import RequestError, pod_requests
from cpg_engine.cluster.volumes import BOUND_ANNOTATION, CLASS_ANNOTATION, NODE_ANNOTATION

S = TypeVar("S", bound=Struct)
Owned = TypeVar("Owned", Workload, PodGroup)
G = TypeVar("G", PodGroup, CompositePodGroup)
DeviceObject = TypeVar("DeviceObject", ResourceSlice, DeviceClass, DeviceTaintRule)
READ_ANNOTATIONS = frozenset(
    {BOUND_ANNOTATION, CLASS_ANNOTATION, NODE_ANNOTATION, POD_GROUP_LABEL, MIRROR, EXTENDED_RESOURCE_CLAIM}
)
READ_CONDITIONS = frozenset({POD_SCHEDULED, DISRUPTION_TARGET, "PodResizePending"})
MAX_EXTENDED_RESOURCES = 64
"""Extended resources that a pod that is too large still counts with, the first ones by name."""


def read_annotations(meta: ObjectMeta) -> dict[str, str]:
    """Return the annotations that scheduling reads; those that are longer than any name are as malformed if cut."""
    found = {name: value[: MAX_SUBDOMAIN + 1] for name, value in meta.annotations.items() if name in READ_ANNOTATIONS}
    if EXPECTED_PODS in meta.annotations:
        found[EXPECTED_PODS] = meta.annotations[EXPECTED_PODS][: MAX_LENGTH + 1]
    return found


def slim_meta(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata without what scheduling does not read of any object but claims."""
    if not (meta.annotations or meta.owner_references or meta.finalizers):
        return meta
    return replace(meta, annotations=read_annotations(meta), owner_references=(), finalizers=())


def slim(found: S) -> S:
    """Return an object with slim metadata: the projection of most kinds."""
    return replace(found, metadata=slim_meta(found.metadata))  # type: ignore[attr-defined] # every kind has it


def slim_unlabelled(found: S) -> S:
    """Return an object of a kind that nothing selects by its labels."""
    return replace(found, metadata=replace(slim_meta(found.metadata), labels={}))  # type: ignore[attr-defined]


def slim_owned(found: Owned) -> Owned:
    """Return a Workload or group with its controller: pods that derive their group have an owner, which made both."""
    controllers = tuple(one for one in found.metadata.owner_references if one.controller)
    slimmed = slim_unlabelled(found)
    return replace(slimmed, metadata=replace(slimmed.metadata, owner_references=controllers))


def slim_pod_group(found: PodGroup) -> PodGroup:
    """Return a PodGroup with its controller and the finding of its last attempt."""
    return _with_finding(slim_owned(found))


def slim_composite(found: CompositePodGroup) -> CompositePodGroup:
    """Return a CompositePodGroup with the finding of its last attempt."""
    return _with_finding(slim_unlabelled(found))


def _with_finding(group: G) -> G:
    """Return a group with the finding alone of its last attempt: it says whether the next attempt has news."""
    attempt = group.status.attempt
    if attempt is None:
        return group
    return replace(group, status=replace(group.status, attempt=_attempt_with(attempt.finding)))


@lru_cache(maxsize=64)
def _attempt_with(finding: str) -> LastAttempt:
    return LastAttempt(finding)


def slim_claim(found: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """Return a claim; its owners say whether it was created for a pod."""
    meta = found.metadata
    kept = replace(meta, annotations=read_annotations(meta), labels={}, finalizers=(), creation_timestamp=None)
    return replace(found, metadata=kept)


def slim_device_claim(found: ResourceClaim) -> ResourceClaim | Rejected:
    """Return a claim for devices, with its controller, which says which pod it was made for, and its finalizers."""
    meta = found.metadata
    if problem := _quantity_problem(claim_quantities(found)):
        return Rejected(meta.key, (problem,))
    controllers = tuple(one for one in meta.owner_references if one.controller)
    kept = replace(meta, annotations=read_annotations(meta), labels={}, owner_references=controllers)
    return replace(found, metadata=kept)


def reduced_device_claim(found: ResourceClaim) -> ResourceClaim | Rejected:
    """Return of a claim that is too large the devices that it has; it is not allocated any."""
    allocation = found.status.allocation
    if allocation is None:
        return refuse_large(found)
    allocation = replace(allocation, devices=replace(allocation.devices, config=None))
    return replace(found, spec=ResourceClaimSpec(), status=replace(found.status, allocation=allocation, devices=None))


def slim_device_object(found: DeviceObject) -> DeviceObject:
    """Return a slice, device class or taint rule without its version, so that only other devices are a change."""
    slimmed = slim_unlabelled(found)
    return replace(slimmed, metadata=replace(slimmed.metadata, resource_version="", generation=0))


def slim_slice(found: ResourceSlice) -> ResourceSlice | Rejected:
    """Return a slice without its version, unless it has a malformed quantity."""
    problem = _quantity_problem(slice_quantities(found))
    return Rejected(found.metadata.key, (problem,)) if problem else slim_device_object(found)


def _quantity_problem(quantities: Iterable[Quantity]) -> Problem | None:
    """Return the problem of the first malformed quantity: no API server accepts one, so later no amount is checked."""
    try:
        for one in quantities:
            nano_value(one)
    except QuantityError as error:
        return Problem("spec", str(error))
    return None


def slim_node(node: Node) -> Node:
    """Return a node without its conditions, which repeat its taints."""
    status = replace(node.status, conditions=None, capacity=None)
    return replace(node, metadata=slim_meta(node.metadata), status=status)


def slim_pod(pod: Pod) -> Pod:
    """Return a pod without other conditions, ports that are not the node's, and volumes without storage."""
    spec, status = pod.spec, pod.status
    if status.conditions:
        kept = tuple(found for found in status.conditions if found.type in READ_CONDITIONS)
        status = replace(status, conditions=kept or None)
    if spec.volumes:
        stored = (found for found in spec.volumes if found.persistent_volume_claim or found.ephemeral or found.csi)
        spec = replace(spec, volumes=tuple(stored) or None)
    if any(found.ports for found in (*(spec.containers or ()), *(spec.init_containers or ()))):
        spec = replace(
            spec,
            containers=spec.containers and tuple(map(_with_host_ports, spec.containers)),
            init_containers=spec.init_containers and tuple(map(_with_host_ports, spec.init_containers)),
        )
    return replace(pod, metadata=slim_meta(pod.metadata), spec=spec, status=status)


def _with_host_ports(container: Container) -> Container:
    if not container.ports:
        return container
    return replace(container, ports=tuple(port for port in container.ports if port.host_port) or None)


def reduced_pod(pod: Pod) -> Pod:
    """Return of a pod that is too large what it takes of its node and what it is part of; the engine refuses it."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    whole = Container(name=TOO_LARGE_NAME, resources=ResourceRequirements(requests=_requests(pod)))
    return replace(
        pod,
        metadata=replace(meta, labels=membership_entries(meta.labels)),
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            scheduling_group=spec.scheduling_group,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
            containers=(whole,),
        ),
        status=PodStatus(
            phase=status.phase,
            conditions=status.conditions,
            nominated_node_name=status.nominated_node_name,
            start_time=status.start_time,
        ),
    )


def _requests(pod: Pod) -> dict[str, str | int | float]:
    try:
        amounts = pod_requests(pod)
    except RequestError:
        return {}
    extended = sorted(amounts.keys() - set(BASE))[:MAX_EXTENDED_RESOURCES]
    found: dict[str, str | int | float] = {name: amounts[name] for name in (*BASE[1:3], *extended) if name in amounts}
    if BASE[CPU] in amounts:
        found[BASE[CPU]] = f"{amounts[BASE[CPU]]}m"
    return found


def refuse_large(found: PodDisruptionBudget | PersistentVolumeClaim | ResourceClaim) -> Rejected:
    """Refuse an object that is too large; it counts as absent."""
    return Rejected(found.metadata.key, (Problem("spec", f"scheduling reads more than {LARGE_BYTES} bytes of it"),))


class Kept(NamedTuple):
    """What is kept of the objects of a kind, and what of those of which that is too large."""

    project: Callable[[Any], Any]
    reduce: Callable[[Any], Any] | None = None


KEPT: Mapping[Any, Kept] = {
    Pod: Kept(slim_pod, reduced_pod),
    Node: Kept(slim_node),
    PersistentVolumeClaim: Kept(slim_claim, refuse_large),
    ResourceClaim: Kept(slim_device_claim, reduced_device_claim),
    ResourceSlice: Kept(slim_slice),
    DeviceClass: Kept(slim_device_object),
    DeviceTaintRule: Kept(slim_device_object),
    PodDisruptionBudget: Kept(slim_unlabelled, refuse_large),
    PodGroup: Kept(slim_pod_group),
    CompositePodGroup: Kept(slim_composite),
    Workload: Kept(slim_owned),
}
SLIM = Kept(slim)
"""Of all other kinds, which users cannot create."""
