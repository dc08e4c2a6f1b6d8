"""The faults of pods: controllers that change them all the time."""

from cpg_client.resources import PODS
from cpg_simulation.nights.plan import Fault
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient, name_of

SECONDS_BETWEEN_TOUCHES = 1.0


class PodFaults:
    """Lets a controller annotate all pods without a node again and again."""

    def __init__(self, coordinator: Coordinator, client: ClusterClient) -> None:
        """Touch no pod yet."""
        self._coordinator = coordinator
        self._client = client

    def begin(self, fault: Fault) -> None:
        """Touch the pods now, and again until the fault ends."""
        now = self._coordinator.now
        for pod in self._client.pods():
            if not pod["spec"].get("nodeName"):
                annotations = {"example.com/touched": f"{now:.3f}"}
                self._client.merge(PODS, name_of(pod), {"metadata": {"annotations": annotations}}, "controller")
        if now + SECONDS_BETWEEN_TOUCHES < fault.at + fault.seconds:
            self._coordinator.after(SECONDS_BETWEEN_TOUCHES, self.begin, fault)

    def end(self, fault: Fault) -> None:
        """Do nothing: the last touch has been before."""
