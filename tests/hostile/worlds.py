"""Scheduler and operator in this process, fed with the lines of watches, as a real API server would send them.

Both are made of their own parts up to the connection: lines are decoded by the reflectors and by what Kopf calls, taken
into cache and view, and then the scheduling loop runs passes and the operator reconciles.
"""

import json
from collections.abc import MutableMapping
from typing import Any, TypeAlias, cast

import msgspec
import structlog

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_api.decoding import decode
from cpg_api.integrations.custom import CustomKind
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations, owner_kinds
from cpg_api.nesting import cut_nesting
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.device_kinds import DeviceKinds
from cpg_client.errors import ClientError
from cpg_client.flavours import CRD, KINDS
from cpg_client.reflector import Reflector
from cpg_client.resources import Resource
from cpg_client.slim_answers import slim_event
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_client.timing import Timing
from cpg_client.watching import WatchEvent, read_event
from cpg_engine.gangs.search import SearchOptions
from cpg_operator.components import build_components
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.settings import Settings
from cpg_operator.sources.reflectors import ClusterAccess
from cpg_scheduler.debug.dump import Dump, dump, encoded, read_dump, restored
from cpg_scheduler.reflectors import ReflectedCluster, ServedKinds, reflectors
from cpg_scheduler.testing.fake_connection import FakeConnection
from cpg_scheduler.testing.stage import Stage

Place: TypeAlias = tuple[str, str]
"""API group and kind."""
AnyReflector: TypeAlias = Reflector[Any, Any]

FLEETS = CustomKind(
    group="example.com", version="v1", kind="Fleet", plural="fleets", template="template", size="count", roles="roles",
    role_label="fleet/role", replicas="ships", replica_label="fleet/ship",
)  # fmt: skip
DEVICES: DeviceKinds = {
    DeviceClass: resources.DEVICE_CLASSES,
    ResourceSlice: resources.RESOURCE_SLICES,
    ResourceClaim: resources.RESOURCE_CLAIMS,
    DeviceTaintRule: resources.DEVICE_TAINT_RULES,
}
MISTAKES = frozenset({"attempt failed", "reconcile failed", "event not processed"})
MAX_PASSES = 50_000
"""More passes for a batch of objects mean that the loop does not come to rest."""
MAX_RECONCILES = 50_000
SECONDS_OF_BACKOFF = 1000.0


class _Identity(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Identified(msgspec.Struct):
    metadata: _Identity


class EndlessLoopError(AssertionError):
    """A loop has not come to rest."""


class MistakeError(AssertionError):
    """A process has caught an exception that is a defect."""


class SchedulerWorld:
    """The cache and the loop of a scheduler behind its reflectors."""

    def __init__(self) -> None:
        """Start without objects; all kinds are served."""
        self.stage = Stage()
        self.refused = 0
        integrations = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS, [FLEETS])
        self._cluster = ReflectedCluster(self.stage.cache, ServedKinds(KINDS, DEVICES), integrations)
        log = structlog.wrap_logger(self.stage.log, processors=[])
        found = reflectors(cast("Connection", FakeConnection()), self._cluster, log)
        self.reflectors = {_place(one.source.resource): one for one in found}

    def take(self, place: Place, event: WatchEvent) -> None:
        """Take an event of a watch."""
        with self._cluster.notify(self):
            apply(self.reflectors.get(place), event)

    def on_change(self, change: Change[Any], kind: type[Any]) -> None:
        """Keep an object as the API server has it, for the fakes of the stage."""
        held, flavour = self.stage._objects, CRD
        if isinstance(change, Added | Modified):
            held[kind.__name__, flavour, change.new.metadata.key] = change.new
        elif isinstance(change, Deleted):
            held.pop((kind.__name__, flavour, change.old.metadata.key), None)

    def settle(self) -> int:
        """Run passes, bind and evict until nothing happens any more; return the number of passes."""
        stage, passes = self.stage, 0
        stage.now += SECONDS_OF_BACKOFF
        while True:
            while stage.loop.run_pass():
                passes += 1
                if passes > MAX_PASSES:
                    raise EndlessLoopError(f"{passes} passes; the last logs: {stage.log.calls[-5:]}")
            if not stage.binder.batches and stage.executor.is_idle:
                break
            stage.complete_binds()
            stage.evict()
        self._check_log()
        return passes

    def dumped(self) -> Dump:
        """Return a dump, which a replay reads as it is."""
        found = dump(self.stage.cache, SearchOptions(), self.stage.queue.positions())
        text = b"".join(encoded(found))
        again = read_dump(text)
        restored(again)
        return again

    def empty(self) -> None:
        """Have every list show nothing."""
        with self._cluster.notify(self):
            for reflector in self.reflectors.values():
                empty(reflector)
        for kept in (
            self.stage.status.pods,
            self.stage.status.groups,
            self.stage.status.attempts,
            self.stage.status.causes,
        ):
            kept.clear()
        self.stage._objects.clear()

    def _check_log(self) -> None:
        calls, log = list(self.stage.log.calls), self.stage.log
        log.calls.clear()
        for call in calls:
            self.refused += call.kwargs["event"] == "object refused"
            if call.kwargs["event"] in MISTAKES:
                raise MistakeError(str(call.kwargs)) from call.kwargs["exc_info"]


