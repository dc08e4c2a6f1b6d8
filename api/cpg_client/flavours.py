"""The two flavours of the groups' API, and which of them a server has.

Both flavours, ours (``crd``) and the built-in one of Kubernetes (``native``), have the same kinds. So code that reads
groups needs only a table from kind to resource.
"""

from typing import Literal

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client import discovery, resources
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.resources import Resource

Api = Literal["auto", "crd", "native"]
NATIVE, CRD = "native", "crd"
KINDS: dict[str, dict[type, Resource]] = {
    NATIVE: {
        PodGroup: resources.NATIVE_POD_GROUPS,
        CompositePodGroup: resources.NATIVE_COMPOSITE_POD_GROUPS,
        Workload: resources.NATIVE_WORKLOADS,
    },
    CRD: {
        PodGroup: resources.CPG_POD_GROUPS,
        CompositePodGroup: resources.CPG_COMPOSITE_POD_GROUPS,
        Workload: resources.CPG_WORKLOADS,
    },
}


class FlavourNotServedError(ClientError):
    """The requested API is not served."""


async def served_flavours(connection: Connection, api: str) -> dict[str, dict[type, Resource]]:
    """Return the requested flavours that are served, with their served kinds."""
    found: dict[str, dict[type, Resource]] = {}
    for flavour, kinds in KINDS.items():
        if api not in {"auto", flavour}:
            continue
        served: set[Resource] = set()
        for group, version in {(kind.group, kind.version) for kind in kinds.values()}:
            served |= await discovery.served_resources(connection, group, version)
        names = {(one.group, one.version, one.plural) for one in served}
        there = {kind: one for kind, one in kinds.items() if (one.group, one.version, one.plural) in names}
        if PodGroup in there:
            found[flavour] = there
    if not found and api != "auto":
        raise FlavourNotServedError(f"the API server serves no PodGroups of the {api} flavour")
    return found
