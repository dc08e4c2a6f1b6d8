"""``/debug/dump``: the cache as one JSON document, and back, so that any decision can be made again elsewhere.

The document has what our structs decode, and of that only what a decision can depend on. Annotations that scheduling
does not read, owners and most conditions are left out. Arguments and environment of containers are not even decoded.

All objects are frozen, so a dump is consistent although it is encoded in pieces while the event loop goes on.
"""

import gzip
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.probe_server import ProbeResponse
from cpg_client.stores import Added
from cpg_engine.decisions import Bind
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.projections import read_annotations
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.queueing.scheduling_queue import QueuePosition, SchedulingQueue

S = TypeVar("S", bound=Struct)
FORMAT = 1
"""Increased whenever an older version would misread a dump."""
GZIP = b"\x1f\x8b"
"""Begins a compressed file."""

OBJECTS_PER_PIECE = 250
"""Objects that are encoded between two turns of the event loop: some milliseconds."""


class UnreadableDumpError(ValueError):
    """A document is not a dump, or not one that this version can read."""


class GroupsOfFlavour(Struct, frozen=True, rename="camel"):
    """The groups of one flavour."""

    pod_groups: Sequence[PodGroup] = ()
    composite_pod_groups: Sequence[CompositePodGroup] = ()
    workloads: Sequence[Workload] = ()


