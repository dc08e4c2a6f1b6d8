"""A few seeded runs with the real controllers of JobSets, LeaderWorkerSets, RayClusters and Jobs."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.e2e.owners.observer import Observer
from tests.e2e.owners.real_controllers import RealControllers
from tests.e2e.owners.seeded_run import SeededRun

from cpg_client.connection import Connection
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]
SEEDS = range(1, 6)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run all controllers, then our processes; the garbage collector starts last, because it looks for kinds rarely."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    values = {"integrations": ["jobset", "leaderworkerset", "raycluster", "job"], "scheduler": process}
    spec = ClusterSpec(components=("kwok",), workloads=("jobset", "lws", "ray"))
    with Cluster(spec) as running:
        release = install(running, {**values, "operator": process})
        running.stop_component("controller-manager")
        running.start_component("controller-manager")
        with Deployments(running.access, release.deployments, folder=tmp_path_factory.mktemp("pods")):
            yield running


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    """Return a connection of the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connected:
        yield connected


@pytest.mark.parametrize("seed", SEEDS)
async def test_groups_and_pods_follow_real_owners(connection: Connection, seed: int) -> None:
    """As with simulated controllers, with the operations that the real ones allow."""
    observer = Observer()
    run = SeededRun(connection, observer, seed, PATIENCE)
    run.controllers = RealControllers(connection, observer, run.namespace, run.template, run.rng)
    async with observer.watching(connection):
        problems = await run.run()
    assert not problems, yaml.safe_dump({"problems": problems, "history": run.history}, width=200)
