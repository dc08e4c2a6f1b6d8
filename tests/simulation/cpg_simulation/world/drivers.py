"""The driver of devices: it publishes those of each node."""

from collections.abc import Iterable

from cpg_client.resources import NODES, RESOURCE_SLICES
from cpg_simulation.nights import manifests
from cpg_simulation.nights.plan import NodePlan
from cpg_simulation.world.cluster_client import ClusterClient


class DeviceDriver:
    """Keeps one ResourceSlice for each node that has devices, for as long as the node is there."""

    def __init__(self, nodes: Iterable[NodePlan], client: ClusterClient) -> None:
        """Publish nothing yet."""
        self._plans = [plan for plan in nodes if plan.devices]
        self._client = client

    def sync(self) -> None:
        """Publish what is missing, and delete what has no node."""
        for plan in self._plans:
            node, found = self._client.get(NODES, plan.name), self._client.get(RESOURCE_SLICES, plan.name)
            if node is not None and found is None:
                self._client.create(RESOURCE_SLICES, manifests.resource_slice(plan, node), "driver")
            elif node is None and found is not None:
                self._client.delete(RESOURCE_SLICES, plan.name, "garbage-collector")
