"""The chart, installed as a user would."""

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

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


def test_the_webhooks_certificate_is_for_its_service_and_kept_by_upgrades(helm: Helm, cluster: Cluster) -> None:
    """So that nobody is asked by an authority of before while the operator has the certificate of now."""
    values = ("--set", "webhook.enabled=true,scheduler.enabled=false,operator.releaseOnUninstall=false")
    seen, place = [], dict[str, str]()
    for verb in ("install", "upgrade"):
        done = helm(verb, "kube-cpg", str(CHART), *values)
        assert done.returncode == 0, done.stderr
        secret = json.loads(cluster.kubectl("get", "secret", "kube-cpg-webhook", "-o", "json").stdout)["data"]
        asked = cluster.kubectl("get", "validatingwebhookconfiguration", "kube-cpg-webhook.default", "-o", "json")
        (webhook,) = json.loads(asked.stdout)["webhooks"]
        assert webhook["clientConfig"]["caBundle"] == secret["ca.crt"]
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
        seen.append(secret)
        place = webhook["clientConfig"]["service"]
    assert seen[0] == seen[1]
    authority, certificate = (load_pem_x509_certificate(b64decode(seen[0][name])) for name in ("ca.crt", "tls.crt"))
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(DNSName) == [f"{place['name']}.{place['namespace']}.svc"]
    assert helm("uninstall", "kube-cpg").returncode == 0
