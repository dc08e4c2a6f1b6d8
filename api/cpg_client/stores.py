"""The objects of a collection as they were last heard of, and how that differs from what was heard before.

A store turns what a server says into changes, by three rules:

1. **The changes are the store.** Who applies them one by one has what the store has, after each of them; none is
   lost, none comes twice. A list after a gap therefore comes out as its difference to what was known.
2. **A name is not an identity.** The same name with another UID is another object: the old one is deleted, then the
   new one added, even where the server's events do not show it.
3. **What does not fit is not there.** An object that its type or its projection rejects is reported, once, and leaves
   the store, also if an earlier state of it did fit; so a store depends on what the server holds now, and
   not on what it held when we started.

No I/O and no clock; ``reflecting`` feeds it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct

from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_api.problems import Problem
from cpg_client.watching import WatchEvent

T = TypeVar("T", bound=Struct)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Added(Generic[S]):
    """An object that was not there."""

    key: str
    new: S


@dataclass(frozen=True, slots=True)
class Modified(Generic[S]):
    """The same object in another state; states between the two may have been missed."""

    key: str
    old: S
    new: S


@dataclass(frozen=True, slots=True)
class Deleted(Generic[S]):
    """An object that is there no more; ``old`` is how it was last known."""

    key: str
    old: S


@dataclass(frozen=True, slots=True)
class Rejection:
    """An object that does not fit and is therefore not in the store; the key is empty where not even that fits."""

    key: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything that was there at the start has been told; comes once."""


Change: TypeAlias = Added[S] | Modified[S] | Deleted[S] | Rejection | Synced


class _Identity(Struct, frozen=True, gc=False):
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class StoredObject(Generic[S]):
    """An object that fits, and who it is."""

    key: str
    identity: _Identity
    projected: S


class _Identified(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def keep_whole(found: T) -> T:
    """Keep all of an object: the projection that is none."""
    return found


class ObjectStore(Generic[T, S]):
    """Keyed by ``namespace/name``; of each object is kept what ``project`` makes of it.

    A projection may return ``Rejected`` for an object that it can make nothing of; an exception from it is a
    mistake of the program. A change that the projection does not show is no change.
    """

    def __init__(self, kind: type[T], project: Callable[[T], S | Rejected]) -> None:
        if "metadata" not in kind.__struct_fields__:
            raise TypeError(f"{kind.__name__} has no metadata to know its objects by")
        self._kind = kind
        self._project = project
        self._identities: dict[str, _Identity] = {}
        self._objects: dict[str, S] = {}
        self._rejected: dict[str, Rejected] = {}

    @property
    def objects(self) -> Mapping[str, S]:
        """What is there, as a view that follows the changes."""
        return MappingProxyType(self._objects)

    @property
    def rejected(self) -> Mapping[str, Rejected]:
        """What is there and does not fit."""
        return MappingProxyType(self._rejected)

    def read(self, raw: Raw) -> StoredObject[S] | Rejected:
        """Decode and project one object, without touching the store."""
        found = parse_object(raw, self._kind)
        if isinstance(found, Rejected):
            return found
        kept = self._project(found)
        if isinstance(kept, Rejected):
            return kept
        metadata = cast("_Identified", found).metadata
        return StoredObject(metadata.key, _Identity(metadata.uid, metadata.resource_version), kept)

    def apply(self, event: WatchEvent) -> Iterator[Change[S]]:
        """Take in one event, bookmarks excepted; the store changes as the changes are drawn."""
        found = self.read(event.object)
        if event.type == "DELETED":
            return self._remove(found.name if isinstance(found, Rejected) else found.key)
        return self._put(found)

    def replace(self, snapshot: Iterable[StoredObject[S] | Rejected]) -> Iterator[Change[S]]:
        """Take in a whole list: first what is gone, then what is new or different."""
        listed = {found.name if isinstance(found, Rejected) else found.key: found for found in snapshot}
        for key in [key for known in (self._objects, self._rejected) for key in known if key not in listed]:
            yield from self._remove(key)
        for found in listed.values():
            yield from self._put(found)

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
