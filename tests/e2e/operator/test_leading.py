"""Two replicas: one works, the other stands by and takes over."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab.ports import free_port

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Operator, Stage

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e


async def answer(port: int, path: str) -> str:
    """Return the answer of a replica's probes, or nothing."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    found = (await reader.read()).decode()
    writer.close()
    return found


async def test_a_replica_takes_over_when_the_other_ends(
    stage: "Stage", cluster: "Cluster", operator: "Operator", tmp_path: Path
) -> None:
    """Both answer probes; only the leader counts trees, and its successor follows at once."""
    operator.kill()
    command = [sys.executable, "-m", "cpg_operator", "--kubeconfig", str(cluster.kubeconfig), "--listen"]
    ports = [free_port(), free_port()]
    replicas = []
    try:
        for port in ports:
            with (tmp_path / str(port)).open("wb") as log:
                replicas.append(subprocess.Popen([*command, f"127.0.0.1:{port}"], stderr=log))  # noqa: ASYNC220, S603

            async def says(port: int = port) -> bool:
                return re.search(r"\n(ok|standing by)", await answer(port, "/readyz")) is not None

            await stage.until(True, says)  # noqa: FBT003  # what is wanted
        assert "standing by" in await answer(ports[1], "/readyz")
        await stage.group("a", 1)

        async def health() -> object:
            return (await stage.condition("PodGroup", "a", "Healthy")).get("reason")

        await stage.until("Pending", health)
        page = await answer(ports[0], "/metrics")
        assert re.search(r'cpg_operator_trees\{flavour="crd",state="Pending"\} \d', page)
        assert "cpg_operator_writes_total" in page
        replicas[0].terminate()
        assert replicas[0].wait(15) == 0
        await stage.pod("p", "a", "n1")
        await stage.running("p")
        await stage.until("MinimumMet", health)
    finally:
        for replica in replicas:
            replica.terminate()
            replica.wait(15)
        operator.start()
