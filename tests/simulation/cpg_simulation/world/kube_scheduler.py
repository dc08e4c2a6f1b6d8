"""The other scheduler: it places the pods of the default scheduler on the same nodes."""

from random import Random

from cpg_client.resources import NODES, PODS
from cpg_simulation.apiserver.values import Write
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient, key, name_of

SECONDS_UNTIL_IT_LOOKS = 0.05


class KubeScheduler:
    """Binds pending pods of the default scheduler where they fit."""

    def __init__(self, coordinator: Coordinator, client: ClusterClient, random: Random) -> None:
        """Bind nothing yet."""
        self._coordinator = coordinator
        self._client = client
        self._random = random

    def on_write(self, write: Write) -> None:
        """Look again soon after a pod was bound or is gone: then room that we count on is taken."""
        if write.resource == key(PODS) and (write.new is None or write.verb == "bind") and self._random.random() < 0.5:
            self._coordinator.after(self._random.random() * SECONDS_UNTIL_IT_LOOKS, self.sync)

    def sync(self) -> None:
        """Bind what fits."""
        pods = list(self._client.pods())
        waiting = [pod for pod in pods if _is_waiting(pod)]
        nodes = self._client.objects(NODES) if waiting else ()
        room = {name_of(node): _room(node, pods) for node in nodes if _is_usable(node)}
        for pod in waiting:
            cpu = _cpu(pod)
            fitting = [name for name, (free, slots) in room.items() if free >= cpu and slots]
            if fitting:
                name = self._random.choice(fitting)
                self._client.bind(name_of(pod), name, "kube-scheduler")
                free, slots = room[name]
                room[name] = free - cpu, slots - 1


def _room(node: Manifest, pods: list[Manifest]) -> tuple[int, int]:
    """Return how much CPU and how many pods a node has room for."""
    amounts = node["status"]["allocatable"]
    there = [pod for pod in pods if pod["spec"].get("nodeName") == name_of(node) and _runs(pod)]
    return int(amounts["cpu"].removesuffix("m")) - sum(map(_cpu, there)), int(amounts["pods"]) - len(there)


def _is_waiting(pod: Manifest) -> bool:
    is_its_own = pod["spec"]["schedulerName"] == "default-scheduler"
    return is_its_own and not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")


def _is_usable(node: Manifest) -> bool:
    return not node["spec"].get("unschedulable") and not node["spec"].get("taints")


def _runs(pod: Manifest) -> bool:
    return pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _cpu(pod: Manifest) -> int:
    return sum(
        int(container["resources"]["requests"]["cpu"].removesuffix("m")) for container in pod["spec"]["containers"]
    )
