"""The owners of workloads of other projects, such as JobSets, and the owners that control these, such as TrainJobs."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from cpg_api.integrations.trees import OwnerKind
from cpg_api.meta import OwnerReference
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import DERIVED_FROM
from cpg_api.scheduling.workload import Workload
from cpg_client.resources import Resource
from cpg_client.stores import Added, Change, Deleted, Modified, Synced

K = TypeVar("K")
MAX_CONTROLLERS = 4
"""Above one owner. References may form a cycle."""


class ServedOwner(Struct, frozen=True):
    """A kind of owner, and the resource by which it is read."""

    kind: OwnerKind
    resource: Resource
    watches: int = 1
    """How many watches read it: one for each namespace, or one for all."""


class OwnerIndex:
    """Owners by kind, namespace and name. Each change adds the owner to the work queue."""

    def __init__(self, enqueue: Callable[[GroupKey], None]) -> None:
        """Start without owners."""
        self._enqueue = enqueue
        self._served: dict[str, ServedOwner] = {}
        self._owners: dict[GroupKey, Any] = {}
        self._controlled: dict[GroupKey, set[GroupKey]] = {}
        self._listed: dict[str, set[str | None]] = {}
        """By kind the namespaces that have been listed; None for all."""
        self._with_workload: set[GroupKey] = set()
        """What Workloads were made for, whether it exists or not, with the kind in lower case."""
        self._with_other_workload: set[str] = set()

    def served(self, kind: str) -> ServedOwner | None:
        """Return a kind of owner, if it is served."""
        return self._served.get(kind)

    def get(self, key: GroupKey) -> Any:  # noqa: ANN401  # each kind has a type of its own
        """Return an owner, or None."""
        return self._owners.get(key)

    def is_gone(self, key: GroupKey) -> bool:
        """Return whether an owner does not exist, which is known once its kind has been listed."""
        return key not in self._owners and not self._listed.get(key.kind, set()).isdisjoint({None, key.namespace})

    def is_read(self, kind: str) -> bool:
        """Return whether all objects of a kind are known."""
        served = self._served.get(kind)
        return served is not None and len(self._listed.get(kind, ())) == served.watches

    def has_other_workload(self, uid: str) -> bool:
        """Return whether an owner controls a Workload that is none of ours."""
        return uid in self._with_other_workload

    def controllers(self, owner: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
        """Return the controllers of an owner, as far as their kinds are served; None while one is not known yet."""
        found: list[Any] = []
        while (reference := self._controller(owner)) is not None and len(found) < MAX_CONTROLLERS:
            owner = self._owners.get(GroupKey(reference.kind, owner.metadata.namespace, reference.name))
            if owner is None or owner.metadata.uid != reference.uid:
                return None
            found.append(owner)
        return tuple(found)

    def controlled(self, key: GroupKey) -> list[Any]:
        """Return the owners that an owner controls, in order of their names."""
        controller, found = self._owners[key], (self._owners.get(one) for one in sorted(self._controlled.get(key, ())))
        return [
            one
            for one in found
            if one is not None and any(each.uid == controller.metadata.uid for each in one.metadata.owner_references)
        ]

    def is_part_of_another(self, owner: Any, kind: str) -> bool:  # noqa: ANN401
        """Return whether the tree of an owner of this kind is part of that of its controller."""
        reference = self._controller(owner)
        return reference is not None and self._served[reference.kind].kind.composed_of == kind

    def add_kind(self, kind: OwnerKind, resource: Resource, *, watches: int = 1) -> None:
        """Note that a kind is served, and how many watches read it."""
        self._served[kind.kind] = ServedOwner(kind, resource, watches)

    def forget_kind(self, kind: str) -> None:
        """Forget a kind that is served no longer, and its objects."""
        del self._served[kind]
        self._listed.pop(kind, None)
        for key in [key for key in self._owners if key.kind == kind]:
            del self._owners[key]

    def take(self, kind: str, change: Change[Any], namespace: str | None = None) -> None:
        """Take a change of an owner, from the watch of a namespace or of all."""
        if isinstance(change, Synced):
            self._on_listed(kind, namespace)
        elif isinstance(change, Added | Modified):
            self._replace(GroupKey(kind, change.new.metadata.namespace, change.new.metadata.name), change.new)
        elif isinstance(change, Deleted):
            self._replace(GroupKey(kind, change.old.metadata.namespace, change.old.metadata.name), None)

    def on_workload(self, workload: Workload, *, exists: bool) -> None:
        """Take a change of a Workload: its owner may have to make it anew, or may be gone."""
        if DERIVED_FROM not in workload.metadata.annotations:
            controllers = {one.uid for one in workload.metadata.owner_references if one.controller}
            _note(self._with_other_workload, controllers, exists=exists)
            return
        _note(self._with_workload, {_derived_from(workload)}, exists=exists)
        key = self._key_of(workload)
        if key is not None and (key in self._owners or self.is_gone(key)):
            self._enqueue(key)

    def owner_of(self, workload: Workload) -> GroupKey | None:
        """Return the owner for which a Workload was made, if it is known."""
        key = self._key_of(workload)
        return key if key in self._owners else None

    def _key_of(self, workload: Workload) -> GroupKey | None:
        """Return the owner for which a Workload was made, known or not, if its kind is served."""
        named = _derived_from(workload)
        return next((named._replace(kind=kind) for kind in self._served if kind.lower() == named.kind), None)

    def _on_listed(self, kind: str, namespace: str | None) -> None:
        """Add the owners with trees that consist of this kind, and those that are gone but have Workloads."""
        self._listed.setdefault(kind, set()).add(namespace)
        composed = (key for key in self._owners if self._is_composed_of(key, kind))
        named = (key._replace(kind=kind) for key in self._with_workload if key.kind == kind.lower())
        for key in sorted({*composed, *filter(self.is_gone, named)}):
            self._enqueue(key)

    def _replace(self, key: GroupKey, found: Any) -> None:  # noqa: ANN401
        """Take the present state of an owner, or None. Its controller and the owners that it controls may follow."""
        old = self._owners.pop(key, None)
        if found is not None:
            self._owners[key] = found
        self._enqueue(key)
        before, after = self._controller_key(old), self._controller_key(found)
        if before is not None and before != after:
            self._controlled.get(before, set()).discard(key)
        if after is not None:
            self._controlled.setdefault(after, set()).add(key)
        for controller in {before, after}:
            if controller is not None and self._is_composed_of(controller, key.kind):
                self._enqueue(controller)
        if _wishes(old) != _wishes(found):
            for one in self._controlled.get(key, ()):
                self._enqueue(one)

    def _controller_key(self, owner: Any) -> GroupKey | None:  # noqa: ANN401
        reference = self._controller(owner) if owner is not None else None
        return GroupKey(reference.kind, owner.metadata.namespace, reference.name) if reference is not None else None

    def _is_composed_of(self, key: GroupKey, kind: str) -> bool:
        served = self._served.get(key.kind)
        return served is not None and served.kind.composed_of == kind

    def _controller(self, owner: Any) -> OwnerReference | None:  # noqa: ANN401
        """Return the reference to the controller of an owner, if its kind is served."""
        references: tuple[OwnerReference, ...] = owner.metadata.owner_references
        for one in references:
            served = self._served.get(one.kind)
            if one.controller and served is not None and one.api_version.startswith(f"{served.kind.group}/"):
                return one
        return None


def _derived_from(workload: Workload) -> GroupKey:
    """Return the owner that a Workload names, with the kind in lower case."""
    kind, _, name = workload.metadata.annotations.get(DERIVED_FROM, "").partition("/")
    return GroupKey(kind, workload.metadata.namespace, name)


def _note(known: set[K], found: set[K], *, exists: bool) -> None:
    """Add what exists, and remove what does not."""
    if exists:
        known |= found
    else:
        known -= found


def _wishes(owner: Any) -> tuple[str, dict[str, str]] | None:  # noqa: ANN401
    """Return the parts of an owner on which the trees of those that it controls depend."""
    return (owner.metadata.uid, owner.metadata.annotations) if owner is not None else None
