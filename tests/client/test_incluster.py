"""The endpoint of a pod, and the choice between it and a kubeconfig."""

import re
from pathlib import Path

import pytest

from cpg_client import incluster
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import EndpointError, KubeconfigError

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
CONFIG = "contexts: [{name: lab, context: {cluster: lab}}]\nclusters: [{name: lab, cluster: {server: 'https://lab'}}]\n"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a pod's service account, in an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    folder = tmp_path / "account"
    folder.mkdir()
    for name, text in {"ca.crt": "CA", "token": "sesame", "namespace": "cpg-system\n"}.items():
        folder.joinpath(name).write_text(text)
    return folder


def test_a_pod_finds_its_server(account: Path) -> None:
    """Address, authority, token and namespace come from variables and files."""
    assert incluster.pod_endpoint(account, IN_POD) == Endpoint(
        server="https://10.0.0.1:443",
        ca=account / "ca.crt",
        credentials=Credentials(token_file=account / "token"),
        namespace="cpg-system",
        context="in-cluster",
    )


def test_an_ipv6_address_gets_brackets(account: Path) -> None:
    """An IPv4 address stays as it is."""
    environment = IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert incluster.pod_endpoint(account, environment).server == "https://[fd00::1]:443"


def test_the_namespace_file_may_be_missing(account: Path) -> None:
    """Projected accounts need not have it."""
    (account / "namespace").unlink()
    assert incluster.pod_endpoint(account, IN_POD).namespace == "default"


def test_outside_of_a_pod_there_is_no_endpoint(account: Path) -> None:
    """The variables are missing."""
    with pytest.raises(EndpointError, match="not in a pod: KUBERNETES_SERVICE_HOST"):
        incluster.pod_endpoint(account, {})


@pytest.mark.parametrize("missing", ["ca.crt", "token"])
def test_a_pod_without_an_account_is_an_error(account: Path, missing: str) -> None:
    """It names the missing file and its usual cause."""
    (account / missing).unlink()
    with pytest.raises(EndpointError, match=rf"{missing}: not there; does the pod set automountServiceAccountToken"):
        incluster.pod_endpoint(account, IN_POD)


def test_a_kubeconfig_wins(account: Path) -> None:
    """Over the service account of the pod."""
    config = account.parent / ".kube" / "config"
    config.parent.mkdir()
    config.write_text(CONFIG + "current-context: lab\n")
    assert incluster.find_endpoint(folder=account, environment=IN_POD).context == "lab"
    assert incluster.find_endpoint(config, "lab", folder=account, environment=IN_POD).context == "lab"


def test_without_a_kubeconfig_the_account_is_used(account: Path) -> None:
    """A pod needs no configuration."""
    assert incluster.find_endpoint(folder=account, environment=IN_POD).context == "in-cluster"


def test_a_missing_named_kubeconfig_is_an_error(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing context, or a missing file of $KUBECONFIG, is an error in a pod as well."""
    with pytest.raises(KubeconfigError, match="no kubeconfig"):
        incluster.find_endpoint(context="lab", folder=account, environment=IN_POD)
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(KubeconfigError, match="no kubeconfig: /nowhere/config not found"):
        incluster.find_endpoint(folder=account, environment=IN_POD | {"KUBECONFIG": "/nowhere/config"})


def test_without_any_endpoint_the_error_names_both(account: Path) -> None:
    """The kubeconfig and the service account."""
    expected = f"no kubeconfig: {account.parent}/.kube/config not found; not in a pod"
    with pytest.raises(KubeconfigError, match=re.escape(expected)):
        incluster.find_endpoint(folder=account, environment={})
