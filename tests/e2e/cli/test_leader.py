"""``kubectl cpg explain --source scheduler``: a port-forward to the scheduler that leads, through a kubelet of kwok."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from tests.cli.situations_reader import manifests
from tests.e2e.cli.conftest import CREATED, RESOURCES

from cpg_cli.root import root
from cpg_client.resources import NODES, PODS
from cpg_lab import building
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.commands import ClusterFiles
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

STAGES = Path(__file__).parents[3] / "lab" / "kwok" / "stages.yaml"
SPACE, POD = "kube-cpg", "kube-cpg-scheduler-5f7-aaaaa"
LABELS = {"app.kubernetes.io/name": "kube-cpg", "app.kubernetes.io/component": "scheduler"}


def explained(cluster: Cluster, target: str, *options: str) -> str:
    """Return the answer of the scheduler."""
    command = ["explain", target, "--source", "scheduler", "--kubeconfig", str(cluster.kubeconfig), *options]
    return CliRunner().invoke(root, command, catch_exceptions=False, standalone_mode=False).stdout


@pytest.fixture(scope="module")
def cluster(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a scheduler, and a kubelet of kwok on its node that forwards every port to its debug pages."""
    folder: Path = tmp_path_factory.mktemp("forwarded")
    with Cluster(ClusterSpec(), folder=folder / "cluster") as running, BlockingClient(running.access) as client:
        debug_port, kubelet_port = free_port(), free_port()
        kubelet = start_kubelet(running, folder, port=kubelet_port, target=debug_port)
        with install.scheduler(running, folder, scheduler={"replicas": 1, "debugPort": debug_port}):
            create_leader(client, kubelet_port)
            objects = manifests("capacity")
            for resource in CREATED:
                for plain in objects:
                    if RESOURCES[plain["kind"]] is resource:
                        client.create(resource.path("default" if resource.namespaced else None), plain)
            yield running
        kubelet.stop(5.0)


def start_kubelet(cluster: Cluster, folder: Path, *, port: int, target: int) -> Process:
    """Start kwok with a server that has a certificate, as the API server demands of kubelets."""
    certificates = ClusterFiles(folder / "cluster").certificates
    forward = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterPortForward",
        "metadata": {"name": "debug-pages"},
        "spec": {"forwards": [{"ports": [target], "target": {"address": LOOPBACK, "port": target}}]},
    }
    config = folder / "kwok.yaml"
    config.write_text(yaml.safe_dump(forward), "utf-8")
    program = building.ensure(ClusterSpec(components=("kwok",)).programs(), None)["kwok"]
    command: list[str | Path] = [
        program,
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={config}",
        f"--config={STAGES}",
        "--manage-nodes-with-label-selector=kubelet=none",
        f"--server-address={LOOPBACK}:{port}",
        f"--tls-cert-file={certificates.server}",
        f"--tls-private-key-file={certificates.server_key}",
    ]
    return Process("kwok", command, log=folder / "kwok.log")


def create_leader(client: BlockingClient, kubelet_port: int) -> None:
    """Create the pod that the scheduler would run in, on a node with the name of its host, as with hostNetwork."""
    host = socket.gethostname()
    status = {
        "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    client.create(NODES.path(), {"metadata": {"name": host}, "status": status})
    spec = {
        "nodeName": host,
        "serviceAccountName": "kube-cpg-scheduler",
        "containers": [{"name": "scheduler", "image": "kube-cpg"}],
    }
    client.create(PODS.path(SPACE), {"metadata": {"name": POD, "labels": LABELS}, "spec": spec})


def test_the_scheduler_explains_a_tree(cluster: Cluster) -> None:
    """With the number of its attempts; what would help is not checked."""
    text = explained(cluster, "train")
    assert text.startswith("train waits (attempt ")
    assert "BLOCKED AT  train: room for 3 of 4 pods\n" in text
    assert "PREEMPTION  would not help: no pods of lower priority run\n" in text
    assert "SOURCE      scheduler, live\n" in text


def test_fields_for_programs(cluster: Cluster) -> None:
    """The same as from the other sources."""
    found = msgspec.json.decode(explained(cluster, "pod/train-0", "-o", "json"))
    assert (found["state"], found["reason"], found["source"]["name"]) == ("Waiting", "Unschedulable", "scheduler")
    assert found["attempt"]["blockedAt"] == {"kind": "PodGroup", "name": "train", "minimum": 4, "scheduled": 3}
