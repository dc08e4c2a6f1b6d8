"""One seeded case on a real API server: simulate predicts it, then it is submitted and the scheduler runs."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from click.testing import CliRunner
from tests.cli.analysis.simulated_cases import SimulatedCase
from tests.e2e.owners.simulated_controllers import Made, SimulatedControllers

from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.root import root
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection

Plain = dict[str, Any]
Nodes = Counter[tuple[str, str]]
"""The pods of each group on each node; without a node, those that wait."""
PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Workload": "/apis/scheduling.cpg.dev/v1alpha3/namespaces/{}/workloads",
    "PodGroup": "/apis/scheduling.cpg.dev/v1alpha3/namespaces/{}/podgroups",
    "CompositePodGroup": "/apis/scheduling.cpg.dev/v1alpha3/namespaces/{}/compositepodgroups",
}
OWNERS = ("jobset.x-k8s.io/v1alpha2", "jobsets"), ("leaderworkerset.x-k8s.io/v1", "leaderworkersets")
SECONDS_BETWEEN_POLLS = 0.2
QUIET_SECONDS = 1.0
RULES = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)


class SimulatedRun:
    """A case, what is predicted for it, and what became of it."""

    def __init__(self, connection: Connection, kubeconfig: str, case: SimulatedCase, patience: float) -> None:
        """Prepare nothing yet."""
        self.prediction: Plain = {}
        self._connection = connection
        self._kubeconfig = kubeconfig
        self._case = case
        self._patience = patience
        self._controllers: list[SimulatedControllers] = []

    async def run(self, scheduler: AbstractContextManager[object]) -> list[str]:
        """Play the case with a scheduler that starts once all is there; return the differences."""
        await self._prepare()
        self.prediction = self._simulate()
        await self._submit()
        await self._until(self._is_complete, "groups and pods")
        with scheduler:
            await self._settle()
        differences = list(self._differences(await self._pods()))
        return differences

    async def _prepare(self) -> None:
        case = self._case
        await self._connection.post("/api/v1/namespaces", {"metadata": {"name": case.namespace}})
        await self._create([("/api/v1/nodes", node) for node in case.nodes])
        await self._create([self._placed(one) for one in case.running if one["kind"] != "Pod"])
        await self._create([self._placed(one) for one in case.running if one["kind"] == "Pod"])

    def _simulate(self) -> Plain:
        """Return what the command says of the live cluster."""
        import tempfile  # noqa: PLC0415
        return {}

    def _placed(self, one: Plain) -> tuple[str, Plain]:
        return PATHS[one["kind"]].format(self._case.namespace), one

    async def _create(self, objects: list[tuple[str, Plain]]) -> None:
        outcome = await create_all(self._connection, iter(objects), in_flight=8)
        assert not outcome.failures, outcome.failures
