"""How a pod finds its API server, and who wins."""

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
    """Give the files of a pod's service account, and an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    folder = tmp_path / "account"
    folder.mkdir()
    for name, text in {"ca.crt": "CA", "token": "sesame", "namespace": "cpg-system\n"}.items():
        folder.joinpath(name).write_text(text)
    return folder


def test_a_pod_finds_its_server(account: Path) -> None:
    """Address, trust, token and namespace come from where Kubernetes puts them."""
    assert incluster.pod_endpoint(account, IN_POD) == Endpoint(
        server="https://10.0.0.1:443",
        ca=account / "ca.crt",
        credentials=Credentials(token_file=account / "token"),
        namespace="cpg-system",
        context="in-cluster",
    )


def test_addresses_may_be_of_either_kind(account: Path) -> None:
    """An IPv6 address is put into brackets."""
    environment = IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert incluster.pod_endpoint(account, environment).server == "https://[fd00::1]:443"


def test_the_namespace_may_be_missing(account: Path) -> None:
    """Projected accounts need not have the file."""
    (account / "namespace").unlink()
    assert incluster.pod_endpoint(account, IN_POD).namespace == "default"


def test_outside_of_a_pod(account: Path) -> None:
    """Without the variables there is no server to find."""
    with pytest.raises(EndpointError, match="not in a pod: KUBERNETES_SERVICE_HOST"):
        incluster.pod_endpoint(account, {})


@pytest.mark.parametrize("missing", ["ca.crt", "token"])
def test_a_pod_without_an_account(account: Path, missing: str) -> None:
    """The error says which file is not there and what is most often the reason."""
    (account / missing).unlink()
    with pytest.raises(EndpointError, match=rf"{missing}: not there; does the pod set automountServiceAccountToken"):
        incluster.pod_endpoint(account, IN_POD)


def test_a_kubeconfig_wins(account: Path) -> None:
    """Who puts one into a pod, or names one, wants it used."""
    config = account.parent / ".kube" / "config"
    config.parent.mkdir()
    config.write_text(CONFIG + "current-context: lab\n")
    assert incluster.find_endpoint(folder=account, environment=IN_POD).context == "lab"
    assert incluster.find_endpoint(config, "lab", folder=account, environment=IN_POD).context == "lab"


def test_without_a_kubeconfig_the_pod_counts(account: Path) -> None:
    """A pod needs no configuration."""
    assert incluster.find_endpoint(folder=account, environment=IN_POD).context == "in-cluster"


def test_what_was_asked_for_is_not_replaced(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context, or a file named by variable, that is not there is an error also in a pod."""
    with pytest.raises(KubeconfigError, match="no kubeconfig"):
        incluster.find_endpoint(context="lab", folder=account, environment=IN_POD)
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(KubeconfigError, match="no kubeconfig: /nowhere/config not found"):
        incluster.find_endpoint(folder=account, environment=IN_POD | {"KUBECONFIG": "/nowhere/config"})


def test_nothing_anywhere(account: Path) -> None:
    """The error tells both places that were looked at."""
    expected = f"no kubeconfig: {account.parent}/.kube/config not found; not in a pod"
    with pytest.raises(KubeconfigError, match=re.escape(expected)):
        incluster.find_endpoint(folder=account, environment={})
