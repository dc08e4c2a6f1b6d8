"""manifests/install.yaml, applied as documented, and applied again for an upgrade."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[3]
INSTALL = (ROOT / "manifests" / "install.yaml").read_text("utf-8")
SPACE = "kube-cpg"
GROUP = ROOT / "manifests" / "samples" / "podgroup.yaml"
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with the namespace of the document."""
    with Cluster(ClusterSpec()) as running:
        running.kubectl("create", "namespace", SPACE)
        yield running


def applied(cluster: Cluster, registry: str) -> list[Plain]:
    """Apply the file with a registry in it, and return the Deployments."""
    named = INSTALL.replace("YOUR-REGISTRY", registry)
    assert named != INSTALL
    cluster.kubectl("apply", "--server-side", "-f", "-", input=named)
    told = cluster.kubectl("get", "deployments", "-n", SPACE, "-o", "json").stdout
    found: list[Plain] = json.loads(told)["items"]
    return found


def test_the_manifest_installs_and_upgrades(cluster: Cluster, tmp_path: Path) -> None:
    """Its processes serve groups, another apply changes the image, and it contains no hooks."""
    with Deployments(cluster.access, applied(cluster, "here"), folder=tmp_path) as running:
        assert {name: len(pods) for name, pods in running.pods.items()} == {
            "kube-cpg-operator": 1,
            "kube-cpg-scheduler": 2,
        }
        cluster.kubectl("create", "-f", str(GROUP))
        cluster.wait(
            lambda: (
                "scheduling.cpg.dev" in cluster.kubectl("get", "-f", str(GROUP), "-o", "jsonpath={..finalizers}").stdout
            ),
            what="the operator's finalizers",
        )
        running.roll(applied(cluster, "elsewhere"))
        assert all(pod.process.is_running for pods in running.pods.values() for pod in pods)
    assert cluster.kubectl("get", "jobs", "-n", SPACE, "-o", "name").stdout == ""
    assert "release" not in cluster.kubectl("get", "serviceaccounts,clusterroles", "-A", "-o", "name").stdout
