"""The kinds of the chart through install, upgrade and uninstall."""

import datetime as dt
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec
from cpg_operator.admission.certificates import issue

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
KINDS = {"compositepodgroups", "podgroups", "workloads"}
IMAGE = ("--set", "image.repository=kube-cpg")
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
    """Return our kinds that the API server serves."""
    answer = cluster.kubectl("api-resources", "--api-group", "scheduling.cpg.dev", "-o", "name").stdout
    return {line.partition(".")[0] for line in answer.split()}


def test_groups_outlive_upgrade_and_uninstall(helm: Helm, cluster: Cluster) -> None:
    """The kinds are served after the install, and a group stays until after the uninstall."""
    done = helm("install", "kube-cpg", str(CHART), *KINDS_ALONE)
    assert done.returncode == 0, done.stderr
    assert "only the kinds" in done.stdout
    cluster.wait(lambda: served(cluster) == KINDS, what="the three kinds")
    cluster.kubectl("apply", "--validate=strict", "-f", str(ROOT / "examples" / "02-tree" / "objects.yaml"))
    for arguments in (("upgrade", "kube-cpg", str(CHART), *KINDS_ALONE), ("uninstall", "kube-cpg")):
        assert helm(*arguments).returncode == 0
        assert cluster.kubectl("get", "cpg", "train-job", "-o", "name").stdout.strip().endswith("/train-job")


def test_generated_files_are_current() -> None:
    """install.yaml, the README of the chart and the page on monitoring match the chart."""
    command = [sys.executable, str(ROOT / "tools" / "generate_manifests.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kinds_can_be_left_out(helm: Helm) -> None:
    """With crds.install=false the chart renders no CustomResourceDefinition."""
    assert "CustomResourceDefinition" not in helm("template", str(CHART), *IMAGE, "--set", "crds.install=false").stdout


def test_upgrades_keep_the_certificate_of_the_webhook(helm: Helm, cluster: Cluster) -> None:
    """Every render is equal and without a certificate, and the one that the operator has written stays."""
    values = (*IMAGE, "--set", "webhook.enabled=true,scheduler.enabled=false,operator.releaseOnUninstall=false")
    first, second = (helm("template", "kube-cpg", str(CHART), *values).stdout for _ in range(2))
    assert first == second
    secret = ("secret", "kube-cpg-webhook-certificates")
    asked = ("validatingwebhookconfiguration", "kube-cpg-webhook.default")
    made = issue("host", b"", now=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), validity=dt.timedelta(days=1))
    bundle = b64encode(made.authorities).decode()
    trusted = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]
    for verb in ("install", "upgrade"):
        done = helm(verb, "kube-cpg", str(CHART), *values)
        assert done.returncode == 0, done.stderr
        if verb == "install":
            assert "data" not in json.loads(cluster.kubectl("get", *secret, "-o", "json").stdout)
            cluster.kubectl("patch", *secret, "--type=merge", "--patch", json.dumps({"data": {"ca.crt": bundle}}))
            cluster.kubectl("patch", *asked, "--type=json", "--patch", json.dumps(trusted))
    assert json.loads(cluster.kubectl("get", *secret, "-o", "json").stdout)["data"] == {"ca.crt": bundle}
    (webhook,) = json.loads(cluster.kubectl("get", *asked, "-o", "json").stdout)["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == bundle
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
    assert helm("uninstall", "kube-cpg").returncode == 0
