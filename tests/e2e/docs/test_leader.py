"""The commands of a document that find the leading replica, with and without hostNetwork."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "debug-a-pending-tree.md"
SPACE = "kube-cpg"
PODS = {"kube-cpg-scheduler-5f7-aaaaa": "node-a.example", "kube-cpg-scheduler-5f7-bbbbb": "node-b.example"}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with pods of two replicas on two nodes, and a pod of another process."""
    with Cluster(ClusterSpec()) as running:
        running.kubectl("create", "namespace", SPACE)
        for name, node in {**PODS, "kube-cpg-operator-5f7-ccccc": "node-b.example"}.items():
            labels = {"app.kubernetes.io/component": name.split("-")[2]}
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "c"}]}
            meta = {"name": name, "namespace": SPACE, "labels": labels}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            running.kubectl("create", "-f", "-", input=json.dumps(pod))
        yield running


@pytest.mark.parametrize("host", ["kube-cpg-scheduler-5f7-bbbbb", "node-b.example"], ids=["pod", "node"])
def test_the_leader_is_found(cluster: Cluster, host: str) -> None:
    """The holder of the lease is the name of the pod, or with hostNetwork of its node."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-cpg-scheduler"}}
    lease |= {"spec": {"holderIdentity": f"{host}-7-0123abcd"}}
    cluster.kubectl("apply", "-n", SPACE, "-f", "-", input=json.dumps(lease))
    (block,) = re.findall(r"```sh\n(holder=.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    path = f"{cluster.access.kubectl_path.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    command = ["/bin/sh", "-ec", f"{block}echo $leader"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - our document
    assert done.stdout == "kube-cpg-scheduler-5f7-bbbbb\n"
