"""Two replicas: one leads, the other stands by and takes over."""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab.deployments import Deployments, PodProcess

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.operator.conftest import OperatorProcess, Testbed

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e


async def answer(pod: PodProcess, path: str) -> str:
    """Return the response of a replica's probe server."""
    return (await asyncio.to_thread(pod.get, path))[1]


async def test_a_replica_takes_over_when_the_other_ends(
    testbed: "Testbed", cluster: "Cluster", operator: "OperatorProcess", install: "Installer", tmp_path: Path
) -> None:
    """Both answer probes; only the leader counts trees, and the standby follows at once."""
    operator.kill()
    release = install(cluster, {"scheduler": {"enabled": False}, "operator": {"replicas": 2}}, testbed.namespace)
    running = Deployments(cluster.access, release.deployments, folder=tmp_path)
    try:
        (pods,) = (await asyncio.to_thread(running.__enter__)).pods.values()
        words = [await answer(pod, "/readyz") for pod in pods]
        (leader,) = (pod for pod, word in zip(pods, words, strict=True) if "standing by" not in word)
        await testbed.group("a", 1)

        async def health() -> object:
            return (await testbed.condition("PodGroup", "a", "Healthy")).get("reason")

        await testbed.until("Pending", health)
        page = await answer(leader, "/metrics")
        assert re.search(r'cpg_operator_trees\{flavour="crd",state="Pending"\} \d', page)
        assert "cpg_operator_writes_total" in page
        await asyncio.to_thread(leader.stop)
        assert leader.process.exit_code == 0
        await testbed.pod("p", "a", "n1")
        await testbed.running("p")
        await testbed.until("MinimumMet", health)
    finally:
        await asyncio.to_thread(running.stop)
        operator.start()
