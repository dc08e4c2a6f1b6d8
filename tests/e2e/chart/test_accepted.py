"""Real API servers accept every rendered object with strict validation."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cpg_lab import building, charts, module_sources
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
FILES = sorted(Path(__file__).with_name("values").glob("*.yaml"))
SPACE = "kube-cpg"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("servicemonitors", "prometheusrules")
CERT_MANAGER = Path(__file__).with_name("cert-manager.yaml")

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=["1.37", "1.30"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster with the kinds of the Prometheus Operator and cert-manager, and the namespaces of the values."""
    kinds = (
        module_sources.fetch_module("prometheus-operator", PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    )
    with Cluster(ClusterSpec(kubernetes=request.param)) as running:
        files = [f"--filename={CERT_MANAGER}"]
        files += [f"--filename={kinds / f'monitoring.coreos.com_{name}.yaml'}" for name in KINDS]
        running.kubectl("apply", "--server-side", *files)
        running.access.wait_for_crds()
        for name in (SPACE, "limited"):
            running.kubectl("create", "namespace", name)
        yield running


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_object_is_accepted(cluster: Cluster, file: Path) -> None:
    """No field is unknown, missing or of the wrong type."""
    objects = charts.render(CHART, yaml.safe_load(file.read_text("utf-8")), namespace=SPACE)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    told = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=listed
    )
    assert len(told.stdout.split()) == len(objects)


def test_monitoring_needs_no_force_if_its_kinds_are_served(cluster: Cluster) -> None:
    """Helm asks the API server which kinds it serves."""
    monitoring = {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")}
    helm = building.ensure(["helm"])["helm"]
    command = [str(helm), "--kubeconfig", str(cluster.kubeconfig), "install", SPACE, str(CHART), "--namespace", SPACE]
    options = [
        "--dry-run=server",
        "--set=image.repository=kube-cpg",
        "--set-json",
        f"monitoring={json.dumps(monitoring)}",
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert "kind: ServiceMonitor" in done.stdout
