"""A release with pods that run as processes, and a node that forwards the ports of the scheduler."""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cpg_lab import building, folders
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

SPACE = "kube-cpg"
COMPONENTS = ("scheduler", "operator")


@contextmanager
def forwarded_release(cluster: Cluster, install: "Installer", folder: Path, **values: Any) -> Iterator[Deployments]:
    """Run one scheduler and one operator. Their leases name this machine, so its node stands for the pods' host."""
    debug_port, node = free_port(), socket.gethostname()
    one: dict[str, Any] = {"replicas": 1}
    release = install(cluster, {"scheduler": {**one, "debugPort": debug_port}, "operator": one, **values})
    with Deployments(cluster.access, release.deployments, folder=folder) as deployed:
        (scheduler,) = deployed.pods["kube-cpg-scheduler"]
        ports = {debug_port: debug_port, 10270: int(scheduler.url().rpartition(":")[2])}
        with _forwarding_node(cluster, node, ports, folder):
            for component in COMPONENTS:
                _create_pod(cluster, node, component)
            yield deployed


@contextmanager
def _forwarding_node(cluster: Cluster, name: str, ports: Mapping[int, int], folder: Path) -> Iterator[None]:
    """Run a kubelet for a node of this name; it forwards each port of a pod to a port of this machine."""
    port = free_port()
    forwards = [{"ports": [ours], "target": {"address": LOOPBACK, "port": theirs}} for ours, theirs in ports.items()]
    body = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterPortForward", "metadata": {"name": "all"}}
    config = folder / "forwards.yaml"
    config.write_text(yaml.safe_dump({**body, "spec": {"forwards": forwards}}), "utf-8")
    certificates = cluster._control_plane.files.certificates
    command: list[str | Path] = [
        building.ensure(["kwok"])["kwok"],
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={folders.stages_file()}",
        f"--config={config}",
        "--manage-nodes-with-label-selector=managed-by=none",
        f"--server-address={LOOPBACK}:{port}",
        f"--tls-cert-file={certificates.server}",
        f"--tls-private-key-file={certificates.server_key}",
    ]
    endpoint = {"kubeletEndpoint": {"Port": port}}
    status = {"addresses": [{"type": "InternalIP", "address": LOOPBACK}], "daemonEndpoints": endpoint}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": True}}
    cluster.kubectl("create", "-f", "-", input=json.dumps({**node, "status": status}))
    kubelet = Process("kubelet", command, log=folder / "kubelet.log", folder=folder)
    try:
        cluster.wait(lambda: _listens(port), what="the kubelet")
        yield
    finally:
        kubelet.stop(5.0)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1.0):
        return True
    return False


def _create_pod(cluster: Cluster, node: str, component: str) -> None:
    """Create the pod that stands for a process."""
    process = f"kube-cpg-{component}"
    name = f"{process}-5f7d9c-abcde"
    labels = {f"app.kubernetes.io/{key}": value for key, value in (("name", SPACE), ("component", component))}
    spec = {
        "nodeName": node,
        "serviceAccountName": process,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "kube-cpg:0.1.0"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    cluster.kubectl("-n", SPACE, "create", "-f", "-", input=json.dumps(pod))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = json.dumps({"status": status})
    cluster.kubectl("-n", SPACE, "patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)
