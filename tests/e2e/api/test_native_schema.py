"""Our fields are those of scheduling.k8s.io, and our additions are marked."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_api.manifests import EXTENSIONS
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import NATIVE_GROUP, VERSION
from cpg_client.errors import ApiError
from cpg_client.patching import apply_status
from cpg_client.resources import NATIVE_POD_GROUPS_ALPHA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.api.conftest import Api

Schema = dict[str, Any]

FACETS = ("type", "format", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
"""The properties of a field that have to be the same, beside its name."""

POLICY = ".spec.schedulingPolicy: required there"
INTENDED = {
    "Workload": [".status: ours alone"],
    "PodGroup": [POLICY, ".status.conditions[].message: required there"],
    "CompositePodGroup": [POLICY, ".status.conditions[].message: required there"],
}
"""Intended differences: our Workload has conditions, the message of a condition is optional, and a group may have the
policy of its template."""

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("kind", INTENDED)
async def test_our_fields_are_the_native_ones_and_our_additions(
    native_api: "Api", crd_files: "dict[str, Path]", kind: str
) -> None:
    """So an object moves from one API to the other by a change of its apiVersion."""
    answer = await native_api.connection.get(f"/openapi/v3/apis/{NATIVE_GROUP}/{VERSION}")
    known: dict[str, Schema] = msgspec.json.decode(answer)["components"]["schemas"]
    (native,) = (schema for name, schema in known.items() if name.endswith(f".scheduling.{VERSION}.{kind}"))
    ours = yaml.safe_load(crd_files[kind].read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert sorted(differences(ours, native, known)) == INTENDED[kind]


async def test_the_native_api_takes_no_attempt(native_api: "Api") -> None:
    """So the scheduler applies the condition of a native group without it."""
    group = {"metadata": {"name": "attempted"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    await native_api.create("PodGroup", group)
    target = ObjectMeta(name="attempted", namespace="default")
    status = {"attempt": {"finding": "Impossible"}}
    with pytest.raises(ApiError, match="field not declared in schema"):
        await apply_status(
            native_api.connection, NATIVE_POD_GROUPS_ALPHA, target, status=status, manager="cpg-scheduler"
        )


def differences(ours: Schema, native: Schema, known: dict[str, Schema], path: str = "") -> Iterator[str]:
    """Yield the differences of two schemas and of all schemas inside; ours limits the depth."""
    native = resolved(native, known)
    if path == ".metadata" or ours.get("items", {}).get("x-kubernetes-preserve-unknown-fields"):
        return
    for facet in FACETS:
        if ours.get(facet) != native.get(facet) and (facet, ours.get(facet)) != ("enum", ["True", "False", "Unknown"]):
            yield f"{path}: {facet} is {native.get(facet)} there and {ours.get(facet)} here"
    fields, there = ours.get("properties", {}), native.get("properties", {})
    yield from (f"{path}.{name}: native alone" for name in there.keys() - fields.keys())
    yield from (f"{path}.{name}: ours alone" for name in fields.keys() - there.keys() - EXTENSIONS)
    yield from (f"{path}.{name}: required there" for name in required(native) - required(ours))
    yield from (f"{path}.{name}: required here" for name in required(ours) - required(native))
    for name in fields.keys() & there.keys():
        yield from differences(fields[name], there[name], known, f"{path}.{name}")
    if "properties" in ours.get("items", {}):
        yield from differences(ours["items"], native["items"], known, f"{path}[]")


def required(schema: Schema) -> set[str]:
    """Return the required fields."""
    return set(schema.get("required", ()))


def resolved(schema: Schema, known: dict[str, Schema]) -> Schema:
    """Return a schema with its reference resolved."""
    (reference,) = schema.get("allOf") or [schema]
    if "$ref" not in reference:
        return schema
    return known[reference["$ref"].rpartition("/")[2]] | {key: schema[key] for key in FACETS if key in schema}
