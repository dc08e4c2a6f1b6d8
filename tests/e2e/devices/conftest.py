"""Control planes of the versions of Kubernetes that have devices, with kube-scheduler beside ours."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.api_proxy import ApiProxy, open_session
from tests.e2e.devices.device_testbed import DeviceTestbed

from cpg_client.connection import Connection
from cpg_client.resources import NAMESPACES
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

VERSIONS = ("1.37", "1.34")
CLAIM_CONTROLLERS = ("resourceclaim-controller", "garbage-collector-controller")
"""The controllers that make claims from templates, deallocate them, and delete them with their pods."""
GROUP_CLUSTERS = {
    "crd": ClusterSpec(kubernetes="1.34", components=("controller-manager",), controllers=CLAIM_CONTROLLERS),
    "native": ClusterSpec(
        gates="native",
        further_gates=("DRAWorkloadResourceClaims",),
        components=("controller-manager",),
        controllers=(*CLAIM_CONTROLLERS, "podgroup-protection-controller"),
    ),
}
"""Our kinds on the oldest version with devices, and the built-in kinds with claims of groups."""


@pytest.fixture(scope="package")
def version(request: pytest.FixtureRequest) -> str:
    """Return the version of Kubernetes."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def cluster(version: str) -> Iterator[Cluster]:
    """Run a cluster with kube-scheduler and the controllers of claims."""
    spec = ClusterSpec(
        kubernetes=version, components=("scheduler", "controller-manager"), controllers=CLAIM_CONTROLLERS
    )
    with Cluster(spec) as running:
        yield running


@pytest.fixture(scope="package", params=GROUP_CLUSTERS)
def flavour(request: pytest.FixtureRequest) -> str:
    """Return the flavour of the groups."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def group_cluster(flavour: str) -> Iterator[Cluster]:
    """Run a cluster without nodes that serves the flavour."""
    with Cluster(GROUP_CLUSTERS[flavour]) as running:
        yield running


@pytest.fixture
async def idle_bed(
    group_cluster: Cluster, flavour: str, install: "Installer", request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[DeviceTestbed]:
    """Return a testbed with its own namespace and without a scheduler."""
    kinds = {"install": flavour == "crd"}
    release = install(group_cluster, {"api": flavour, "crds": kinds, "operator": {"enabled": False}})
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-60:].strip("-")
    async with Connection.from_kubeconfig(group_cluster.kubeconfig) as connection:
        await connection.post(NAMESPACES.path(), {"metadata": {"name": name}})
        made = DeviceTestbed(group_cluster, connection, namespace=name, release=release, folder=tmp_path)
        yield made
        await made.clean_up()


@pytest.fixture
async def bed(idle_bed: DeviceTestbed) -> DeviceTestbed:
    """Return a testbed with one scheduler."""
    replica = idle_bed.start_replica("--no-leader-elect")
    await idle_bed.wait_for_log(replica, "ready")
    return idle_bed


@pytest.fixture
async def api_proxy(idle_bed: DeviceTestbed) -> AsyncIterator[ApiProxy]:
    """Return a proxy to the API server with the rights of the scheduler; a test gives its kubeconfig to replicas."""
    token = idle_bed.cluster.token_for("kube-cpg-scheduler", "kube-cpg")
    async with open_session() as session:
        proxy = ApiProxy(idle_bed.cluster.url, token, session)
        await proxy.open()
        yield proxy
        await proxy.close()
