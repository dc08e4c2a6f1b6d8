"""Which manager owns which fields of an object, and server-side apply.

Only an apply needs the owners, and most objects never see one. So a write is only noted, and the owners are computed
from all noted writes when they are needed.
"""

from functools import cached_property
from typing import Any, NamedTuple

from cpg_simulation.apiserver.field_sets import (
    UNMANAGED,
    FieldSet,
    Path,
    as_json,
    as_text,
    differences,
    fields_of,
    with_parents,
    without,
)
from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.patches import combine
from cpg_simulation.apiserver.refusals import managed_by_others
from cpg_simulation.apiserver.schemas import schema_of
from cpg_simulation.apiserver.values import Object


class Manager(NamedTuple):
    """A field manager: the same name counts separately for applies and for each subresource."""

    name: str
    applies: bool
    subresource: str


class Managed:
    """The owners of the fields of one version of an object."""

    def __init__(
        self,
        kind: Kind,
        before: "Managed | None" = None,
        write: tuple[Manager, Object | None, Object] | None = None,
        owners: dict[Manager, FieldSet] | None = None,
    ) -> None:
        """Start with known owners, or with those before a write."""
        self.kind = kind
        self._before = before
        self._write = write
        if owners is not None:
            self.owners = owners

    def updated(self, manager: Manager, old: Object | None, new: Object) -> "Managed":
        """Return the owners after a write that is no apply."""
        return Managed(self.kind, self, (manager, old, new))

    def is_same(self, other: "Managed") -> bool:
        """Return whether the owners are the same."""
        return self is other or self.owners == other.owners

    @cached_property
    def owners(self) -> dict[Manager, FieldSet]:
        """The fields of each manager."""
        chain = []
        node: Managed | None = self
        while node is not None and "owners" not in node.__dict__:
            chain.append(node)
            node = node._before
        owners = node.owners if node is not None else {}
        for one in reversed(chain):
            if one._write is not None:
                owners = _after_update(self.kind, owners, *one._write)
        return owners

    def entries(self, time: str) -> list[dict[str, Any]]:
        """Return ``metadata.managedFields``."""
        return [
            {
                "manager": manager.name,
                "operation": "Apply" if manager.applies else "Update",
                "apiVersion": self.kind.resource.api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": as_json(fields),
            }
            | ({"subresource": manager.subresource} if manager.subresource else {})
            for manager, fields in sorted(self.owners.items())
        ]


def _after_update(
    kind: Kind, owners: dict[Manager, FieldSet], manager: Manager, old: Object | None, new: Object
) -> dict[Manager, FieldSet]:
    parts: Object = {} if kind.is_custom else {"spec": {}, "status": {}}
    changed, removed = differences(old if old is not None else {"metadata": {}} | parts, new, schema_of(kind.resource))
    after = {one: fields - changed - removed for one, fields in owners.items() if one != manager}
    after[manager] = (owners.get(manager, frozenset()) - removed) | changed
    return {one: fields for one, fields in after.items() if fields}


def apply(
    managed: Managed, live: Object, config: Object, manager: Manager, *, force: bool
) -> tuple[Object, dict[Manager, FieldSet]]:
    """Return an object and the owners of its fields after an apply of a configuration."""
    schema = schema_of(managed.kind.resource)
    owners = dict(managed.owners)
    before = owners.get(manager, frozenset())
    owners[manager] = frozenset(fields_of(config, schema)) - UNMANAGED
    merged = combine(live, config, schema)
    owned = frozenset[Path]().union(*owners.values())
    dropped = frozenset[Path]() if before <= owned else with_parents(before) - with_parents(owned) - UNMANAGED
    new = without(merged, schema, dropped) if dropped else merged
    changed, removed = differences(live, new, schema)
    conflicts = [
        (one.name, as_text(field))
        for one, fields in owners.items()
        if one != manager
        for field in sorted(fields & changed)
    ]
    if conflicts and not force:
        raise managed_by_others(conflicts)
    after = {one: fields if one == manager else fields - changed - removed for one, fields in owners.items()}
    return new, {one: fields for one, fields in after.items() if fields}
