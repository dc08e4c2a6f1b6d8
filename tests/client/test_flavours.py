"""The flavours of a server, and their kinds."""

from typing import TYPE_CHECKING

import pytest

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.connection import Connection
from cpg_client.flavours import CRD, KINDS, NATIVE, FlavourNotServedError, served_flavours

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer


def serve(server: "FakeServer", version: str, *plurals: str) -> None:
    """Serve a group-version with these kinds."""
    found = [{"name": plural, "kind": "K", "namespaced": True} for plural in plurals]
    server.answers("GET", f"/apis/{version}", {"resources": found})


async def test_all_served_kinds_are_found(server: "FakeServer", connection: Connection) -> None:
    """Of both flavours. The built-in one may serve PodGroups alone."""
    serve(server, "scheduling.cpg.dev/v1alpha3", "podgroups", "compositepodgroups", "workloads", "podgroups/status")
    serve(server, "scheduling.k8s.io/v1beta1", "podgroups", "workloads")
    assert await served_flavours(connection, "auto") == {
        NATIVE: {kind: KINDS[NATIVE][kind] for kind in (PodGroup, Workload)},
        CRD: {kind: KINDS[CRD][kind] for kind in (PodGroup, CompositePodGroup, Workload)},
    }
    assert list(await served_flavours(connection, "crd")) == [CRD]


async def test_a_flavour_without_pod_groups_is_not_served(server: "FakeServer", connection: Connection) -> None:
    """A request for it raises an error."""
    serve(server, "scheduling.cpg.dev/v1alpha3", "workloads")
    assert await served_flavours(connection, "auto") == {}
    with pytest.raises(FlavourNotServedError, match="no PodGroups of the crd flavour"):
        await served_flavours(connection, "crd")
