"""How the lists and maps of each kind are merged, as the OpenAPI of Kubernetes says.

``schemas.json`` is generated from a real server. A list or map without an entry is the usual one: a map is merged by
its keys, a list is replaced as a whole.
"""

from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from cpg_client.resources import LEASES, Resource
from cpg_simulation.apiserver.values import Object


class Schema(Struct, frozen=True, omit_defaults=True):
    """One value: ``keys`` identify the items of a list for an apply, ``merge`` is their key in a strategic merge."""

    keys: tuple[str, ...] = ()
    is_set: bool = False
    is_atomic: bool = False
    merge: str | None = None
    fields: "dict[str, Schema]" = {}
    items: "Schema | None" = None
    values: "Schema | None" = None
    default: Object | None = None
    required: tuple[str, ...] = ()
    """Fields that an object must have; only those of custom resources are known."""

    def field(self, name: str) -> "Schema":
        """Return the schema of a field."""
        return self.fields.get(name) or self.values or PLAIN

    def item(self) -> "Schema":
        """Return the schema of the items."""
        return self.items or PLAIN


PLAIN = Schema()


@cache
def _schemas() -> dict[str, Schema]:
    return json.decode((Path(__file__).parent / "schemas.json").read_bytes(), type=dict[str, Schema])


@cache
def schema_of(resource: Resource) -> Schema:
    """Return the schema of a kind; of an unknown one, only metadata are known, as of a Lease."""
    found = _schemas()
    return found.get(f"{resource.api_version} {resource.kind}") or found[f"{LEASES.api_version} {LEASES.kind}"]


@cache
def default_schema_of(resource: Resource) -> Schema | None:
    """Return the part of a schema that has defaults."""
    return _with_default(schema_of(resource))


def _with_default(schema: Schema) -> Schema | None:
    fields = {name: found for name, below in schema.fields.items() if (found := _with_default(below)) is not None}
    return Schema(fields=fields, default=schema.default) if fields or schema.default is not None else None


def missing_field(schema: Schema, found: Any, path: str = "") -> str:  # noqa: ANN401  # JSON values
    """Return the path of a field that is required and missing; empty if there is none."""
    if isinstance(found, list):
        places = ((f"{path}[{place}]", schema.item(), one) for place, one in enumerate(found) if schema.items)
    elif isinstance(found, dict):
        for name in schema.required:
            if name not in found:
                return f"{path}.{name}"
        places = ((f"{path}.{name}", schema.fields[name], one) for name, one in found.items() if name in schema.fields)
    else:
        return ""
    return next(filter(None, (missing_field(below, one, where) for where, below, one in places)), "")


def with_defaults(schema: Schema, found: Object) -> Object:
    """Return an object with the defaults of its fields."""
    for name, below in schema.fields.items():
        if below.default is not None and name not in found:
            found = {**found, name: below.default}
        elif below.fields and isinstance(found.get(name), dict):
            inner = with_defaults(below, found[name])
            found = found if inner is found[name] else {**found, name: inner}
    return found
