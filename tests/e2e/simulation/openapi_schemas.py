"""How lists and maps are merged, by the OpenAPI of a real API server."""

from pathlib import Path
from typing import Any

import cpg_simulation.apiserver
import msgspec
from cpg_simulation.apiserver import kinds
from cpg_simulation.apiserver.schemas import Schema

from cpg_client.resources import Resource, group_path
from cpg_lab.blocking_client import BlockingClient

FILE = Path(cpg_simulation.apiserver.__file__).parent / "schemas.json"
MAX_DEPTH = 12
"""Templates of Workloads contain templates."""


def schemas_of(real: BlockingClient) -> bytes:
    """Return the schemas of all kinds, as in the file."""
    found = {f"{kind.resource.api_version} {kind.resource.kind}": _schema(real, kind.resource) for kind in kinds.ALL}
    return msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1) + b"\n"


def _schema(real: BlockingClient, resource: Resource) -> Schema:
    path = f"/openapi/v3{group_path(resource.group, resource.version)}"
    known = real.get(path)["components"]["schemas"]
    wanted = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    (found,) = (one for one in known.values() if one.get("x-kubernetes-group-version-kind") == [wanted])
    return _read(found, known, MAX_DEPTH)


def _read(found: dict[str, Any], known: dict[str, Any], depth: int) -> Schema:
    found = _resolved(found, known)
    if not depth:
        return Schema()
    values = found.get("additionalProperties")
    properties = {name: _read(one, known, depth - 1) for name, one in found.get("properties", {}).items()}
    return Schema(
        keys=tuple(found.get("x-kubernetes-list-map-keys", ())),
        is_set=found.get("x-kubernetes-list-type") == "set",
        is_atomic=found.get("x-kubernetes-map-type") == "atomic",
        merge=_merge_key(found),
        fields={name: one for name, one in properties.items() if one != Schema()},
        items=_unless_plain(found.get("items"), known, depth),
        values=_unless_plain(values if isinstance(values, dict) else None, known, depth),
        default=found.get("default") or None if isinstance(found.get("default"), dict) else None,
    )


def _unless_plain(found: dict[str, Any] | None, known: dict[str, Any], depth: int) -> Schema | None:
    read = _read(found, known, depth - 1) if found else Schema()
    return read if read != Schema() else None


def _merge_key(found: dict[str, Any]) -> str | None:
    strategies = found.get("x-kubernetes-patch-strategy", "").split(",")
    key = found.get("x-kubernetes-patch-merge-key", "" if "merge" in strategies else None)
    return key if found.get("type") == "array" else None


def _resolved(found: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in place of a reference to it."""
    while "$ref" in found or len(found.get("allOf", ())) == 1:
        if "$ref" in found:
            rest = {name: one for name, one in found.items() if name != "$ref"}
            found = known[found["$ref"].rsplit("/", 1)[-1]] | rest
        else:
            rest = {name: one for name, one in found.items() if name != "allOf"}
            found = found["allOf"][0] | rest
    return found
