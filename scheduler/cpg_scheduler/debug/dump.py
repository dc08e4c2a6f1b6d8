"""The whole state as one JSON document, and back: any decision can be made again elsewhere, from what it was made of.

What is written is what our structs know of the objects, and of that only what a decision can depend on: no annotations
but those that scheduling reads, no owners, no conditions. What a pod runs, with which arguments and environment, the
structs do not even know.

All objects are frozen, so a dump is consistent though it is encoded piece by piece, with the loop free in between: what
it holds is settled when it is begun.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import MIRROR, Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.probe_server import ProbeResponse
from cpg_client.stores import Added
from cpg_engine.decisions import Bind
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.cache.storage import READ_ANNOTATIONS
from cpg_scheduler.queueing.scheduling_queue import QueuePosition, SchedulingQueue

S = TypeVar("S", bound=Struct)
FORMAT = 1
"""Raised whenever an older reader would misread a dump."""

PIECE = 250
"""Objects that are encoded at a time: some milliseconds."""

KEPT_ANNOTATIONS = READ_ANNOTATIONS | {POD_GROUP_LABEL, MIRROR}


class UnreadableDumpError(ValueError):
    """A document that is no dump, or one that this version cannot read."""


class Groups(Struct, frozen=True, rename="camel"):
    """The groups of one flavour."""

    pod_groups: Sequence[PodGroup] = ()
    composite_pod_groups: Sequence[CompositePodGroup] = ()
    workloads: Sequence[Workload] = ()


class Waiting(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a root stands in the queue."""

    flavour: str
    kind: str
    namespace: str
    name: str
    queue: str
    importance: int
    created: str
    attempts: int = 0
    seconds_left: float | None = None


class Nomination(Struct, frozen=True, rename="camel"):
    """Room that is kept for a pod, by UID."""

    uid: str
    nominated: Reservation


class Dump(Struct, frozen=True, rename="camel"):
    """Everything that a decision depends on, and the queue; the order of the fields is that of reading it back."""

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
    groups: Mapping[str, Groups]
    pods: Sequence[Pod]
    assumed: Sequence[Bind]
    nominations: Sequence[Nomination]
    queue: Sequence[Waiting]
    scope: tuple[str, ...] = ()
    """The namespaces that are ours to write in; none for all."""
    taken: float = 0.0
    """When it was, by the time of day."""


class Loaded(NamedTuple):
    """What a dump is read as: a state that decides as the one did that was dumped, by which options, and its time."""

    state: ClusterCache
    options: SearchOptions
    taken: float


