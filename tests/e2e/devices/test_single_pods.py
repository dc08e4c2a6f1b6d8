"""Single pods with devices: ours and kube-scheduler have to come to the same result, with the same objects.

``scenarios/`` is the table. All scenarios are played at the same time, on nodes of their own.
"""

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from tests.e2e.devices.conftest import VERSIONS
from tests.e2e.devices.played_scenarios import OURS, PEER, Comparison, PlayedScenarios, problem
from tests.e2e.devices.scenario_forms import Run, runs

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

    from cpg_lab.clusters import Cluster

KUBE_SCHEDULER = "default-scheduler"
Comparisons = dict[str, tuple[Run, Comparison]]
IS_REHEARSAL = bool(os.environ.get("REHEARSAL"))
"""Whether kube-scheduler also takes the part of ours, which shows that no scenario depends on chance."""
NAMES = {version: [run.scenario_name for run in runs(version, {PEER: KUBE_SCHEDULER})] for version in VERSIONS}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="package")
def comparisons(
    cluster: "Cluster",
    version: str,
    install: "Installer",
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Comparisons:
    """Play all scenarios of which tests are selected, and return the outcomes of each."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    schedulers = {PEER: KUBE_SCHEDULER, OURS: KUBE_SCHEDULER if IS_REHEARSAL else SCHEDULER_NAME}
    playing = [run for run in runs(version, schedulers) if run.scenario_name in chosen]

    async def play() -> dict[str, Comparison]:
        async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
            played = PlayedScenarios(connection, playing)
            await played.play()
            return played.comparisons

    with install.scheduler(cluster, tmp_path_factory.mktemp("ours"), api="crd"):
        found = asyncio.run(play())
    return {run.scenario_name: (run, found[run.scenario_name]) for run in playing}


@pytest.mark.parametrize("name", NAMES["1.37"])
@pytest.mark.parametrize("version", ["1.37"], indirect=True, scope="package")
def test_the_outcome_is_that_of_kube_scheduler(name: str, comparisons: Comparisons) -> None:
    """The same pods are bound, with the same devices; the others wait for the same reason."""
    run, comparison = comparisons[name]
    for number, (peer, ours) in enumerate(zip(comparison.peer, comparison.ours, strict=True)):
        assert not (found := problem(run, number, peer, ours)), f"step {number}: {found}"


@pytest.mark.parametrize("name", NAMES["1.34"])
@pytest.mark.parametrize("version", ["1.34"], indirect=True, scope="package")
def test_the_outcome_is_that_of_the_oldest_version_with_devices(name: str, comparisons: Comparisons) -> None:
    """Of the scenarios that need no later feature."""
    test_the_outcome_is_that_of_kube_scheduler(name, comparisons)


def test_the_table_is_large() -> None:
    """Both versions have many scenarios."""
    assert [len(NAMES[version]) for version in VERSIONS] >= [80, 50]
