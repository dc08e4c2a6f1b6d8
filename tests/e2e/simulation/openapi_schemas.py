"""How lists and maps are merged, by the OpenAPI of a real API server."""

from pathlib import Path
from typing import Any

import msgspec

import cpg_simulation.apiserver
from cpg_client.resources import group_path
from cpg_lab.blocking_client import BlockingClient
from cpg_simulation.apiserver import kinds
from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.schemas import Schema

FILE = Path(cpg_simulation.apiserver.__file__).parent / "schemas.json"
MAX_DEPTH = 12
"""Templates of Workloads contain templates."""
Known = dict[str, Any]


def schemas_of(real: BlockingClient) -> bytes:
    """Return the schemas of all kinds, as in the file."""
    found = {f"{kind.resource.api_version} {kind.resource.kind}": _schema(real, kind) for kind in kinds.ALL}
    return msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1) + b"\n"


def _schema(real: BlockingClient, kind: Kind) -> Schema:
    resource = kind.resource
    document = real.get(f"/openapi/v3{group_path(resource.group, resource.version)}")
    known = document["components"]["schemas"]
    wanted = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    (found,) = (one for one in known.values() if one.get("x-kubernetes-group-version-kind") == [wanted])
    return _Reader(known, is_custom=kind.is_custom).read(found, MAX_DEPTH)


class _Reader:
    """Reads the schemas of one document."""

    def __init__(self, known: Known, *, is_custom: bool) -> None:
        """Take the definitions; built-in kinds have checks of their own for required fields."""
        self._known = known
        self._is_custom = is_custom

    def read(self, found: Known, depth: int) -> Schema:
        """Return a schema with those below it."""
        found = self._resolved(found)
        if not depth:
            return Schema()
        values, default = found.get("additionalProperties"), found.get("default")
        properties = {name: self.read(one, depth - 1) for name, one in found.get("properties", {}).items()}
        return Schema(
            keys=tuple(found.get("x-kubernetes-list-map-keys", ())),
            is_set=found.get("x-kubernetes-list-type") == "set",
            is_atomic=found.get("x-kubernetes-map-type") == "atomic",
            merge=_merge_key(found),
            fields={name: one for name, one in properties.items() if one != Schema()},
            items=self._unless_plain(found.get("items"), depth),
            values=self._unless_plain(values if isinstance(values, dict) else None, depth),
            default=default if isinstance(default, dict) and default else None,
            required=tuple(sorted(found.get("required", ()))) if self._is_custom else (),
        )

    def _unless_plain(self, found: Known | None, depth: int) -> Schema | None:
        read = self.read(found, depth - 1) if found else Schema()
        return read if read != Schema() else None

    def _resolved(self, found: Known) -> Known:
        """Return a schema in place of a reference to it."""
        while "$ref" in found or len(found.get("allOf", ())) == 1:
            rest = {name: one for name, one in found.items() if name not in ("$ref", "allOf")}
            target = self._known[found["$ref"].rsplit("/", 1)[-1]] if "$ref" in found else found["allOf"][0]
            found = target | rest
        return found


def _merge_key(found: Known) -> str | None:
    strategies = found.get("x-kubernetes-patch-strategy", "").split(",")
    key = found.get("x-kubernetes-patch-merge-key", "" if "merge" in strategies else None)
    return key if found.get("type") == "array" else None
