"""The watches: which kinds the API server serves, and how their changes come into the cache.

The reflectors run from the beginning, also while another replica leads, so that the cache is complete when this one
takes over.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec import Raw
from structlog.typing import FilteringBoundLogger

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.integrations.registry import Integrations
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.workload import Workload
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.device_kinds import DeviceKinds, backs_extended_resources, served_device_kinds
from cpg_client.errors import ClientError
from cpg_client.flavours import FlavourNotServedError, served_flavours
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import Resource
from cpg_client.retrying import WatchBackoff
from cpg_client.stores import Change, Rejection
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.nominations import read_pod
from cpg_scheduler.cache.projections import KEPT, SLIM
from cpg_scheduler.settings import SchedulerSettings

SECONDS_BETWEEN_DISCOVERIES = 60.0
MAX_EVENTS_ON_STANDBY = 10_000
"""Cluster events that are kept while no listener takes them; a new listener begins with everything that is known."""

Kinds = dict[str, dict[type, Resource]]
"""The group kinds that are served, by flavour."""


class ServedKinds(NamedTuple):
    """The kinds that are watched only where the API server has them: groups by flavour, and devices.

    ``backs_resources`` says whether devices stand for extended resources.
    """

    groups: Kinds
    devices: DeviceKinds
    backs_resources: bool = True

    def __str__(self) -> str:
        kinds = (one for served in (*self.groups.values(), self.devices) for one in served.values())
        return ", ".join(sorted(f"{one.api_version} {one.kind}" for one in kinds)) or "no groups and no devices at all"


class KindsChangedError(ClientError):
    """The API server serves other kinds than at the start."""


class ChangeListener(Protocol):
    """Acts on the changes of the cluster."""

    def on_change(self, change: Change[Any], kind: type[Any]) -> None:
        """Take a change that the cache has taken already."""


class ReflectedCluster:
    """The cache, the kinds it is filled from, and the listener that acts on its changes while this replica leads."""

    def __init__(self, cache: ClusterCache, kinds: ServedKinds, integrations: Integrations) -> None:
        """Reflect these kinds into this cache, with the groups that follow from owners."""
        self.cache = cache
        self.kinds = kinds.groups
        self.device_kinds = kinds.devices
        self.integrations = integrations
        self._listener: ChangeListener | None = None

    @contextlib.contextmanager
    def notify(self, listener: ChangeListener) -> Iterator[None]:
        """Send all changes to a listener for as long as the block runs."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def on_change(self, change: Change[Any], kind: type[Any]) -> None:
        """Notify the listener of a change; without one, do not let the events pile up."""
        if self._listener is not None:
            self._listener.on_change(change, kind)
            return
        if self.cache.events.pending.size > MAX_EVENTS_ON_STANDBY:
            self.cache.take_events()

    def current(self, group: Group) -> tuple[Group, Resource] | None:
        """Return a group as it is now and its resource, by the flavour that has it, or None if none has."""
        flavour = next((name for name, store in self.cache.stores.items() if store.has_object(group)), None)
        if flavour is None:
            return None
        return self.cache.stores[flavour].forest.groups[key_of(group)], self.kinds[flavour][type(group)]

    def resource_of(self, group: Group) -> Resource | None:
        """Return the resource of a group, or None if it is gone."""
        found = self.current(group)
        return found[1] if found is not None else None


async def discover(connection: Connection, settings: SchedulerSettings, log: FilteringBoundLogger) -> ServedKinds:
    """Return the kinds that are served, as soon as the API server answers."""
    backoff, failures = WatchBackoff(), 0
    while True:
        try:
            return await _served_kinds(connection, settings)
        except FlavourNotServedError:
            raise
        except ClientError as error:
            failures += 1
            wait = backoff.wait(failures, error)
            log.warning("API server not reached", error=str(error), retry_in=wait)
            await asyncio.sleep(wait)


async def _served_kinds(connection: Connection, settings: SchedulerSettings) -> ServedKinds:
    groups = await served_flavours(connection, settings.api)
    devices = await served_device_kinds(connection)
    return ServedKinds(groups, devices, bool(devices) and await backs_extended_resources(connection))


async def watch_kinds(connection: Connection, settings: SchedulerSettings, kinds: ServedKinds) -> None:
    """Raise when other kinds are served: reflectors are chosen once, so the process has to start afresh."""
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_DISCOVERIES)
        found = kinds
        with contextlib.suppress(ClientError):
            found = await _served_kinds(connection, settings)
        # While servers of two releases take turns, that they back resources is true of some answers only.
        if found[:2] != kinds[:2] or found.backs_resources > kinds.backs_resources:
            raise KindsChangedError(f"the API server no longer serves just {kinds}")


def reflectors(
    connection: Connection, cluster: ReflectedCluster, log: FilteringBoundLogger
) -> list[Reflector[Any, Any]]:
    """Return the reflectors: of everything that takes room in all namespaces, of the rest in those of the settings."""
    cache = cluster.cache
    reflect = partial(_reflector, connection, cluster, log)
    found = [
        reflect(resources.NODES, Node, cache.on_node),
        reflect(resources.NAMESPACES, Namespace, cache.on_namespace),
        reflect(resources.PRIORITY_CLASSES, PriorityClass, cache.on_priority_class),
        reflect(resources.STORAGE_CLASSES, StorageClass, cache.storage.on_storage_class),
        reflect(resources.CSI_NODES, CSINode, cache.storage.on_csi_node),
        reflect(resources.PERSISTENT_VOLUMES, PersistentVolume, cache.storage.on_volume),
        reflect(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, cache.storage.on_claim),
        reflect(resources.PODS, Pod, cache.on_pod),
        *(reflect(resource, kind, cache.devices.handlers[kind]) for kind, resource in cluster.device_kinds.items()),
    ]
    for namespace in sorted(cache.namespaces) or (None,):
        found.append(
            reflect(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget, cache.on_budget, namespace=namespace)
        )
        for flavour, served in cluster.kinds.items():
            for kind, resource in served.items():
                take = cache.on_workload(flavour) if kind is Workload else cache.on_group(flavour)
                found.append(reflect(resource, kind, take, namespace=namespace))
    return found


def _reflector(
    connection: Connection,
    cluster: ReflectedCluster,
    log: FilteringBoundLogger,
    resource: Resource,
    kind: type[Any],
    take: Callable[[Change[Any]], None],
    *,
    namespace: str | None = None,
) -> Reflector[Any, Any]:
    """Return a reflector that puts changes into the cache first, and then notifies the listener."""

    def on_change(change: Change[Any]) -> None:
        if isinstance(change, Rejection):
            log.warning("object refused", kind=kind.__name__, name=change.key, problems=[*map(str, change.problems)])
        cluster.cache.slices.when_free(partial(apply, change))

    def apply(change: Change[Any]) -> None:
        take(change)
        cluster.on_change(change, kind)

    def on_failure(error: ClientError, wait: float) -> None:
        log.warning("watch failed", kind=kind.__name__, error=str(error), retry_in=wait)

    def read_member(raw: Raw, kind: type[Pod]) -> Pod | Rejected:
        found = read_pod(raw, kind)
        return found if isinstance(found, Rejected) else cluster.integrations.with_group(found)

    decode: Callable[[Raw, type[Any]], Any] = read_member if kind is Pod else parse_object
    kept = KEPT.get(kind, SLIM)
    source = Source[Any, Any](
        resource=resource, kind=kind, project=kept.project, decode=decode, reduce=kept.reduce, namespace=namespace
    )
    return Reflector(connection, source, on_change, on_failure=on_failure)
