"""The restore of a backup of etcd: resource versions go back, and watches stay silent without any error."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_client.listing import list_all
from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import NEWEST, ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
MAX_SECONDS_UNTIL_NOTICED = 60.0
CUT_OFF = """
import pathlib, sys
from cpg_client.connection import Connection
from cpg_client.connection_pool import BrokenConnectionError
from cpg_scheduler.__main__ import main

working = Connection._exchange

async def cut_off(self, *arguments, **named):
    if pathlib.Path({flag!r}).exists():
        raise BrokenConnectionError("cut off")
    return await working(self, *arguments, **named)

Connection._exchange = cut_off
sys.exit(main())
"""
"""A scheduler that gets no new connection while a file exists."""


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


async def test_a_restored_etcd_that_has_grown_past_all_seen_versions_is_noticed(
    testbed: "Testbed", tmp_path: Path
) -> None:
    """The scheduler gets no connection before, so no version that it reads is older. But an object of its list is."""
    backup, flag = tmp_path / "backup", tmp_path / "cut"
    await testbed.create(testbed.pod("kept"))
    await asyncio.to_thread(restart_etcd, testbed.cluster, save_to=backup)
    replica = testbed.start_replica("--no-leader-elect", program=CUT_OFF.format(flag=str(flag)))
    await testbed.wait_until(lambda: _is_bound(testbed, "kept"))
    lost = await _version(testbed)
    flag.touch()
    await asyncio.to_thread(restart_etcd, testbed.cluster, restore_from=backup)
    await testbed.create(testbed.pod("early"))
    while await _version(testbed) <= lost + 10:
        await testbed.create(testbed.pod("late"))
        await testbed.delete(PODS, "late")
    flag.unlink()
    assert await asyncio.to_thread(replica.process.wait, MAX_SECONDS_UNTIL_NOTICED)
    assert (replica.process.exit_code, "went back from" in replica.process.tail(1)) == (1, True)
    testbed.start_replica("--no-leader-elect")
    for name in ("kept", "early"):
        await testbed.wait_until(lambda name=name: _is_bound(testbed, name))  # type: ignore[misc]


async def _version(testbed: "Testbed") -> int:
    """Return the present version of the API server."""
    return int((await list_all(testbed.connection, PODS.path(testbed.namespace))).resource_version)


async def _is_bound(testbed: "Testbed", name: str) -> bool:
    return bool((await testbed.pod_nodes()).get(name))
