"""A leader that is killed in the middle of binding a tree: the next one completes it.

A few kills in each flavour are in the suite; ``make crash`` kills twenty times (``CRASHES``), at other moments on
demand (``CRASH_SEED``). With twenty, the cluster is exactly full at the end: a tree that strayed would leave another
without a place.
"""

import os
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

CRASHES = int(os.environ.get("CRASHES", "3"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
TREE = 16

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def crash_cluster(crash_cluster: Cluster, flavour: str) -> Iterator[Cluster]:
    """Return the crash_cluster of all these tests, or run another one like it that serves the built-in kinds."""
    if flavour == "crd":
        yield crash_cluster
        return
    with Cluster(ClusterSpec(gates="native", nodes=crash_cluster.spec.nodes)) as cluster:
        yield cluster


@pytest.mark.parametrize("flavour", ["crd", "native"], scope="module")
async def test_every_tree_ends_whole(testbed: "Testbed", flavour: str, record: dict[str, Any]) -> None:
    """However many of its pods were bound when the leader died; the standby follows when the lease is over."""
    moments = random.Random(SEED)  # noqa: S311 - to be repeated
    seconds: list[float] = []
    told = {"seed": SEED, "kills": CRASHES, "outcome": "not whole", "seconds_until_whole": seconds}
    record[f"kills, {flavour}"] = told
    leader = testbed.start_replica(bindsInFlight=1)
    await testbed.wait_for_log(leader, "ready")
    standby = testbed.start_replica(bindsInFlight=1)
    halves = 0
    for number in range(CRASHES):
        async with testbed.watch_binds() as binds:
            await testbed.create(*testbed.tree(f"tree{number}"))
            for _ in range(moments.randrange(1, TREE - 4)):
                await anext(binds)
        leader.process.kill()
        killed = time.monotonic()
        halves += await testbed.bound_count() < (number + 1) * TREE
        leader, standby = standby, testbed.start_replica(bindsInFlight=1)
        await testbed.wait_until_bound((number + 1) * TREE)
        seconds.append(round(time.monotonic() - killed, 2))
    await testbed.wait_until_complete()
    assert halves >= CRASHES / 2, "the kills came too late to show anything"
    assert len(await testbed.condition_messages(testbed.composites)) == CRASHES
    told |= {"outcome": "whole", "halves": halves}
