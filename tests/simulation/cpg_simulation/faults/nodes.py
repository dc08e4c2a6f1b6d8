"""The faults of nodes."""

from collections.abc import Iterable
from random import Random

from cpg_client.resources import NODES
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.nights.plan import Fault, NodePlan
from cpg_simulation.world.cluster_client import ClusterClient
from cpg_simulation.world.kubelets import Kubelets

CHANGES: dict[str, tuple[Manifest, str]] = {
    "relabel": ({"metadata": {"labels": {manifests.RACK: "rack-other"}}}, ""),
    "cordon": ({"spec": {"unschedulable": True}}, ""),
    "taint": ({"spec": {"taints": [{"key": "example.com/bad", "effect": "NoSchedule"}]}}, ""),
    "shrink": ({"status": {"allocatable": {"cpu": "500m"}}}, "status"),
}
"""What the faults change that only change a node: the fields and the subresource."""


class NodeFaults:
    """Changes nodes, removes them and brings them back."""

    def __init__(self, nodes: Iterable[NodePlan], client: ClusterClient, kubelets: Kubelets) -> None:
        """Act on these nodes."""
        self._plans = {plan.name: plan for plan in nodes}
        self._client = client
        self._kubelets = kubelets

    def begin(self, fault: Fault) -> None:
        """Let a fault begin."""
        if fault.kind == "vanish":
            self._client.delete(NODES, fault.target, "node-controller")
        elif fault.kind == "reject-pods":
            self._kubelets.rejecting.add(fault.target)
        else:
            self._change(fault.target, *CHANGES[fault.kind])

    def end(self, fault: Fault) -> None:
        """Let a node be as it was planned, except for the rack of one that was gone."""
        planned = manifests.node(self._plans[fault.target])
        if fault.kind == "reject-pods":
            self._kubelets.rejecting.discard(fault.target)
        elif fault.kind == "vanish":
            if Random(f"{fault.target} {fault.at}").random() < 0.5:  # noqa: S311 - the same for the same fault
                planned["metadata"]["labels"][manifests.RACK] = "rack-new"
            self._client.create(NODES, planned, "kubelet")
        else:
            spec = {"unschedulable": None, "taints": planned["spec"].get("taints")}
            self._change(fault.target, {"metadata": {"labels": planned["metadata"]["labels"]}, "spec": spec})
            self._change(fault.target, {"status": {"allocatable": planned["status"]["allocatable"]}}, "status")

    def _change(self, node: str, body: Manifest, subresource: str = "") -> None:
        if self._client.get(NODES, node) is not None:
            self._client.merge(NODES, node, body, "node-controller", subresource)