class DumpedUnit(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The position of a unit in the scheduling queue."""

    flavour: str
    kind: str
    namespace: str
    name: str
    queue: str
    importance: int
    created: str
    attempts: int = 0
    seconds_left: float | None = None


class DumpedReservation(Struct, frozen=True, rename="camel"):
    """The room reserved for a nominated pod, by UID."""

    uid: str
    nominated: Reservation
    pod: Pod | None = None
    """A pod that does not exist yet."""


class Dump(Struct, frozen=True, rename="camel"):
    """All that a decision depends on, and the queue; the fields are in the order in which a cache takes them."""

    format: int
    scheduler_name: str
    options: SearchOptions
    nodes: Sequence[Node]
    namespaces: Sequence[Namespace]
    priority_classes: Sequence[PriorityClass]
    budgets: Sequence[PodDisruptionBudget]
    storage_classes: Sequence[StorageClass]
    csi_nodes: Sequence[CSINode]
    volumes: Sequence[PersistentVolume]
    claims: Sequence[PersistentVolumeClaim]
    groups: Mapping[str, GroupsOfFlavour]
    pods: Sequence[Pod]
    assumed: Sequence[Bind]
    nominations: Sequence[DumpedReservation]
    queue: Sequence[DumpedUnit]
    device_classes: Sequence[DeviceClass] = ()
    slices: Sequence[ResourceSlice] = ()
    taint_rules: Sequence[DeviceTaintRule] = ()
    device_claims: Sequence[ResourceClaim] = ()
    scope: tuple[str, ...] = ()
    """The namespaces in which the scheduler may act; none for all."""
    taken: float = 0.0
    """The time of day of the dump."""


class LoadedDump(NamedTuple):
    """A cache that decides as the dumped one did, with its options and the time of the dump."""

    cache: ClusterCache
    options: SearchOptions
    taken: float


class Dumper:
    """Serves dumps."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        options: SearchOptions,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Dump this cache and queue."""
        self._wall = wall
        self._cache = cache
        self._queue = queue
        self._options = options
        self._clock = clock

    def page(self, _: str) -> ProbeResponse:
        """Answer with a dump of this moment."""
        found = dump(self._cache, self._options, self._queue.positions(), self._clock(), taken=self._wall())
        return ProbeResponse(b"", content_type="application/json", chunks=encoded(found))


def dump(
    cache: ClusterCache,
    options: SearchOptions,
    queue: Sequence[QueuePosition] = (),
    now: float = 0.0,
    *,
    taken: float = 0.0,
) -> Dump:
    """Return a dump of the cache and the queue; fields that must not be shown are left out when it is encoded."""
    cluster, stored, devices = cache.snapshot.ledger.cluster, cache.storage.objects, cache.devices.catalog
    return Dump(
        format=FORMAT,
        scheduler_name=cache.scheduler_name,
        options=options,
        nodes=[node for node in cluster.nodes if node is not None],
        namespaces=[
            Namespace(metadata=ObjectMeta(name=name, labels=dict(labels)))
            for name, labels in cache.snapshot.ledger.pod_index.namespaces.items()
        ],
        priority_classes=list(cache.priority_classes.by_name.values()),
        budgets=list(cache.budgets),
        storage_classes=[found for found in stored.values() if isinstance(found, StorageClass)],
        csi_nodes=[found for found in stored.values() if isinstance(found, CSINode)],
        volumes=[found for found in stored.values() if isinstance(found, PersistentVolume)],
        claims=[found for found in stored.values() if isinstance(found, PersistentVolumeClaim)],
        groups={
            flavour: GroupsOfFlavour(
                pod_groups=[group for group in store if isinstance(group, PodGroup)],
                composite_pod_groups=[group for group in store if isinstance(group, CompositePodGroup)],
                workloads=list(cache.workloads[flavour].values()),
            )
            for flavour, store in cache.stores.items()
        },
        pods=list(cache.pods.values()),
        assumed=list(cache.assumed.values()),
        nominations=[_reservation(cache, uid, found) for uid, found in cache.reservations.items()],
        queue=[_queued_unit(position, now) for position in queue],
        device_classes=list(devices.classes.values()),
        slices=list(devices.slices.values()),
        taint_rules=list(devices.taint_rules.values()),
        device_claims=list(devices.claims.values()),
        scope=tuple(sorted(cache.namespaces)),
        taken=taken,
    )


def encoded(found: Dump) -> Iterator[bytes]:
    """Yield a dump as JSON, in pieces."""
    start = b"{"
    for field in msgspec.structs.fields(found):
        yield start + msgspec.json.encode(field.encode_name) + b":"
        start = b","
        value = getattr(found, field.name)
        if isinstance(value, list):
            yield from _encoded_list(value)
        elif isinstance(value, dict):
            yield msgspec.json.encode({name: _trimmed_groups(groups) for name, groups in value.items()})
        else:
            yield msgspec.json.encode(value)
    yield b"}\n"


def load(data: bytes) -> LoadedDump:
    """Return the cache of a dump, with its options."""
    found = read_dump(data)
    return LoadedDump(restored(found), found.options, found.taken)


def read_dump(data: bytes) -> Dump:
    """Read a dump, compressed or not."""
    try:
        found = decode(gzip.decompress(data) if data.startswith(GZIP) else data, Dump)
    except (msgspec.DecodeError, OSError, EOFError, zlib.error) as error:
        raise UnreadableDumpError(f"not a dump of a scheduler: {error}") from error
    if found.format != FORMAT:
        raise UnreadableDumpError(f"the dump has format {found.format}, this version reads format {FORMAT}")
    return found


def restored(found: Dump) -> ClusterCache:
    """Return a cache with the objects of a dump."""
    cache = ClusterCache(
        new_snapshot(found.options.weights), found.groups, found.scheduler_name, namespaces=found.scope
    )
    handlers: list[tuple[Sequence[Any], Any]] = [
        (found.nodes, cache.on_node),
        (found.namespaces, cache.on_namespace),
        (found.priority_classes, cache.on_priority_class),
        (found.storage_classes, cache.storage.on_storage_class),
        (found.csi_nodes, cache.storage.on_csi_node),
        (found.volumes, cache.storage.on_volume),
        (found.claims, cache.storage.on_claim),
        (found.device_classes, cache.devices.on_class),
        (found.slices, cache.devices.on_slice),
        (found.taint_rules, cache.devices.on_taint_rule),
        (found.device_claims, cache.devices.on_claim),
    ]
    for flavour, groups in found.groups.items():
        handlers.append((groups.workloads, cache.on_workload(flavour)))
        handlers.append(((*groups.pod_groups, *groups.composite_pod_groups), cache.on_group(flavour)))
    binds = {bind.uid: bind for bind in found.assumed}
    # An assumed pod was dumped with its node; it is assumed again below.
    handlers.append(([_unbound(pod) if pod.metadata.uid in binds else pod for pod in found.pods], cache.on_pod))
    handlers.append((found.budgets, cache.on_budget))
    for objects, handle in handlers:
        for one in objects:
            handle(Added(one.metadata.key, one))
    for bind in binds.values():
        if bind.uid in cache.pods:
            cache.assume(bind.uid, bind.node, bind.allocations)
    for nomination in found.nominations:
        pod = nomination.pod or cache.pods.get(nomination.uid)
        if pod is not None:
            cache.reservations.put(pod, nomination.nominated)
    cache.expected.wall = lambda: found.taken
    return cache


def _reservation(cache: ClusterCache, uid: str, found: Reservation) -> DumpedReservation:
    return DumpedReservation(uid, found, None if uid in cache.pods else cache.reservations.pod_of(uid))


def _encoded_list(values: list[Any]) -> Iterator[bytes]:
    yield b"["
    for start in range(0, len(values), OBJECTS_PER_PIECE):
        body = msgspec.json.encode([_trimmed(value) for value in values[start : start + OBJECTS_PER_PIECE]])
        yield (b"," if start else b"") + body[1:-1]
    yield b"]"


def _trimmed(found: Any) -> Any:  # noqa: ANN401 - any object of a dump
    """Return an object with only what a decision can depend on."""
    match found:
        case Pod():
            status = replace(found.status, conditions=tuple(filter(_matters, found.status.conditions or ())) or None)
            return replace(found, metadata=_trimmed_meta(found.metadata), status=status)
        case PodGroup() | CompositePodGroup():
            return replace(found, metadata=_trimmed_meta(found.metadata), status=type(found.status)())
        case ResourceClaim():
            return _without_parameters(found)
        case DeviceClass():
            return replace(found, metadata=_trimmed_meta(found.metadata), spec=replace(found.spec, config=None))
        case Bind() | DumpedReservation() | DumpedUnit():
            return found
        case _:
            return replace(found, metadata=_trimmed_meta(found.metadata))


def _without_parameters(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim without the parameters for its drivers, with its controller, which says whose it is."""
    spec, allocation = claim.spec, claim.status.allocation
    if allocation is not None:
        allocation = replace(allocation, devices=replace(allocation.devices, config=None))
    return replace(
        claim,
        spec=replace(spec, devices=replace(spec.devices, config=None)),
        status=replace(claim.status, allocation=allocation),
    )


def _matters(condition: Any) -> bool:  # noqa: ANN401 - any condition
    """Return whether scheduling reads a condition of a pod: that it has a node, is being resized or evicted."""
    is_placed = condition.type == "PodScheduled" and condition.status == "True"
    return is_placed or condition.type in {"PodResizePending", "DisruptionTarget"}


def _trimmed_groups(groups: GroupsOfFlavour) -> GroupsOfFlavour:
    return GroupsOfFlavour(
        pod_groups=[_trimmed(group) for group in groups.pod_groups],
        composite_pod_groups=[_trimmed(group) for group in groups.composite_pod_groups],
        workloads=[_trimmed(workload) for workload in groups.workloads],
    )


def _trimmed_meta(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, annotations=read_annotations(meta), owner_references=(), finalizers=())


def _unbound(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=""))


def _queued_unit(position: QueuePosition, now: float) -> DumpedUnit:
    flavour, key = position.queue_key.unit
    return DumpedUnit(
        flavour=flavour,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        queue=position.queue,
        importance=position.queue_key.importance,
        created=position.queue_key.created,
        attempts=position.attempts,
        seconds_left=None if position.until is None else max(position.until - now, 0.0),
    )
