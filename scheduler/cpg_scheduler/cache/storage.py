"""Claims, volumes, storage classes and CSI nodes, brought into the engine's catalogue.

A change that the catalogue does not show is no event for pending pods.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_client.stores import Added, Change, Deleted, Modified, Synced
from cpg_engine.cluster.storage import StorageCatalog
from cpg_engine.cluster.volumes import pod_volumes
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.versions import SeenVersions

Stored: TypeAlias = PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode
S = TypeVar("S", bound=Stored)


def claims_of(pod: Pod) -> frozenset[str]:
    """Return the claims of a pod, as ``namespace/name``, those of its ephemeral volumes included."""
    volumes = pod_volumes(pod) if pod.spec.volumes else None
    return volumes.keys if volumes is not None else frozenset()


class StorageCache:
    """The storage objects of the cluster, and the pods that use each claim."""

    def __init__(
        self,
        storage: StorageCatalog,
        *,
        events: EventCollector,
        versions: SeenVersions,
        change_users: Callable[[Iterable[str]], None],
    ) -> None:
        """Start without objects; ``storage`` is the engine's catalogue, and claims and volumes note their versions.

        ``change_users`` is called with the pods, by UID, that a change of a claim concerns.
        """
        self._change_users = change_users
        self._storage = storage
        self._events = events
        self._versions = versions
        self.objects: dict[tuple[str, str], Stored] = {}
        """The objects as the API server has them, by kind and key, for dumps."""
        self._users: dict[str, set[str]] = {}
        """The pods, by UID, that use each claim."""

    def on_claim(self, change: Change[PersistentVolumeClaim]) -> None:
        """Take a change of a claim; if it has appeared or been bound, the units of its users have changed."""
        before = self._storage.claims.get(_key(change))
        self._update(change, self._storage.put_claim, lambda key: self._storage.remove_claim(*key.split("/")))
        self._remember_version(change)
        after = self._storage.claims.get(_key(change))
        if after is not None and (before is None or before.is_bound != after.is_bound):
            self._change_users(self._users.get(_key(change), ()))

    def on_volume(self, change: Change[PersistentVolume]) -> None:
        """Take a change of a volume."""
        self._update(change, self._storage.put_volume, self._storage.remove_volume)
        self._remember_version(change)

    def on_storage_class(self, change: Change[StorageClass]) -> None:
        """Take a change of a storage class."""
        self._update(change, self._storage.put_class, self._storage.remove_class)

    def on_csi_node(self, change: Change[CSINode]) -> None:
        """Take a change of the CSI drivers of a node."""
        self._update(change, self._storage.put_csi_node, self._storage.remove_csi_node)

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Note the claims that a pod uses, in place of those that it used before."""
        if old is not None:
            for key in claims_of(old):
                self._users[key].discard(old.metadata.uid)
                if not self._users[key]:
                    del self._users[key]
        if new is not None:
            for key in claims_of(new):
                self._users.setdefault(key, set()).add(new.metadata.uid)

    def _update(self, change: Change[S], put: Callable[[S], None], remove: Callable[[str], None]) -> None:
        """Bring the catalogue up to date, and note an event if that changed anything."""
        version = self._storage.version
        match change:
            case Added() | Modified():
                self.objects[type(change.new).__name__, change.key] = change.new
                put(change.new)
            case Deleted():
                self.objects.pop((type(change.old).__name__, change.key), None)
                remove(change.key)
        if self._storage.version != version:
            self._events.change_cluster()

    def _remember_version(self, change: Change[PersistentVolumeClaim] | Change[PersistentVolume]) -> None:
        """Remember the version of a claim or volume."""
        if not isinstance(change, Synced):
            new = change.new.metadata if isinstance(change, Added | Modified) else None
            self._versions.note(change.key, new)


def _key(change: Change[PersistentVolumeClaim] | Change[PersistentVolume]) -> str:
    """Return the key of the changed object; empty where the watch has only synced."""
    return "" if isinstance(change, Synced) else change.key
