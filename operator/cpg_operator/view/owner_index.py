"""The owners of workloads of other projects, such as JobSets."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cpg_api.integrations.trees import OwnerKind
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import DERIVED_FROM
from cpg_api.scheduling.workload import Workload
from cpg_client.resources import Resource
from cpg_client.stores import Added, Change, Deleted, Modified


class ServedOwner(Struct, frozen=True):
    """A kind of owner, and the resource by which it is read."""

    kind: OwnerKind
    resource: Resource


class OwnerIndex:
    """Owners by kind, namespace and name. Each change adds the owner to the work queue."""

    def __init__(self, enqueue: Callable[[GroupKey], None]) -> None:
        """Start without owners."""
        self._enqueue = enqueue
        self._served: dict[str, ServedOwner] = {}
        self._owners: dict[GroupKey, Any] = {}

    def served(self, kind: str) -> ServedOwner | None:
        """Return a kind of owner, if it is served."""
        return self._served.get(kind)

    def get(self, key: GroupKey) -> Any:  # noqa: ANN401  # each kind has a type of its own
        """Return an owner, or None."""
        return self._owners.get(key)

    def add_kind(self, kind: OwnerKind, resource: Resource) -> None:
        """Note that a kind is served."""
        self._served[kind.kind] = ServedOwner(kind, resource)

    def forget_kind(self, kind: str) -> None:
        """Forget a kind that is served no longer, and its objects."""
        del self._served[kind]
        for key in [key for key in self._owners if key.kind == kind]:
            del self._owners[key]

    def take(self, kind: str, change: Change[Any]) -> None:
        """Take a change of an owner."""
        if isinstance(change, Added | Modified):
            key = GroupKey(kind, change.new.metadata.namespace, change.new.metadata.name)
            self._owners[key] = change.new
        elif isinstance(change, Deleted):
            key = GroupKey(kind, change.old.metadata.namespace, change.old.metadata.name)
            self._owners.pop(key, None)
        else:
            return
        self._enqueue(key)

    def on_workload(self, workload: Workload) -> None:
        """Take a change of a Workload: its owner may have to make it anew."""
        kind, _, name = workload.metadata.annotations.get(DERIVED_FROM, "").partition("/")
        key = GroupKey(kind, workload.metadata.namespace, name)
        if key in self._owners:
            self._enqueue(key)
