"""Storage as the scheduler last heard of it: into the engine's catalogue, and to those who wait for it.

1. **Of an object is kept what scheduling reads**: annotations can be large, and hardly any of them matter here.
2. **What the catalogue does not show has not happened** for the pods that wait; it changes only where something did
   that the engine looks at.
3. **Versions tell old news from new.** Who has written to an object must not take its state from before the write for
   an answer, so the version of each claim and volume is remembered.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.meta import ObjectMeta
from cpg_client.stores import Added, Change, Deleted, Modified, Synced
from cpg_engine.cluster.storage import Storage
from cpg_engine.cluster.volumes import BOUND_ANNOTATION, CLASS_ANNOTATION, NODE_ANNOTATION, pod_volumes

Stored: TypeAlias = PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode
S = TypeVar("S", bound=Stored)
READ = frozenset({BOUND_ANNOTATION, CLASS_ANNOTATION, NODE_ANNOTATION})


def needed(found: S) -> S:
    """Return what is kept of an object: the projection of the reflectors."""
    meta = found.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name in READ}
    kept = replace(meta, annotations=annotations, finalizers=(), generation=0, creation_timestamp=None)
    return replace(found, metadata=kept)


def claims_of(pod: Pod) -> frozenset[str]:
    """Return the claims of a pod, as ``namespace/name``, those of its ephemeral volumes included."""
    volumes = pod_volumes(pod) if pod.spec.volumes else None
    return volumes.keys if volumes is not None else frozenset()


class StorageCache:
    """Takes the news of storage: ``moved`` is called when they may help somebody, ``ready`` with whom they surely do.

    These are the pods, by UID, of a claim that has appeared or been bound.
    """

    def __init__(
        self, storage: Storage, *, moved: Callable[[], None], ready: Callable[[Collection[str]], None]
    ) -> None:
        """Start knowing nothing."""
        self._storage = storage
        self._moved = moved
        self._ready = ready
        self.objects: dict[tuple[str, str], Stored] = {}
        """What there is, as the API server has it, for those who want to look at it elsewhere."""
        self._versions: dict[str, int] = {}
        self._users: dict[str, set[str]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}

    # What the watches bring.

    def on_claim(self, change: Change[PersistentVolumeClaim]) -> None:
        """Take news of a claim."""
        before = self._storage.claims.get(_key(change))
        self._take(change, self._storage.put_claim, lambda key: self._storage.remove_claim(*key.split("/")))
        self._note(change)
        after = self._storage.claims.get(_key(change))
        if after is not None and (before is None or before.bound != after.bound):
            self._ready(self._users.get(after.key, ()))

    def on_volume(self, change: Change[PersistentVolume]) -> None:
        """Take news of a volume."""
        self._take(change, self._storage.put_volume, self._storage.remove_volume)
        self._note(change)

    def on_storage_class(self, change: Change[StorageClass]) -> None:
        """Take news of a storage class."""
        self._take(change, self._storage.put_class, self._storage.remove_class)

    def on_csi_node(self, change: Change[CSINode]) -> None:
        """Take news of what the CSI drivers say of a node."""
        self._take(change, self._storage.put_csi_node, self._storage.remove_csi_node)

    def swap(self, old: Pod | None, new: Pod | None) -> None:
        """Take note of which claims a pod uses, in place of those it used before."""
        if old is not None:
            for key in claims_of(old):
                self._users[key].discard(old.metadata.uid)
                if not self._users[key]:
                    del self._users[key]
        if new is not None:
            for key in claims_of(new):
                self._users.setdefault(key, set()).add(new.metadata.uid)

    # For those who wait.

    def is_as_of(self, key: str, version: int) -> bool:
        """Tell whether what is known of a claim or volume is from that version of it, or a later one."""
        return self._versions.get(key, 0) >= version

    @contextmanager
    def news_of(self, keys: Iterable[str]) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever there is news of one of these: claims, volumes, or whatever is told."""
        event, watched = asyncio.Event(), tuple(keys)
        for key in watched:
            self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            for key in watched:
                self._waiting[key].discard(event)
                if not self._waiting[key]:
                    del self._waiting[key]

    def tell(self, key: str) -> None:
        """Wake those who wait for news of this."""
        for event in self._waiting.get(key, ()):
            event.set()

    def _take(self, change: Change[S], put: Callable[[S], None], remove: Callable[[str], None]) -> None:
        """Bring the catalogue up to date, and say so where that changed anything."""
        version = self._storage.version
        match change:
            case Added() | Modified():
                self.objects[type(change.new).__name__, change.key] = change.new
                put(change.new)
            case Deleted():
                self.objects.pop((type(change.old).__name__, change.key), None)
                remove(change.key)
        if self._storage.version != version:
            self._moved()

    def _note(self, change: Change[PersistentVolumeClaim] | Change[PersistentVolume]) -> None:
        """Remember the version of a claim or volume, and wake those who wait for news of it."""
        match change:
            case Added() | Modified():
                self._versions[change.key] = version_of(change.new.metadata)
            case Deleted():
                self._versions.pop(change.key, None)
        self.tell(_key(change))


def version_of(meta: ObjectMeta) -> int:
    """Return the version of an object: a number that only grows, which Kubernetes promises since 1.35."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0


def _key(change: Change[PersistentVolumeClaim] | Change[PersistentVolume]) -> str:
    """Return the name of what has changed, if anything has."""
    return "" if isinstance(change, Synced) else change.key
