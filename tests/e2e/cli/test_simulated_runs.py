"""Seeded cases: the scheduler does on a real API server what simulate predicts, with the operator of the chart.

The suite plays a few cases; ``make fuzz-simulate`` plays 200 (``SIMULATE_RUNS``) from ``SIMULATE_SEED`` on, and writes
a result file. The scheduler starts once all objects of a case are there, so that the order of attempts is known.
"""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import result_files
from tests.cli.analysis.simulated_cases import generate, priority_classes
from tests.e2e.cli.simulated_run import DifferingRunError, SimulatedRun

from cpg_client.connection import Connection
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RUNS = int(os.environ.get("SIMULATE_RUNS", "4"))
FIRST_SEED = int(os.environ.get("SIMULATE_SEED", "1"))
RESULTS = os.environ.get("SIMULATE_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
PATIENCE = float(os.environ.get("SIMULATE_PATIENCE", "30"))
"""Seconds after which the scheduler has to have done what was predicted."""
CONTROLLERS = ("garbage-collector-controller", "deployment-controller", "replicaset-controller")
KINDS = Path(__file__).parents[1] / "owners" / "owner_kinds.yaml"


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster whose controller manager starts after all CRDs."""
    with Cluster(ClusterSpec(components=("controller-manager",), controllers=CONTROLLERS)) as running:
        running.stop_component("controller-manager")
        running.kubectl("apply", "-f", str(KINDS))
        install(running, {"scheduler": {"enabled": False}, "operator": {"enabled": False}})
        running.start_component("controller-manager")
        yield running


@pytest.fixture(scope="module")
def release(cluster: Cluster, install: "Installer") -> ChartRelease:
    """Return the chart with both processes."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    return install(cluster, {"scheduler": process, "operator": process})


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, release: ChartRelease, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployments]:
    """Run the operator."""
    with _process(cluster, release, "operator", tmp_path_factory.mktemp("operator")) as running:
        yield running


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    """Return a connection of the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connected:
        yield connected


def _process(cluster: Cluster, release: ChartRelease, name: str, folder: Path) -> Deployments:
    chosen = [one for one in release.deployments if one["metadata"]["name"].endswith(name)]
    return Deployments(cluster.access, chosen, folder=folder)


@pytest.mark.usefixtures("operator")
async def test_the_scheduler_does_what_simulate_predicts(
    cluster: Cluster, release: ChartRelease, connection: Connection, tmp_path: Path
) -> None:
    """The same pods of each group on the same nodes, and the same victims."""
    began, measured, load = time.monotonic(), result_files.measured_code(), result_files.load_average()
    failures, fitting, evicting = dict[int, str](), 0, 0
    for one in priority_classes():
        await connection.post("/apis/scheduling.k8s.io/v1/priorityclasses", one)
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run = SimulatedRun(connection, cluster.kubeconfig, generate(seed), PATIENCE)
        try:
            await run.run(_process(cluster, release, "scheduler", folder), folder)
        except DifferingRunError as error:
            failures[seed] = str(error)
        await run.clean_up()
        fitting += bool(run.prediction.get("fits"))
        evicting += bool(run.prediction.get("victims"))
    figures: dict[str, Any] = {
        "runs": RUNS,
        "first_seed": FIRST_SEED,
        "equal": RUNS - len(failures),
        "predicted_to_fit": fitting,
        "predicted_to_evict": evicting,
        "seconds": round(time.monotonic() - began, 1),
        "load_before": load,
        "load_after": result_files.load_average(),
        "failures": failures,
    }
    if RESULTS:
        result_files.write_result("simulate", figures, measured=measured)
    assert not failures, failures
