"""The garbage collectors of the controller manager."""

from collections.abc import Iterable

from cpg_client.resources import NODES, PODS, Resource
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient, name_of

SECONDS_BEFORE_PODS_OF_GONE_NODES_GO = 4.0


class GarbageCollector:
    """Deletes objects of some kinds whose owners are gone."""

    def __init__(self, client: ClusterClient, owners: Iterable[Resource], owned: Iterable[Resource]) -> None:
        """Look at these kinds."""
        self._client = client
        self._owners = tuple(owners)
        self._owned = tuple(owned)

    def sync(self) -> None:
        """Look at all of them."""
        there = {one["metadata"]["uid"] for kind in self._owners for one in self._client.objects(kind)}
        for resource in self._owned:
            for found in self._client.objects(resource):
                meta = found["metadata"]
                owners = [one["uid"] for one in meta.get("ownerReferences", ())]
                if owners and there.isdisjoint(owners) and not meta.get("deletionTimestamp"):
                    self._client.delete(resource, name_of(found), "garbage-collector")


class PodGarbageCollector:
    """Deletes the pods of nodes that have been gone for a while."""

    def __init__(self, coordinator: Coordinator, client: ClusterClient) -> None:
        """Know of no such pod yet."""
        self._coordinator = coordinator
        self._client = client
        self._gone_since: dict[str, float] = {}

    def sync(self) -> None:
        """Look at all pods."""
        nodes = {name_of(node) for node in self._client.objects(NODES)}
        for pod in self._client.pods():
            node = pod["spec"].get("nodeName")
            uid = pod["metadata"]["uid"]
            if not node or node in nodes:
                self._gone_since.pop(uid, None)
                continue
            since = self._gone_since.setdefault(uid, self._coordinator.now)
            if self._coordinator.now - since >= SECONDS_BEFORE_PODS_OF_GONE_NODES_GO:
                self._client.delete(PODS, name_of(pod), "pod-garbage-collector", grace=0)
