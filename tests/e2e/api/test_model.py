"""The structs and the API server agree about objects."""

from typing import TYPE_CHECKING

import pytest

from cpg_api.manifests import SchedulingObject, to_manifest
from cpg_api.parsing import parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload

if TYPE_CHECKING:
    from tests.e2e.api.conftest import Api, Object

KINDS: dict[str, type[SchedulingObject]] = {kind.kind: kind for kind in (Workload, PodGroup, CompositePodGroup)}

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_the_model_keeps_every_field_of_a_stored_object(api: "Api", full: "tuple[str, Object]") -> None:
    """Decoding and encoding an object of the API server loses nothing."""
    kind, body = full
    await api.create(kind, {"metadata": {"name": "full"}, **body})
    found = parse_object(await api.connection.get(api.path(kind, "full")), KINDS[kind])
    assert isinstance(found, KINDS[kind])
    assert to_manifest(found)["spec"] == body["spec"]


async def test_a_new_group_reads_as_pending(api: "Api") -> None:
    """The model knows the condition that the API server fills in."""
    await api.create("PodGroup", {"metadata": {"name": "fresh"}, "spec": {"schedulingPolicy": {"basic": {}}}})
    found = parse_object(await api.connection.get(api.path("PodGroup", "fresh")), PodGroup)
    assert isinstance(found, PodGroup)
    assert [(condition.status, condition.reason) for condition in found.status.conditions or ()] == [
        ("Unknown", "Pending")
    ]
