"""What users read when their kubeconfig cannot be used."""

from pathlib import Path

import pytest

from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.options import ClusterOptions

BROKEN = {
    "text": "root:x:0",
    "a list": "[1, 2]",
    "no YAML": "a: [",
    "nothing": "",
    "no clusters": "apiVersion: v1\nkind: Config\n",
    "a context without a cluster": "contexts: [{name: a, context: {cluster: none, user: none}}]\ncurrent-context: a\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_an_unusable_kubeconfig_is_a_usage_error(tmp_path: Path, text: str) -> None:
    """It never ends in a traceback, and says how to find out more."""
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(CommandError, match=r"^kubeconfig: ") as found:
        ApiServer(ClusterOptions(kubeconfig=str(file))).get("/version")
    assert found.value.code == ExitCode.USAGE
    assert "kubectl config view" in found.value.hint


def test_a_missing_kubeconfig_is_a_usage_error(tmp_path: Path) -> None:
    """The official client says that it found none."""
    with pytest.raises(CommandError, match=r"^kubeconfig: ") as found:
        ApiServer(ClusterOptions(kubeconfig=str(tmp_path / "none"))).get("/version")
    assert found.value.code == ExitCode.USAGE
