"""Claims of native PodGroups (KEP-5729), which all pods of a group share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.e2e.scheduler.test_devices import API, NODES, DeviceDriver, nodes

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e
GROUPS = "scheduling.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster that makes claims for native groups."""
    spec = ClusterSpec(gates="native", further_gates=("DRAWorkloadResourceClaims",), components=("controller-manager",))
    with Cluster(spec) as running:
        running.kubectl("apply", "-f", "-", input=msgspec.json.encode(nodes()).decode())
        yield running


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our scheduler with the rights and settings of the chart; return its log."""
    folder = tmp_path_factory.mktemp("scheduler")
    with install.scheduler(cluster, folder, api="native", crds={"install": False}) as log:
        yield log


@pytest.fixture
async def driver(cluster: Cluster) -> AsyncIterator[DeviceDriver]:
    """Return a driver and its namespace."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        driver = DeviceDriver(connection, "group-claims")
        await driver.begin()
        yield driver


async def test_a_claim_that_is_made_for_a_group_is_reserved_for_it(driver: DeviceDriver) -> None:
    """The pods are bound where its device is, and are no consumers themselves; with them, the claim is released."""
    await driver.offer(*NODES)
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "resourceClaims": [entry]}
    body = {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": "pg"}, "spec": spec}
    await driver.connection.post(driver.path("podgroups", api=f"/apis/{GROUPS}"), body)
    for name in "abc":
        await driver.create_pod(name, native_group="pg")
    bound = await driver.wait_until_bound(*"abc")
    assert len(set(bound.values())) == 1
    (claim,) = (await driver.get(driver.path("resourceclaims", api=API)))["items"]
    assert [user["resource"] for user in claim["status"]["reservedFor"]] == ["podgroups"]
    assert await driver.devices() == {"pg": (f"{bound['a']}/gpu-0",)}
