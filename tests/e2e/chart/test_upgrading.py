"""The upgrade from an older chart with the documented command, and the rollback."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "operations" / "upgrade.md").read_text("utf-8")
SPACE = "kube-cpg"
ROLE = "clusterrole/kube-cpg:kube-cpg-view"
Helm = Callable[..., str]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster."""
    with Cluster(ClusterSpec()) as running:
        yield running


@pytest.fixture(scope="module")
def helm(cluster: Cluster) -> Helm:
    """Return helm in the root of the repository; an error of helm fails the test with its output."""
    program = building.ensure(["helm"])["helm"]

    def run(*arguments: str) -> str:
        command = [str(program), "--kubeconfig", str(cluster.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 - built in code
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def create(cluster: Cluster, name: str) -> None:
    """Create a group with the field that the older kinds lack."""
    topology = {"preferredTopology": [{"key": "topology.cpg.dev/rack"}]}
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "schedulingConstraints": topology}
    kind = {"apiVersion": "scheduling.cpg.dev/v1alpha3", "kind": "PodGroup"}
    group = json.dumps({**kind, "metadata": {"name": name}, "spec": spec})
    cluster.kubectl("create", "--validate=strict", "-f", "-", input=group)


def replicas(cluster: Cluster) -> str:
    """Return the replicas of the scheduler."""
    told = cluster.kubectl("get", "deployment", "kube-cpg-scheduler", "-n", SPACE, "-o", "jsonpath={.spec.replicas}")
    return told.stdout


def test_an_upgrade_adds_fields_and_values_and_keeps_the_users(cluster: Cluster, helm: Helm, older: Path) -> None:
    """New fields and values appear with the upgrade; the user's values and groups stay, also after the rollback."""
    chosen = ("--namespace", SPACE, "--create-namespace", "--set", "scheduler.replicas=3,image.repository=kube-cpg")
    helm("install", "kube-cpg", str(older), *chosen)
    cluster.kubectl("create", "-f", str(ROOT / "examples" / "01-gang" / "objects.yaml"))
    with pytest.raises(LabError, match=r"unknown field.*preferredTopology"):
        create(cluster, "early")
    (documented,) = re.findall(r"^helm (upgrade .*) --wait$", DOCUMENT, re.MULTILINE)
    helm(*documented.split())
    create(cluster, "new")
    assert replicas(cluster) == "3"
    assert cluster.kubectl("get", ROLE, "--ignore-not-found", "-o", "name").stdout
    helm("rollback", "kube-cpg", "--namespace", SPACE)
    with pytest.raises(LabError, match=r"unknown field.*preferredTopology"):
        create(cluster, "late")
    assert not cluster.kubectl("get", ROLE, "--ignore-not-found", "-o", "name").stdout
    assert cluster.kubectl("get", "podgroups", "-o", "name").stdout.split() == [
        f"podgroup.scheduling.cpg.dev/{name}" for name in ("new", "ring")
    ]
    assert replicas(cluster) == "3"
