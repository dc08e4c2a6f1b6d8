"""The restore of a backup of etcd: resource versions go back, and watches stay silent without any error."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import NEWEST, ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
MAX_SECONDS_UNTIL_NOTICED = 60.0


@pytest.fixture(scope="module", params=["1.30", NEWEST])
def crash_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster of the oldest and the newest version."""
    with Cluster(ClusterSpec(kubernetes=request.param, nodes=(NodePool.parse("2 nodes, cpu=4"),))) as cluster:
        yield cluster


def restart_etcd(cluster: Cluster, *, save_to: Path | None = None, restore_from: Path | None = None) -> None:
    """Restart etcd and the API server; in between copy the data of etcd, or replace them by a copy."""
    data = cluster._control_plane.files.etcd_data
    for name in ("apiserver", "etcd"):
        cluster.kill_component(name)
    if save_to is not None:
        shutil.copytree(data, save_to)
    if restore_from is not None:
        shutil.rmtree(data)
        shutil.copytree(restore_from, data)
    for name in ("etcd", "apiserver"):
        cluster.start_component(name)


async def test_a_scheduler_starts_afresh_when_etcd_was_restored(
    testbed: "Testbed", tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """Leader and standby end with a clear line. The next process schedules on what the backup has."""
    backup = tmp_path / "backup"
    await testbed.create(testbed.pod("kept"))
    await asyncio.to_thread(restart_etcd, testbed.cluster, save_to=backup)
    lone = testbed.start_replica("--no-leader-elect")
    standby = testbed.start_replica()
    await testbed.wait_for_log(lone, "ready")
    await testbed.wait_until(lambda: standby.get("/readyz")[0] == 200)
    await testbed.create(*(testbed.pod(f"lost-{number}") for number in range(40)))
    await testbed.wait_until_bound(8)
    await asyncio.to_thread(restart_etcd, testbed.cluster, restore_from=backup)
    back = time.monotonic()
    for replica in (lone, standby):
        assert await asyncio.to_thread(replica.process.wait, MAX_SECONDS_UNTIL_NOTICED)
    record_property("seconds until noticed", round(time.monotonic() - back, 1))
    assert (lone.process.exit_code, "went back from" in lone.process.tail(1)) == (1, True)
    assert standby.process.exit_code == 1  # it may have lost its lease first, which is of another history, too
    testbed.start_replica("--no-leader-elect")
    await testbed.wait_until(lambda: _is_bound(testbed, "kept"))
    assert set(await testbed.pod_nodes()) == {"kept"}


async def _is_bound(testbed: "Testbed", name: str) -> bool:
    return bool((await testbed.pod_nodes()).get(name))
