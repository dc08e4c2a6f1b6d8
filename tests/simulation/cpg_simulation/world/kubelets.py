"""The kubelets: they start the pods of their nodes, and end those that are deleted."""

from random import Random

from cpg_client.resources import NODES, PODS
from cpg_simulation.apiserver.values import Write
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.claims import is_ready
from cpg_simulation.world.cluster_client import ClusterClient, key, name_of


class Kubelets:
    """The kubelets of all nodes."""

    def __init__(self, coordinator: Coordinator, client: ClusterClient, random: Random) -> None:
        """Know no pod yet."""
        self.rejecting: set[str] = set()
        """The nodes whose kubelets refuse new pods."""
        self._coordinator = coordinator
        self._client = client
        self._random = random
        self._starting: set[str] = set()
        self._ending: set[str] = set()

    def on_write(self, write: Write) -> None:
        """Notice a pod that was bound or deleted."""
        if write.resource == key(PODS) and write.new is not None:
            self._see_pod(write.new)

    def sync(self) -> None:
        """Look at all pods again: a request of a kubelet may have failed, or a restore may have undone it."""
        self._starting.clear()
        self._ending.clear()
        for pod in self._client.pods():
            self._see_pod(pod)

    def _see_pod(self, pod: Manifest) -> None:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        if not pod["spec"].get("nodeName"):
            return
        if meta.get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                seconds = self._random.random() * meta.get("deletionGracePeriodSeconds", 0) + 0.05
                self._coordinator.after(seconds, self._end_pod, pod)
        elif uid not in self._starting and pod["status"].get("phase") == "Pending":
            self._starting.add(uid)
            self._coordinator.after(0.1 + self._random.random(), self._start_pod, pod)

    def _start_pod(self, pod: Manifest) -> None:
        found = self._same(pod)
        if found is None or found["status"].get("phase") != "Pending":
            return
        node = found["spec"].get("nodeName", "")
        if node and self._client.get(NODES, node) is not None and is_ready(found, self._client):
            phase = "Failed" if node in self.rejecting else "Running"
            self._client.merge(PODS, name_of(pod), {"status": {"phase": phase}}, "kubelet", "status")

    def _end_pod(self, pod: Manifest) -> None:
        if self._same(pod) is not None:
            self._client.delete(PODS, name_of(pod), "kubelet", grace=0)

    def _same(self, pod: Manifest) -> Manifest | None:
        """Return a pod as it is now, unless it is gone."""
        found = self._client.get(PODS, name_of(pod))
        return found if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"] else None
