"""The chart, installed as a user would."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
KINDS = {"compositepodgroups", "podgroups", "workloads"}
KINDS_ALONE = ("--set", "scheduler.enabled=false,operator.enabled=false")
Helm = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run an empty cluster."""
    with Cluster(ClusterSpec()) as running:
        yield running


@pytest.fixture(scope="module")
def helm(cluster: Cluster) -> Helm:
    """Return helm, with the cluster's kubeconfig."""
    program = building.ensure(["helm"])["helm"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), "--kubeconfig", str(cluster.kubeconfig), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code

    return run


def served(cluster: Cluster) -> set[str]:
    """Return the kinds of ours that the API server serves."""
    answer = cluster.kubectl("api-resources", "--api-group", "scheduling.cpg.dev", "-o", "name").stdout
    return {line.partition(".")[0] for line in answer.split()}


def test_the_chart_is_without_reproach(helm: Helm) -> None:
    """Helm's linter finds nothing, warnings included."""
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


MISTAKES = {
    "crds.instal=true": "instal",
    "crds.keep=often": "/crds/keep",
    "image.pullPolicy=Sometimes": "'Always', 'IfNotPresent', 'Never'",
    "api=both": "'auto', 'crd', 'native'",
    "namespaces={A_b}": "/namespaces/0",
    "scheduler.replicas=two": "got string, want integer",
    "scheduler.shedulerName=x": "shedulerName",
    "scheduler.resources.requests.cpu=lots": "/scheduler/resources/requests/cpu",
    "scheduler.port=99999": "/scheduler/port",
    "scheduler.env=FOO": "got string, want array",
    "operator.settings=x": "got string, want object",
    "networkPolicy.apiServerPorts=443": "got number, want array",
}
"""Typical mistakes, and what the answer has to say."""


@pytest.mark.parametrize(("value", "word"), MISTAKES.items())
def test_a_mistyped_value_is_refused_by_name(helm: Helm, value: str, word: str) -> None:
    """The schema knows every value and its type."""
    done = helm("template", str(CHART), "--set", value)
    assert done.returncode != 0
    assert word in done.stderr


def test_install_upgrade_and_uninstall_keep_what_users_have(helm: Helm, cluster: Cluster) -> None:
    """The kinds are served after the install, and a group outlives an upgrade and the chart itself."""
    done = helm("install", "kube-cpg", str(CHART), *KINDS_ALONE)
    assert done.returncode == 0, done.stderr
    assert "the kinds alone" in done.stdout
    cluster.wait(lambda: served(cluster) == KINDS, what="the three kinds")
    cluster.kubectl("apply", "--validate=strict", "-f", str(ROOT / "examples" / "02-tree" / "objects.yaml"))
    for arguments in (("upgrade", "kube-cpg", str(CHART), *KINDS_ALONE), ("uninstall", "kube-cpg")):
        assert helm(*arguments).returncode == 0
        assert cluster.kubectl("get", "cpg", "train", "-o", "name").stdout.strip().endswith("/train")


def test_manifests_are_what_the_chart_says() -> None:
    """The manifest for those without Helm, and the chart's README, are generated from it as it is now."""
    command = [sys.executable, str(ROOT / "tools" / "generate_manifests.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a program of ours
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_installed_where_that_is_wished(helm: Helm) -> None:
    """Whoever installs the kinds by other means switches them off."""
    assert "CustomResourceDefinition" not in helm("template", str(CHART), "--set", "crds.install=false").stdout
