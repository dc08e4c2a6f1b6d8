"""Seeded cases: the scheduler does on a real API server what simulate predicts, with the operator of the chart.

The suite plays a few cases; ``make fuzz-simulate`` plays 200 (``SIMULATE_RUNS``) from ``SIMULATE_SEED`` on, and writes
a result file. The scheduler starts once all objects of a case are there, so that the order of attempts is known.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import result_files
from click.testing import CliRunner
from tests.cli.analysis.simulated_cases import CREATED, SUBMITTED, SimulatedCase, generate, priority_classes
from tests.e2e.cli.simulated_run import SimulatedRun

from cpg_api.scheduling.names import API_VERSION
from cpg_cli.analysis.simulation import simulate
from cpg_cli.cluster.manifests import read_manifests
from cpg_cli.cluster.sources import existing_cluster
from cpg_cli.root import root
from cpg_client.connection import Connection
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RUNS = int(os.environ.get("SIMULATE_RUNS", "10"))
FIRST_SEED = int(os.environ.get("SIMULATE_SEED", "1"))
CASES_AT_ONCE = 20
"""Cases that share a start of the scheduler, each with nodes of its own."""
RESULTS = os.environ.get("SIMULATE_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
PATIENCE = float(os.environ.get("SIMULATE_PATIENCE", "30"))
"""Seconds after which the scheduler has to have done what was predicted."""
CONTROLLERS = ("garbage-collector-controller", "deployment-controller", "replicaset-controller")
KINDS = Path(__file__).parents[1] / "owners" / "owner_kinds.yaml"


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster; its controller manager starts after all CRDs."""
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


def _cases() -> Iterator[SimulatedCase]:
    """Yield cases in which one tree waits for victims at most: several compete for the room that is free first."""
    for seed in itertools.count(FIRST_SEED):
        case = generate(seed)
        base = existing_cluster(case.cluster(), namespace=case.namespace)
        submitted = read_manifests(case.documents(), namespace=case.namespace, created=CREATED)
        if len(simulate(base, submitted, now=SUBMITTED).scheduler.preemptors) <= 1:
            yield case


async def _play(runs: Sequence[SimulatedRun], scheduler: Deployments, folder: Path) -> None:
    """Prepare and predict all cases, then submit them; the scheduler starts once all is there."""
    await asyncio.gather(*(run.prepare() for run in runs))
    for run in runs:
        await asyncio.to_thread(run.predict, folder)
    await asyncio.gather(*(run.submit() for run in runs))
    with scheduler:
        await asyncio.gather(*(run.settle() for run in runs))
    await asyncio.gather(*(run.clean_up() for run in runs))


@pytest.mark.usefixtures("operator")
async def test_the_scheduler_does_what_simulate_predicts(
    cluster: Cluster, release: ChartRelease, connection: Connection, tmp_path: Path
) -> None:
    """The same pods of each group on the same nodes, and the same victims."""
    began, measured, load = time.monotonic(), result_files.measured_code(), result_files.load_average()
    played: list[SimulatedRun] = []
    unordered = 0
    for one in priority_classes():
        await connection.post("/apis/scheduling.k8s.io/v1/priorityclasses", one)
    cases = _cases()
    while len(played) < RUNS:
        batch = list(itertools.islice(cases, min(CASES_AT_ONCE, RUNS - len(played))))
        folder = tmp_path / batch[0].namespace
        folder.mkdir()
        runs = [SimulatedRun(connection, cluster.kubeconfig, case, PATIENCE) for case in batch]
        await _play(runs, _process(cluster, release, "scheduler", folder), folder)
        played += [run for run in runs if run.is_ordered]
        unordered += sum(not run.is_ordered for run in runs)
    failures = {run.case.seed: run.problem for run in played if run.problem}
    figures: dict[str, Any] = {
        "runs": len(played),
        "first_seed": FIRST_SEED,
        "last_seed": played[-1].case.seed,
        "equal": len(played) - len(failures),
        "predicted_to_fit": sum(run.prediction["fits"] for run in played),
        "predicted_to_evict": sum(bool(run.prediction["victims"]) for run in played),
        "left_out_by_their_order": unordered,
        "seconds": round(time.monotonic() - began, 1),
        "load_before": load,
        "load_after": result_files.load_average(),
        "failures": failures,
    }
    if RESULTS:
        result_files.write_result("simulate", figures, measured=measured)
    assert not failures, failures


def _cpg(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    """Run a command as a user does; return its exit code and all that it writes."""
    program = Path(sys.executable).with_name("kubectl-cpg")
    done = subprocess.run(  # noqa: S603 - ours
        [program, *arguments, "--kubeconfig", cluster.kubeconfig],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


async def test_a_live_cluster_is_dumped_and_changed(cluster: Cluster, connection: Connection, tmp_path: Path) -> None:
    """A gang that waits is replayed from a dump, and fits with a further node; without rights nothing is guessed."""
    cluster.add_nodes(NodePool.parse("1 rack x 2 nodes, cpu=2, name=dumped, label example.com/pool=dumped"))
    await connection.post("/api/v1/namespaces", {"metadata": {"name": "dumped"}})
    gang = {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": {"name": "gang"}}
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    await connection.post(f"/apis/{API_VERSION}/namespaces/dumped/podgroups", {**gang, "spec": spec})
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
    selector = {"nodeSelector": {"example.com/pool": "dumped"}}
    for name in "abc":
        meta = {"name": name, "labels": {"scheduling.cpg.dev/pod-group": "gang"}}
        pod = {"schedulerName": "cpg-scheduler", "containers": [container], **selector}
        await connection.post("/api/v1/namespaces/dumped/pods", {"metadata": meta, "spec": pod})
    file = str(tmp_path / "dump.json.gz")
    code, text = _cpg(cluster, "dump", "-o", file)  # no scheduler runs
    assert (code, "the scheduler could not be asked" in text, "3 pods, from your view" in text) == (0, True, True), text
    replayed = CliRunner().invoke(root, ["replay", file, "gang", "-n", "dumped"])
    assert "room for 2 of 3 pods" in replayed.stdout
    code, text = _cpg(cluster, "what-if", "gang", "-n", "dumped", "--add-nodes", "1 x pool=dumped,cpu=2")
    assert (code, "3 of 3 pods: added-1-1, dumped-1-1, dumped-1-2" in text) == (0, True), text
    code, text = _cpg(cluster, "what-if", "gang", "-n", "dumped", "--cordon", "dumped-1-1", "--as", "alice")
    assert (code, "you may not list all nodes" in text) == (3, True), text
