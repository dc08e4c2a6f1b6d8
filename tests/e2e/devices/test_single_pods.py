"""Single pods with devices: ours and kube-scheduler have to come to the same result, with the same objects.

``scenarios/`` is the table. All scenarios are played at the same time, on nodes of their own.
"""

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from tests.e2e.devices.conftest import VERSIONS
from tests.e2e.devices.played_scenarios import OURS, PEER, Comparison, PlayedScenarios, problem
from tests.e2e.devices.scenario_forms import Run, load, runs

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection

if TYPE_CHECKING:
    from cpg_lab.clusters import Cluster

KUBE_SCHEDULER = "default-scheduler"
IS_REHEARSAL = bool(os.environ.get("REHEARSAL"))
"""Whether kube-scheduler also takes the part of ours, which shows that no scenario depends on chance."""
NAMES = load()

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="package")
def comparisons(cluster: "Cluster", version: str) -> dict[str, tuple[Run, Comparison]]:
    """Play all scenarios, and return the outcomes of each."""
    playing = list(runs(version, {PEER: KUBE_SCHEDULER, OURS: KUBE_SCHEDULER if IS_REHEARSAL else SCHEDULER_NAME}))

    async def play() -> dict[str, Comparison]:
        async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
            played = PlayedScenarios(connection, playing)
            await played.play()
            return played.comparisons

    found = asyncio.run(play())
    return {run.scenario_name: (run, found[run.scenario_name]) for run in playing}


@pytest.mark.parametrize("name", NAMES)
def test_the_outcome_is_that_of_kube_scheduler(
    name: str, comparisons: dict[str, tuple[Run, Comparison]], version: str
) -> None:
    """The same pods are bound, with the same devices; the others wait for the same reason."""
    if name not in comparisons:
        pytest.skip(f"Kubernetes {version} has no such devices by default")
    run, comparison = comparisons[name]
    for number in range(len(run.scenario.steps)):
        assert not (found := problem(run, number, comparison)), f"step {number}: {found}"


def test_the_table_is_large() -> None:
    """Both versions have many scenarios."""
    assert [len(list(runs(version, {PEER: ""}))) for version in VERSIONS] >= [50, 30]
