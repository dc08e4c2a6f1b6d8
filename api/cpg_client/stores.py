"""A store of the objects of a collection, which reports changes.

A store turns events and lists into changes by three rules:

1. **The changes reproduce the store.** A reader that applies them one by one has the store's content after each of
   them. None is lost or repeated. A list after a gap is reported as its difference to the known objects.
2. **A name is not an identity.** The same name with another UID is another object. The old one is deleted and the new
   one added, even where the server's events do not show that.
3. **An object that does not fit is absent.** An object that its type or projection rejects is reported once and leaves
   the store, also where an earlier version did fit. So the content depends on what the server has now, and not on what
   it had at the start.

No I/O and no clock; ``reflector`` feeds it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_api.problems import Problem
from cpg_client.watching import WatchEvent

T = TypeVar("T", bound=Struct)
S = TypeVar("S")

LARGE_BYTES: Final = 128 << 10
"""Bytes of a projection, as JSON, above which it is reduced. In memory it takes three to fourteen times as many."""


@dataclass(frozen=True, slots=True)
class Added(Generic[S]):
    """A new object."""

    key: str
    new: S


@dataclass(frozen=True, slots=True)
class Modified(Generic[S]):
    """A new version of an object; versions between the two may have been missed."""

    key: str
    old: S
    new: S


@dataclass(frozen=True, slots=True)
class Deleted(Generic[S]):
    """A deleted object; ``old`` is its last known version."""

    key: str
    old: S


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that does not fit, so it is not in the store. The key is empty where it cannot be read."""

    key: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """The first list has been delivered; reported once."""


Change: TypeAlias = Added[S] | Modified[S] | Deleted[S] | Rejection | Synced


class _Identity(Struct, frozen=True, gc=False):
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class StoredObject(Generic[S]):
    """An object that fits: its key, its identity and its projection."""

    key: str
    identity: _Identity
    projected: S


class _Identified(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def keep_whole(found: T) -> T:
    """Return the object itself: the projection that keeps everything."""
    return found


class ObjectStore(Generic[T, S]):
    """Objects by ``namespace/name``; of each, the store keeps the result of ``project``.

    A projection may return ``Rejected``. An exception from it is a bug. A change that the projection does not show is
    not reported. Where the projection has more than ``LARGE_BYTES`` as JSON, ``reduce`` says what is kept.
    """

    def __init__(
        self,
        kind: type[T],
        project: Callable[[T], S | Rejected],
        decode: Callable[[Raw, type[T]], T | Rejected] = parse_object,
        *,
        reduce: Callable[[S], S | Rejected] | None = None,
        namespaced: bool = True,
    ) -> None:
        if "metadata" not in kind.__struct_fields__:
            raise TypeError(f"{kind.__name__} has no metadata to know its objects by")
        self._kind = kind
        self._project = project
        self._decode = decode
        self._reduce = reduce
        self._namespaced = namespaced
        self._identities: dict[str, _Identity] = {}
        self._objects: dict[str, S] = {}
        self._rejected: dict[str, Rejected] = {}

    @property
    def objects(self) -> Mapping[str, S]:
        """The objects, as a live view."""
        return MappingProxyType(self._objects)

    @property
    def rejected(self) -> Mapping[str, Rejected]:
        """The rejected objects, as a live view."""
        return MappingProxyType(self._rejected)

    def read(self, raw: Raw) -> StoredObject[S] | Rejected:
        """Decode and project one object, without changing the store."""
        found = self._decode(raw, self._kind)
        if isinstance(found, Rejected):
            return found
        metadata = cast("_Identified", found).metadata
        if not self._is_identified(metadata):
            return Rejected(metadata.key, (Problem("metadata", "Not the name, namespace and UID of an object"),))
        kept = self._project(found)
        if isinstance(kept, Rejected):
            return kept
        if self._reduce and len(raw) > LARGE_BYTES and len(msgspec.json.encode(kept)) > LARGE_BYTES:
            kept = self._reduce(kept)
            if isinstance(kept, Rejected):
                return kept
        return StoredObject(metadata.key, _Identity(metadata.uid, metadata.resource_version), kept)

    def apply(self, event: WatchEvent) -> Iterator[Change[S]]:
        """Apply one event, except bookmarks. The store changes while the changes are iterated."""
        found = self.read(event.object)
        if event.type == "DELETED":
            return self._remove(found.name if isinstance(found, Rejected) else found.key)
        return self._put(found)

    def replace(self, snapshot: Iterable[StoredObject[S] | Rejected]) -> Iterator[Change[S]]:
        """Apply a whole list: first deletions, then new and changed objects."""
        listed = {found.name if isinstance(found, Rejected) else found.key: found for found in snapshot}
        for key in [key for known in (self._objects, self._rejected) for key in known if key not in listed]:
            yield from self._remove(key)
        for found in listed.values():
            yield from self._put(found)

    def differing(self, snapshot: Iterable[StoredObject[S] | Rejected]) -> Iterator[tuple[str, str, str]]:
        """Yield key, known and listed version of each known object that a list has in another version."""
        for found in snapshot:
            known = self._identities.get(found.key) if isinstance(found, StoredObject) else None
            if known is None or not isinstance(found, StoredObject) or known.uid != found.identity.uid:
                continue
            if known.resource_version != found.identity.resource_version:
                yield found.key, known.resource_version, found.identity.resource_version

    def _is_identified(self, metadata: ObjectMeta) -> bool:
        """Return whether metadata names an object as every API server does: keys are split at their slash."""
        name, namespace = metadata.name, metadata.namespace
        return bool(name and metadata.uid) and bool(namespace) == self._namespaced and "/" not in name + namespace

    def _put(self, found: StoredObject[S] | Rejected) -> Iterator[Change[S]]:
        if isinstance(found, Rejected):
            yield from self._reject(found)
            return
        key, known = found.key, self._identities.get(found.key)
        if known is not None and known.uid == found.identity.uid:
            self._identities[key] = found.identity
            if known != found.identity and self._objects[key] != found.projected:
                old, self._objects[key] = self._objects[key], found.projected
                yield Modified(key, old, found.projected)
            return
        yield from self._remove(key)
        self._identities[key], self._objects[key] = found.identity, found.projected
        yield Added(key, found.projected)

    def _reject(self, rejected: Rejected) -> Iterator[Change[S]]:
        key = rejected.name
        if self._rejected.get(key) != rejected:
            yield from self._remove(key)
            self._rejected[key] = rejected
            yield Rejection(key, rejected.problems)

    def _remove(self, key: str) -> Iterator[Change[S]]:
        self._rejected.pop(key, None)
        if self._identities.pop(key, None) is not None:
            yield Deleted(key, self._objects.pop(key))
