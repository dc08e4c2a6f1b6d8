"""An operator with the rights of a service account in one namespace."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_client.flavours import CRD
from cpg_lab.processes import Process

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import OperatorProcess, Testbed

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e

GROUPS = "scheduling.cpg.dev"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {
        "apiGroups": [GROUPS],
        "resources": ["podgroups", "compositepodgroups", "workloads"],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {
        "apiGroups": [GROUPS],
        "resources": ["podgroups/status", "compositepodgroups/status", "workloads/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]


async def kubeconfig(testbed: "Testbed", cluster: "Cluster", folder: Path) -> Path:
    """Grant an account these rights, and write a kubeconfig for it."""
    post, space = testbed.connection.post, testbed.namespace
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    await post(f"{rbac}/roles", {"metadata": {"name": "operator"}, "rules": RULES})
    account = {"kind": "ServiceAccount", "name": "default", "namespace": space}
    role = {"kind": "Role", "name": "operator", "apiGroup": "rbac.authorization.k8s.io"}
    await post(f"{rbac}/rolebindings", {"metadata": {"name": "operator"}, "subjects": [account], "roleRef": role})
    answer = await post(f"/api/v1/namespaces/{space}/serviceaccounts/default/token", {"spec": {}})
    token = msgspec.json.decode(answer)["status"]["token"]
    config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


async def test_rights_in_one_namespace_are_enough(
    testbed: "Testbed", cluster: "Cluster", operator: "OperatorProcess", tmp_path: Path
) -> None:
    """It reports health there; without access to nodes and classes it reports no domain and fills in no priority."""
    operator.kill()
    settings = tmp_path / "settings.yaml"
    settings.write_text("integrations: []\n")
    account = ["--kubeconfig", str(await kubeconfig(testbed, cluster, tmp_path)), "--no-leader-elect", "--listen", ""]
    options = ["--config", str(settings), "--api", CRD, "--namespace", testbed.namespace]
    command = [sys.executable, "-m", "cpg_operator", *account, *options]
    limited = Process("limited", command, log=tmp_path / "log")
    try:
        await testbed.group("a", 1)
        await testbed.pod("p", "a", "n1")
        await testbed.running("p")

        async def reason() -> object:
            return (await testbed.condition("PodGroup", "a", "Healthy")).get("reason")

        await testbed.until("MinimumMet", reason)
        assert "priority" not in (await testbed.get("PodGroup", "a"))["spec"]
        await testbed.delete("Pod", "p")
        await testbed.until("Pending", reason)
    finally:
        limited.stop(20)
        operator.start()
    assert limited.exit_code == 0, limited.tail()
    assert "reconcile failed" not in limited.output()
    assert "forbidden" not in limited.output().lower().replace("may not be listed", "")
