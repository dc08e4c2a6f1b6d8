"""A scheduler that is paused for so long that the API server no longer has the changes since the pause."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import PODS
from cpg_lab import relay
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e


class BreakableProxy:
    """A TCP proxy to an API server; a test can close and reopen it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._ends = f"{LOOPBACK}:{free_port()}", url.removeprefix("https://")
        self._log = folder / "proxy.log"
        self.url = f"https://{self._ends[0]}"
        self.open()

    def open(self) -> None:
        """Accept connections."""
        self._process = Process("proxy", [sys.executable, relay.__file__, *self._ends], log=self._log)

    def close(self) -> None:
        """Drop all connections, and accept no new ones."""
        self._process.kill()


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster without watch cache: the cache would serve old versions for a minute or longer."""
    nodes = NodePool.parse("2 blocks x 2 racks x 8 nodes, cpu=4")
    with Cluster(ClusterSpec(nodes=(nodes,), watch_cache=False)) as cluster:
        yield cluster


@pytest.fixture
def proxy(testbed: "Testbed") -> Iterator[BreakableProxy]:
    """Connect the replicas of the testbed through a proxy."""
    proxy = BreakableProxy(testbed.cluster.url, testbed.folder)
    kubeconfig = testbed.folder / "proxy.kubeconfig"
    kubeconfig.write_text(testbed.kubeconfig.read_text().replace(testbed.cluster.url, proxy.url))
    testbed.kubeconfig = kubeconfig
    yield proxy
    proxy.close()


async def test_a_resumed_scheduler_lists_what_it_missed(testbed: "Testbed", proxy: BreakableProxy) -> None:
    """Its watches have expired. New objects are placed, deleted ones forgotten, and a reused name is a new pod."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(
        *testbed.tree("first"), testbed.pod("huge", cpu="5"), testbed.group("pg", 2), testbed.pod("p", group="pg")
    )
    await testbed.wait_until_bound(16)
    await testbed.wait_for_message("p", "waiting for more pods")
    await testbed.wait_until(lambda: sum(line["binds"] for line in replica.log_lines("bound")) == 16)
    replica.pause()
    proxy.close()
    for name in ("p", "huge", "first-0-7"):
        await testbed.delete(PODS, name)
    await testbed.create(
        testbed.pod("first-0-7", group="first-0"),
        *(testbed.pod(f"q{number}", group="pg") for number in range(2)),
        *testbed.tree("second"),
    )
    await testbed.compact_etcd()
    proxy.open()
    replica.resume()
    await testbed.wait_until_bound(34)
    await testbed.wait_until_complete()
    expired = {line["kind"] for line in replica.log_lines("watch failed") if "410" in line["error"]}
    assert expired >= {"Node", "Pod", "PodGroup", "CompositePodGroup"}
    bound = [line["binds"] for line in replica.log_lines("bound")]
    assert (sum(bound), replica.log_lines("attempt failed"), replica.process.is_running) == (35, [], True)
