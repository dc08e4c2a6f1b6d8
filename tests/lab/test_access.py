"""Access to a cluster: kubeconfig, kubectl, tokens."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.errors import LabError

KUBECTL = """
import sys
if "fail" in sys.argv:
    sys.exit("no such thing")
print(*sys.argv[1:], sys.stdin.read() if "-" in sys.argv else "")
"""


@pytest.fixture
def access(tmp_path: Path, program: Callable[[str, str], Path]) -> Access:
    """Return access to a cluster that does not exist, with a kubectl that prints its arguments."""
    return Access(
        url="https://127.0.0.1:1",
        ca_file=tmp_path / "ca.crt",
        token="secret",  # noqa: S106  # of nothing
        kubeconfig=tmp_path / "kubeconfig",
        kubectl_path=program("kubectl", KUBECTL),
    )


def test_the_kubeconfig_is_private_and_complete(tmp_path: Path) -> None:
    """The file contains the authority, so it can be copied, and only this user can read it."""
    ca, path = tmp_path / "ca.crt", tmp_path / "kubeconfig"
    ca.write_text("authority")
    path.touch(mode=0o644)
    write_kubeconfig(path, url="https://127.0.0.1:6443", ca_file=ca, token="secret")  # noqa: S106  # of nothing
    assert path.stat().st_mode & 0o777 == 0o600
    document = yaml.safe_load(path.read_text())
    cluster = document["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"authority"
    assert "insecure-skip-tls-verify" not in cluster
    assert document["users"][0]["user"] == {"token": "secret"}
    assert document["current-context"] == document["contexts"][0]["name"]


def test_kubectl_gets_the_kubeconfig_and_the_input(access: Access) -> None:
    """Arguments, input and the cluster's own kubeconfig reach kubectl."""
    done = access.kubectl("apply", "-f", "-", input="objects")
    assert done.stdout.split() == ["--kubeconfig", str(access.kubeconfig), "apply", "-f", "-", "objects"]


def test_a_failing_kubectl_raises_with_its_error_output(access: Access) -> None:
    """Without ``check`` the caller gets the failed process."""
    with pytest.raises(LabError, match=r"kubectl fail failed \(1\): no such thing"):
        access.kubectl("fail")
    assert access.kubectl("fail", check=False).returncode == 1


def test_a_token_is_requested_for_a_service_account(access: Access) -> None:
    """The token comes from the API, through kubectl."""
    words = access.token_for("robot", "prod")
    assert words.endswith("create token robot --namespace prod")
    assert sys.executable not in words