class OperatorWorld:
    """The view and the reconciler of an operator behind its reflectors and Kopf."""

    def __init__(self) -> None:
        """Start without objects; all kinds are served."""
        self.now = 0.0
        timing = Timing(clock=lambda: self.now, wall=lambda: 1_000_000.0 + self.now)
        self._settings = Settings(custom_integrations=(FLEETS,))
        self.parts = build_components(
            cast("Connection", FakeConnection(timing)),
            KINDS,
            ClusterAccess(),
            settings=self._settings,
            identity="me",
            metrics=OperatorMetrics(),
            timing=timing,
        )
        self._watched = {
            _place(resource): (flavour, kind) for flavour, kinds in KINDS.items() for kind, resource in kinds.items()
        }
        self.reflectors = {_place(one.source.resource): one for one in self.parts.reflectors}
        for kind in owner_kinds(DEFAULT_INTEGRATIONS, [FLEETS]):
            resource = Resource(kind.group, kind.versions[-1], kind.plural, kind.kind)
            self.parts.view.owners.add_kind(kind, resource)
            self.reflectors[_place(resource)] = self.parts.owner_watches._reflector(kind, resource, None)
            empty(self.reflectors[_place(resource)])
        self._kept: dict[tuple[str, type, str], Any] = {}

    def take(self, place: Place, event: WatchEvent) -> None:
        """Take an event of a watch; the kinds that Kopf watches are handed on as Kopf does."""
        watched = self._watched.get(place)
        if watched is None:
            apply(self.reflectors.get(place), event)
            return
        line = cut_nesting(msgspec.json.encode({"type": event.type, "object": event.object}))
        try:
            identity = decode(event.object, _Identified).metadata
            plain = json.loads(slim_event(line))
        except ValueError:
            return  # Kopf itself cannot tell which object it is; an API server does
        if self.parts.events.is_new(*watched, plain):
            self.parts.events.take(*watched, plain)
        self._kept[(*watched, f"{identity.namespace}/{identity.name}")] = plain

    def settle(self) -> int:
        """Reconcile all trees that are due; return their number."""
        self.now += SECONDS_OF_BACKOFF
        count = 0
        while (key := self.parts.queue.pop()) is not None:
            self.parts.reconciler.reconcile(key)
            count += 1
            if count > MAX_RECONCILES:
                raise EndlessLoopError(f"{count} reconciles; the last of {key}")
        return count

    def empty(self) -> None:
        """Have everything deleted."""
        for reflector in self.reflectors.values():
            empty(reflector)
        for (flavour, kind, _), plain in self._kept.items():
            self.parts.events.take(flavour, kind, {"type": "DELETED", "object": plain["object"]})
        self._kept.clear()


class World:
    """Both processes, fed with the same lines, and the time that this takes."""

    def __init__(self) -> None:
        """Start without objects."""
        self.scheduler, self.operator = SchedulerWorld(), OperatorWorld()
        self.unreadable = 0
        self.passes = self.reconciles = self.binds = 0

    def take(self, place: Place, kind: str, body: bytes) -> None:
        """Take an object by an event of a watch; what is no event is counted."""
        line = b'{"type":"%s","object":%s}' % (kind.encode(), body)
        try:
            event = read_event(line)
        except ClientError:
            self.unreadable += 1
            return
        self.scheduler.take(place, event)
        self.operator.take(place, event)

    def settle(self) -> None:
        """Let both come to rest, and dump the cache."""
        self.passes += self.scheduler.settle()
        self.reconciles += self.operator.settle()
        self.scheduler.dumped()
        self.binds += len(self.scheduler.stage.events.bound)
        self.scheduler.stage.events.bound.clear()

    def empty(self) -> None:
        """Have everything deleted, and let both come to rest."""
        self.scheduler.empty()
        self.operator.empty()
        self.settle()

    def left(self) -> list[str]:
        """Return what is left of deleted objects."""
        found, parts = self.scheduler.dumped(), self.operator.parts
        lists = [
            f"{name}: {held}"[:500]
            for name in found.__struct_fields__
            if isinstance(held := getattr(found, name), list) and held
        ]
        lists += [flavour for flavour, groups in found.groups.items() if any(msgspec.structs.astuple(groups))]
        return lists + [
            name for name, size in (("writes", len(parts.writer)), ("trees", len(list(parts.states)))) if size
        ]

    def figures(self) -> dict[str, int]:
        """Return what has happened so far."""
        return {
            "unreadable": self.unreadable,
            "refused": self.scheduler.refused,
            "passes": self.passes,
            "binds": self.binds,
            "victims": len(self.scheduler.stage.evicted),
            "reconciles": self.reconciles,
        }


def raise_mistakes(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Raise where a process logs that it has caught an exception; a processor of structlog."""
    if line["event"] in MISTAKES:
        raise MistakeError(str(line))
    raise structlog.DropEvent


def apply(reflector: AnyReflector | None, event: WatchEvent) -> None:
    """Apply an event of a watch as a reflector does."""
    if reflector is not None:
        for change in reflector._store.apply(event):
            reflector._on_change(change)


def empty(reflector: AnyReflector) -> None:
    """Have a list show nothing."""
    for change in reflector._store.replace(()):
        reflector._on_change(change)


def _place(resource: Resource) -> Place:
    return resource.group, resource.kind
