"""The rights on groups of users with Kubernetes' own roles in a namespace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Installer

KINDS = ("podgroups", "compositepodgroups", "workloads")
READS, WRITES = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
MAY = {"view": READS, "edit": READS | WRITES, "admin": READS | WRITES}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster(install: Installer) -> Iterator[Cluster]:
    """Run a cluster with the chart, role aggregation, and a user for each role in one namespace."""
    with Cluster(ClusterSpec(components=("controller-manager",))) as running:
        install(running, {})
        for role in MAY:
            running.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
        yield running


def allowed(cluster: Cluster, user: str, namespace: str = "default") -> dict[str, set[str]]:
    """Return the verbs of a user in a namespace by kind."""
    told = cluster.kubectl("auth", "can-i", "--list", f"--as={user}", "-n", namespace).stdout
    found: dict[str, set[str]] = {}
    for resource, verbs in re.findall(r"^(\S+)\.scheduling\.cpg\.dev .*\[([^\]]*)\]$", told, re.MULTILINE):
        found.setdefault(resource, set()).update(verbs.split())
    return found


@pytest.mark.parametrize("role", MAY)
def test_a_role_of_kubernetes_covers_groups(cluster: Cluster, role: str) -> None:
    """`view` reads groups, `edit` and `admin` write them, only in its namespace; no role writes a status."""
    cluster.wait(lambda: allowed(cluster, role) == dict.fromkeys(KINDS, MAY[role]), what="aggregated roles")
    assert allowed(cluster, role, "kube-system") == {}