class Dumper:
    """Answers with a dump."""

    def __init__(
        self,
        state: ClusterCache,
        pending: SchedulingQueue,
        options: SearchOptions,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Dump this state and queue."""
        self._wall = wall
        self._state = state
        self._pending = pending
        self._options = options
        self._clock = clock

    def page(self, _: str) -> ProbeResponse:
        """Answer with everything as it is now."""
        found = dump(self._state, self._options, self._pending.places(), self._clock(), taken=self._wall())
        return ProbeResponse(b"", content_type="application/json", chunks=encoded(found))


def dump(
    state: ClusterCache,
    options: SearchOptions,
    queue: Sequence[QueuePosition] = (),
    now: float = 0.0,
    *,
    taken: float = 0.0,
) -> Dump:
    """Take everything there is, as it is now, whole: what is not to be told is left out when it is encoded."""
    cluster, stored = state.snapshot.ledger.cluster, state.storage.objects
    return Dump(
        format=FORMAT,
        scheduler_name=state.scheduler_name,
        options=options,
        nodes=[node for node in cluster.nodes if node is not None],
        namespaces=[
            Namespace(metadata=ObjectMeta(name=name, labels=dict(labels)))
            for name, labels in state.snapshot.ledger.pod_index.namespaces.items()
        ],
        priority_classes=list(state.priority_classes.by_name.values()),
        budgets=list(state.budgets),
        storage_classes=[found for found in stored.values() if isinstance(found, StorageClass)],
        csi_nodes=[found for found in stored.values() if isinstance(found, CSINode)],
        volumes=[found for found in stored.values() if isinstance(found, PersistentVolume)],
        claims=[found for found in stored.values() if isinstance(found, PersistentVolumeClaim)],
        groups={
            flavour: Groups(
                pod_groups=[group for group in store if isinstance(group, PodGroup)],
                composite_pod_groups=[group for group in store if isinstance(group, CompositePodGroup)],
                workloads=list(state.workloads[flavour].values()),
            )
            for flavour, store in state.stores.items()
        },
        pods=list(state.pods.values()),
        assumed=list(state.assumed.values()),
        nominations=[Nomination(uid, found) for uid, found in state.reservations.items()],
        queue=[_waiting(place, now) for place in queue],
        scope=tuple(sorted(state.namespaces)),
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
            yield msgspec.json.encode({name: _bare_groups(groups) for name, groups in value.items()})
        else:
            yield msgspec.json.encode(value)
    yield b"}\n"


def load(data: bytes) -> Loaded:
    """Read a dump."""
    try:
        found = decode(data, Dump)
    except msgspec.DecodeError as error:
        raise UnreadableDumpError(f"this is no dump of a scheduler: {error}") from error
    if found.format != FORMAT:
        raise UnreadableDumpError(f"a dump of format {found.format}, and this version reads format {FORMAT}")
    return Loaded(restored(found), found.options, found.taken)


def restored(found: Dump) -> ClusterCache:
    """Return a state that knows what is in a dump."""
    state = ClusterCache(
        new_snapshot(found.options.weights), found.groups, found.scheduler_name, namespaces=found.scope
    )
    takers: list[tuple[Sequence[Any], Any]] = [
        (found.nodes, state.on_node),
        (found.namespaces, state.on_namespace),
        (found.priority_classes, state.on_priority_class),
        (found.storage_classes, state.storage.on_storage_class),
        (found.csi_nodes, state.storage.on_csi_node),
        (found.volumes, state.storage.on_volume),
        (found.claims, state.on_claim),
    ]
    for flavour, groups in found.groups.items():
        takers.append((groups.workloads, state.on_workload(flavour)))
        takers.append(((*groups.pod_groups, *groups.composite_pod_groups), state.on_group(flavour)))
    binds = {bind.uid: bind for bind in found.assumed}
    # A pod whose bind is assumed has its node already; it is to be assumed here as well.
    takers.append(([_unbound(pod) if pod.metadata.uid in binds else pod for pod in found.pods], state.on_pod))
    takers.append((found.budgets, state.on_budget))
    for objects, take in takers:
        for one in objects:
            take(Added(one.metadata.key, one))
    for bind in binds.values():
        if bind.uid in state.pods:
            state.assume(bind.uid, bind.node, bind.allocations)
    for nomination in found.nominations:
        if nomination.uid in state.pods:
            state.reservations.put(state.pods[nomination.uid], nomination.nominated)
    return state


def _encoded_list(values: list[Any]) -> Iterator[bytes]:
    yield b"["
    for start in range(0, len(values), PIECE):
        body = msgspec.json.encode([_bare(value) for value in values[start : start + PIECE]])
        yield (b"," if start else b"") + body[1:-1]
    yield b"]"


def _bare(found: Any) -> Any:  # noqa: ANN401 - whatever there is in a dump
    """Return an object without what no decision depends on."""
    match found:
        case Pod():
            status = replace(found.status, conditions=tuple(filter(_matters, found.status.conditions or ())) or None)
            return replace(found, metadata=_bare_meta(found.metadata), status=status)
        case PodGroup() | CompositePodGroup():
            return replace(found, metadata=_bare_meta(found.metadata), status=type(found.status)())
        case Bind() | Nomination() | Waiting():
            return found
        case _:
            return replace(found, metadata=_bare_meta(found.metadata))


def _matters(condition: Any) -> bool:  # noqa: ANN401 - any condition
    """Tell whether scheduling reads a condition of a pod: whether it is being resized, or told to go."""
    return condition.type in {"PodResizePending", "DisruptionTarget"}


def _bare_groups(groups: Groups) -> Groups:
    return Groups(
        pod_groups=[_bare(group) for group in groups.pod_groups],
        composite_pod_groups=[_bare(group) for group in groups.composite_pod_groups],
        workloads=[_bare(workload) for workload in groups.workloads],
    )


def _bare_meta(meta: ObjectMeta) -> ObjectMeta:
    annotations = {name: value for name, value in meta.annotations.items() if name in KEPT_ANNOTATIONS}
    return replace(meta, annotations=annotations, owner_references=(), finalizers=())


def _unbound(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=""))


def _waiting(place: QueuePosition, now: float) -> Waiting:
    flavour, key = place.order.key
    return Waiting(
        flavour=flavour,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        queue=place.queue,
        importance=place.order.importance,
        created=place.order.created,
        attempts=place.attempts,
        seconds_left=None if place.until is None else max(place.until - now, 0.0),
    )
