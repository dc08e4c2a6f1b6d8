"""The objects and their history, as etcd and the watch cache have them."""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec

from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.managed import Managed
from cpg_simulation.apiserver.values import Object

_TYPE = ("apiVersion", "kind")


class Stored:
    """One version of an object; it is encoded once."""

    def __init__(self, value: Object, managed: Managed, *, is_complete: bool = True) -> None:
        """Encode nothing yet; without the defaults that readers see, the next write is one even if nothing changes."""
        self.value = value
        self.managed = managed
        self.is_complete = is_complete

    @cached_property
    def plain(self) -> Object:
        """The object without its managed fields, which are kept beside it."""
        metadata = self.value["metadata"]
        if "managedFields" not in metadata:
            return self.value
        kept = {name: one for name, one in metadata.items() if name != "managedFields"}
        return {**self.value, "metadata": kept}

    @cached_property
    def body(self) -> bytes:
        """The object as JSON."""
        return msgspec.json.encode(self.value)

    @cached_property
    def item(self) -> bytes:
        """The object as an item of a list: built-in kinds have no type there."""
        if self.managed.kind.is_custom:
            return self.body
        return msgspec.json.encode({name: one for name, one in self.value.items() if name not in _TYPE})

    @property
    def revision(self) -> int:
        """The resource version."""
        return int(self.value["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class Change:
    """One change of an object: ``new`` is None where it is gone."""

    revision: int
    key: str
    old: Stored | None
    new: Stored | None

    @cached_property
    def deleted(self) -> bytes:
        """The object as it was, as JSON with the version of its end."""
        assert self.old is not None
        value = self.old.value
        return msgspec.json.encode({**value, "metadata": {**value["metadata"], "resourceVersion": str(self.revision)}})


@dataclass
class Collection:
    """All objects of one kind by ``namespace/name``, and all their changes."""

    kind: Kind
    objects: dict[str, Stored] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    _sorted: list[tuple[str, Stored]] | None = None

    def take(self, change: Change) -> None:
        """Take a change."""
        self._sorted = None
        self.changes.append(change)
        if change.new is None:
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.new

    def after(self, revision: int) -> int:
        """Return the place of the first change after a revision."""
        return bisect_right(self.changes, revision, key=lambda change: change.revision)

    def sorted(self) -> list[tuple[str, Stored]]:
        """Return all objects in the order of their keys."""
        if self._sorted is None:
            self._sorted = sorted(self.objects.items())
        return self._sorted

    def at(self, revision: int) -> list[tuple[str, Stored]]:
        """Return all objects as they were at a revision."""
        place = self.after(revision)
        if place == len(self.changes):
            return self.sorted()
        found = dict(self.objects)
        for change in reversed(self.changes[place:]):
            if change.old is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.old
        return sorted(found.items())


class State(NamedTuple):
    """A backup of etcd."""

    revision: int
    objects: dict[Kind, dict[str, Stored]]


class Storage:
    """All collections and the revision."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        """Start without objects."""
        self.revision = 1
        self.compacted = 0
        """The last revision that cannot be listed any more."""
        self.watched_since = 0
        """The revision after which changes can be watched."""
        self.collections = {kind: Collection(kind) for kind in kinds}

    def get(self, kind: Kind, key: str) -> Stored | None:
        """Return an object."""
        return self.collections[kind].objects.get(key)

    def put(self, kind: Kind, key: str, new: Object | None, managed: Managed) -> Stored | None:
        """Store a version of an object, or remove it; return what is stored."""
        self.revision += 1
        collection, stored = self.collections[kind], None
        if new is not None:
            new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.revision)}}
            is_complete = not (kind.is_completed_later and key not in collection.objects)
            stored = Stored(new, managed, is_complete=is_complete)
        collection.take(Change(self.revision, key, collection.objects.get(key), stored))
        return stored

    def save(self) -> State:
        """Return a backup."""
        return State(self.revision, {kind: dict(found.objects) for kind, found in self.collections.items()})

    def restore(self, state: State) -> None:
        """Go back to a backup; history begins anew."""
        self.revision = self.compacted = self.watched_since = state.revision
        self.collections = {kind: Collection(kind, dict(found)) for kind, found in state.objects.items()}
