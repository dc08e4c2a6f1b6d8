"""Fixtures for the chart: its pods run as containers on real nodes and place trees on simulated nodes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.realnode import RealNode
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
ARCHIVE = ROOT / "build" / "image.tar"
SPACE = "kube-cpg"
REAL = "lab.cpg.dev/real"
NODES = "2 blocks x 2 racks x 4 nodes, cpu=4, memory=16Gi"
LATER_FIELD, LATER_VALUE = "preferredTopology", "userRoles"
"""A field of the kinds and a value that the older chart lacks."""

Helm = Callable[..., str]
Plain = dict[str, Any]


def values() -> list[str]:
    """Return the values for the lab: the image built here, on nodes that have only the host network."""
    part = {"hostNetwork": True, "nodeSelector": {REAL: "true"}}
    given = {
        "image": {"repository": "localhost/kube-cpg", "pullPolicy": "Never"},
        "scheduler": part,
        "operator": part,
    }
    return [word for key, value in given.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an older chart without one field of the kinds and one value."""
    folder = tmp_path_factory.mktemp("older") / "kube-cpg"
    shutil.copytree(CHART, folder)
    about = folder / "Chart.yaml"
    about.write_text(
        about.read_text().replace(f"ersion: {yaml.safe_load(about.read_text())['version']}", "ersion: 0.0.9")
    )
    for path in (folder / "files" / "crds").iterdir():
        path.write_text(yaml.safe_dump(without(yaml.safe_load(path.read_text()), LATER_FIELD), sort_keys=False))
    schema = folder / "values.schema.json"
    schema.write_text(json.dumps(without(json.loads(schema.read_text()), LATER_VALUE)))
    values = folder / "values.yaml"
    values.write_text(values.read_text().replace(f"\n{LATER_VALUE}: true\n", "\n"))
    (folder / "templates" / "userroles.yaml").unlink()
    return folder


def without(value: Any, name: str) -> Any:  # noqa: ANN401 - plain YAML data
    """Return plain data without the keys of a name."""
    if isinstance(value, dict):
        return {key: without(one, name) for key, one in value.items() if key != name}
    return [without(one, name) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def image() -> Path:
    """Build the image unless it exists."""
    command = [sys.executable, str(ROOT / "tools" / "images.py"), "--base", "stand-in", "--archive", str(ARCHIVE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a program of ours
    assert done.returncode == 0, done.stdout + done.stderr
    return ARCHIVE


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with simulated nodes, where pods get tokens of their service accounts."""
    spec = ClusterSpec(
        components=("controller-manager", "scheduler", "kwok"),
        nodes=(NodePool.parse(NODES),),
        service_accounts=True,
    )
    with Cluster(spec) as running:
        yield running


@pytest.fixture(scope="package")
def nodes(cluster: Cluster, image: Path) -> Iterator[list[RealNode]]:
    """Run two real nodes beside the simulated ones, with the image on them."""
    with (
        RealNode(cluster.access, name="real-1", labels={REAL: "true"}) as one,
        RealNode(cluster.access, name="real-2", labels={REAL: "true"}) as other,
    ):
        for node in (one, other):
            node.load(image)
        yield [one, other]


@pytest.fixture(scope="package")
def helm(cluster: Cluster) -> Helm:
    """Return helm; an error of helm fails the test with its output."""
    program = building.ensure(["helm"])["helm"]

    def run(*arguments: str) -> str:
        command = [str(program), "--kubeconfig", str(cluster.kubeconfig), "--namespace", SPACE, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


class Installed:
    """A cluster with the chart, and the queries of the tests."""

    def __init__(self, cluster: Cluster, helm: Helm) -> None:
        """Wrap a cluster."""
        self.cluster = cluster
        self._helm = helm

    def helm(self, *arguments: str) -> str:
        """Run helm."""
        return self._helm(*arguments)

    def upgrade(self, *arguments: str) -> None:
        """Upgrade to the current chart with further values."""
        self._helm("upgrade", "kube-cpg", str(CHART), *values(), *arguments, "--wait", "--timeout", "90s")

    def got(self, *arguments: str) -> list[Plain]:
        """Return objects of the API server."""
        told = json.loads(self.cluster.kubectl("get", *arguments, "-o", "json").stdout)
        items: list[Plain] = told.get("items", [told])
        return items

    def pods_of(self, part: str) -> dict[str, Plain]:
        """Return the pods of a process by name."""
        found = self.got("pods", "-n", SPACE, "-l", f"app.kubernetes.io/component={part}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def leaders_pod(self) -> str:
        """Return the name of the pod with the scheduler's lease; with hostNetwork the lease names its node."""
        (lease,) = self.got("lease", "-n", SPACE, "kube-cpg-scheduler")
        holder = lease["spec"]["holderIdentity"]
        (found,) = [
            name for name, pod in self.pods_of("scheduler").items() if holder.startswith(pod["spec"]["nodeName"])
        ]
        return found


@pytest.fixture(scope="package")
def installed(cluster: Cluster, nodes: list[RealNode], helm: Helm) -> Iterator[Installed]:
    """Install the chart; write the logs of its containers to standard error at the end."""
    try:
        helm("install", "kube-cpg", str(CHART), "--create-namespace", *values(), "--wait", "--timeout", "120s")
        yield Installed(cluster, helm)
    finally:
        for node in nodes:
            for name, text in node.logs().items():
                sys.stderr.write(f"--- {node.name} {name}\n{text[-3000:]}\n")
