"""Hooks of Helm that depend on our processes: test, uninstall, adoption. The tests do the work of the kubelet."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments, run_job
from cpg_lab.specs import ClusterSpec

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
GROUP = ROOT / "examples" / "01-gang" / "objects.yaml"
SPACE, TEAM = "kube-cpg", "team-a"
IMAGE = ("--set", "image.repository=kube-cpg")
OPERATOR_ALONE = ("--set", "scheduler.enabled=false")
KINDS_ALONE = ("--set", "scheduler.enabled=false,operator.enabled=false")
ENDED = {
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:01Z",
    "succeeded": 1,
    "conditions": [{"type": name, "status": "True"} for name in ("SuccessCriteriaMet", "Complete")],
}
Plain = dict[str, Any]
Helm = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster without controllers, so that no pods are created."""
    with Cluster(ClusterSpec()) as running:
        for name in (SPACE, TEAM, "elsewhere"):
            running.kubectl("create", "namespace", name)
        yield running


@pytest.fixture(scope="module")
def helm(cluster: Cluster) -> Helm:
    """Return helm as a process that runs beside the test."""
    program = building.ensure(["helm"])["helm"]

    def start(*arguments: str, namespace: str = SPACE) -> subprocess.Popen[str]:
        command = [str(program), "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - built in code

    return start


def result_of(work: "subprocess.Popen[str]") -> tuple[int, str]:
    """Wait for helm and return its exit code and output."""
    text, _ = work.communicate(timeout=120)
    return work.returncode, text


def got(cluster: Cluster, *names: str) -> Plain:
    """Return an object, or an empty dict if it does not exist."""
    text = cluster.kubectl("get", *names, "--ignore-not-found", "-o", "json").stdout
    found: Plain = json.loads(text or "{}")
    return found


def served(cluster: Cluster) -> str:
    """Return our kinds that the API server serves."""
    return cluster.kubectl("api-resources", "--api-group", "scheduling.cpg.dev", "-o", "name").stdout


def installed(cluster: Cluster, helm: Helm, *arguments: str) -> list[Plain]:
    """Install the chart and return its Deployments."""
    code, text = result_of(helm("install", "kube-cpg", str(CHART), *IMAGE, *arguments))
    assert code == 0, text
    found: list[Plain] = got(cluster, "deployments", "-n", SPACE).get("items", [])
    return found


def test_helm_test_can_be_repeated(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    """Without a scheduler it fails and deletes its pod; it runs in the first of `namespaces`."""
    deployments = installed(cluster, helm, "--set", f"namespaces={{{TEAM}}}")
    name = ("-n", TEAM, "pod/kube-cpg-test")
    operators = [one for one in deployments if "operator" in one["metadata"]["name"]]
    with Deployments(cluster.access, operators, folder=tmp_path):
        code, text = result_of(helm("test", "kube-cpg", "--timeout", "3s"))
        assert code != 0, text
        group = ("-n", TEAM, "podgroup/kube-cpg-test")
        cluster.wait(lambda: bool(got(cluster, *group)["metadata"].get("finalizers")), what="finalizers")
        again = helm("test", "kube-cpg", "--timeout", "30s")
        cluster.wait(lambda: bool(got(cluster, *name)), what="the next test's pod")
        cluster.kubectl(
            "patch", *name, "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Succeeded"}}'
        )
        assert result_of(again)[0] == 0
        cluster.kubectl("delete", *name)
        cluster.kubectl("delete", *group, "--timeout=20s")
    assert result_of(helm("uninstall", "kube-cpg", "--no-hooks"))[0] == 0


def test_another_release_can_adopt_kept_kinds(cluster: Cluster, helm: Helm) -> None:
    """A release of another name and namespace needs the option that the document names."""
    installed(cluster, helm, *KINDS_ALONE)
    assert result_of(helm("uninstall", "kube-cpg"))[0] == 0
    assert "podgroups" in served(cluster)
    another = ("another", str(CHART), *KINDS_ALONE)
    code, text = result_of(helm("install", *another, namespace="elsewhere"))
    assert (code, "invalid ownership metadata" in text) == (1, True)
    code, text = result_of(helm("install", *another, "--take-ownership", namespace="elsewhere"))
    assert code == 0, text
    assert result_of(helm("upgrade", *another, namespace="elsewhere"))[0] == 0
    assert result_of(helm("uninstall", "another", namespace="elsewhere"))[0] == 0
    cluster.kubectl("delete", "crd", "--timeout=20s", *served(cluster).split())


def test_an_uninstall_can_delete_the_kinds(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    """With groups in use and `--wait` the operator is stopped first, then finalizers are removed, then the rest."""
    deployments = installed(cluster, helm, *OPERATOR_ALONE, "--set", "crds.keep=false")
    with Deployments(cluster.access, deployments, folder=tmp_path) as running:
        cluster.kubectl("create", "-f", str(GROUP))
        cluster.wait(lambda: bool(got(cluster, "podgroup/ring")["metadata"].get("finalizers")), what="finalizers")
        uninstall = helm("uninstall", "kube-cpg", "--wait", "--timeout", "60s")
        name = ("-n", SPACE, "job/kube-cpg-release")
        cluster.wait(lambda: bool(got(cluster, *name)), timeout=20, what="the Job of the uninstall")
        (operator,) = got(cluster, "deployments", "-n", SPACE).get("items", [])
        assert operator["spec"]["replicas"] == 0
        running.stop()
        run_job(cluster.access, got(cluster, *name), folder=tmp_path)
        status = json.dumps({"status": ENDED})
        cluster.kubectl("patch", *name, "--subresource=status", "--type=merge", "-p", status)
        code, text = result_of(uninstall)
    assert code == 0, text
    assert served(cluster) == ""
    assert got(cluster, "deployments", "-n", SPACE).get("items", []) == []
