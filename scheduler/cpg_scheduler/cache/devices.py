"""Claims for devices, slices, device classes and taint rules, brought into the engine's catalog.

The catalog has of each object what a decision depends on. ``claims`` has the claims as the API server has them, with
version, finalizers and the conditions of their devices, for what is written before pods are bound.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from cpg_api.core.devices import (
    MAX_RESERVED_FOR,
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from cpg_api.core.pod import Pod
from cpg_client.stores import Added, Change, Deleted, Modified, Synced
from cpg_engine.cluster.device_needs import used_claims
from cpg_engine.devices.catalog import DeviceCatalog, extended_owner
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.versions import SeenVersions

DeviceObject: TypeAlias = ResourceClaim | ResourceSlice | DeviceClass | DeviceTaintRule
S = TypeVar("S", bound=DeviceObject)


def device_claims_of(pod: Pod) -> frozenset[str]:
    """Return the claims for devices of a pod, as ``namespace/name``; one that is still to be made has no name yet."""
    return frozenset(used_claims(pod))


class DeviceCache:
    """The objects of dynamic resource allocation, and the pods that use each claim."""

    def __init__(
        self,
        catalog: DeviceCatalog,
        *,
        events: EventCollector,
        versions: SeenVersions,
        change_users: Callable[[Iterable[str]], None],
        prepare: Callable[[], None],
    ) -> None:
        """Start without objects; claims note their versions by UID.

        ``change_users`` is called with the pods, by UID, that a change of a claim concerns. ``prepare`` is called after
        a change of a slice, so that no decision has to read thousands of them.
        """
        self.handlers: Mapping[type, Callable[[Change[Any]], None]] = {
            DeviceClass: self.on_class,
            ResourceSlice: self.on_slice,
            DeviceTaintRule: self.on_taint_rule,
            ResourceClaim: self.on_claim,
        }
        self._change_users = change_users
        self._prepare = prepare
        self.catalog = catalog
        self.claims: dict[str, ResourceClaim] = {}
        self._events = events
        self._versions = versions
        self._users: dict[str, set[str]] = {}
        """The pods, by UID, that use each claim."""

    def on_claim(self, change: Change[ResourceClaim]) -> None:
        """Take a change of a claim; the units of its users have changed if it can change what becomes of them."""
        if isinstance(change, Synced):
            return
        key, before = change.key, self.claims.pop(change.key, None)
        after = change.new if isinstance(change, Added | Modified) else None
        if after is not None:
            self.claims[key] = after
            self.catalog.put_claim(_decisive(after))
        elif before is not None:
            self.catalog.remove_claim(before.metadata.namespace, before.metadata.name)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._versions.note(before.metadata.uid, None)
        if after is not None:
            self._versions.note(after.metadata.uid, after.metadata)
        if _allocation(before) is not None and _allocation(before) != _allocation(after):
            self._events.change_devices()
        if _relevant(before) != _relevant(after):
            self._change_users(self._users.get(key, set()) | _extended_owners(before))

    def on_slice(self, change: Change[ResourceSlice]) -> None:
        """Take a change of a slice."""
        if self._update(change, self.catalog.put_slice, self.catalog.remove_slice):
            self._prepare()
            self._events.change_devices()

    def on_class(self, change: Change[DeviceClass]) -> None:
        """Take a change of a device class."""
        if self._update(change, self.catalog.put_class, self.catalog.remove_class):
            self._events.change_device_class()

    def on_taint_rule(self, change: Change[DeviceTaintRule]) -> None:
        """Take a change of a taint rule."""
        if self._update(change, self.catalog.put_taint_rule, self.catalog.remove_taint_rule):
            self._events.change_devices()

    def back_resources(self, *, backs: bool) -> None:
        """Set whether devices stand for extended resources."""
        self.catalog.back_resources(backs=backs)
        self._events.change_device_class()

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Note the claims that a pod uses, in place of those that it used before."""
        if old is not None:
            for key in device_claims_of(old):
                self._users[key].discard(old.metadata.uid)
                if not self._users[key]:
                    del self._users[key]
        if new is not None:
            for key in device_claims_of(new):
                self._users.setdefault(key, set()).add(new.metadata.uid)

    def users(self, key: str) -> Collection[str]:
        """Return the pods, by UID, that use a claim."""
        return self._users.get(key, ())

    def _update(self, change: Change[S], put: Callable[[S], None], remove: Callable[[str], None]) -> bool:
        """Bring the catalog up to date; return whether that changed anything."""
        version = self.catalog.version
        match change:
            case Added() | Modified():
                put(change.new)
            case Deleted():
                remove(change.key)
        return self.catalog.version != version


def _extended_owners(claim: ResourceClaim | None) -> set[str]:
    """Return the pod, by UID, for whose extended resources a claim was made."""
    owner = extended_owner(claim) if claim is not None else None
    return set() if owner is None else {owner.split("/")[1]}


def _decisive(claim: ResourceClaim) -> ResourceClaim:
    """Return of a claim what a decision depends on."""
    meta = replace(claim.metadata, resource_version="", finalizers=())
    return replace(claim, metadata=meta, status=replace(claim.status, devices=None))


def _allocation(claim: ResourceClaim | None) -> AllocationResult | None:
    return None if claim is None else claim.status.allocation


def _relevant(claim: ResourceClaim | None) -> object:
    """Return what of a claim matters to pods that wait for it."""
    if claim is None:
        return None
    is_deleting = claim.metadata.deletion_timestamp is not None
    is_full = len(claim.status.reserved_for or ()) >= MAX_RESERVED_FOR
    return claim.metadata.uid, is_deleting, claim.status.allocation, is_full
