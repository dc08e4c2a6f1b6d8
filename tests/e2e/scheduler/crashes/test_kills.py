"""A leader is killed while it binds a tree: the next leader binds the rest.

The suite has a few kills in each flavour. ``make crash`` kills twenty times (``CRASHES``); ``CRASH_SEED`` chooses
other moments. On a busy machine a kill can come after the last bind of its tree: more trees follow until half of the
kills came in time. After twenty kills the cluster is exactly full: a tree outside its domains would leave no room for
another tree.
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
MOST_TREES = 20
"""The trees that the cluster has room for."""

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def crash_cluster(crash_cluster: Cluster, flavour: str) -> Iterator[Cluster]:
    """Return the shared cluster, or run one with the same nodes that serves the built-in kinds."""
    if flavour == "crd":
        yield crash_cluster
        return
    with Cluster(ClusterSpec(gates="native", nodes=crash_cluster.spec.nodes)) as cluster:
        yield cluster


@pytest.mark.parametrize("flavour", ["crd", "native"], scope="module")
async def test_a_new_leader_completes_partially_bound_trees(
    testbed: "Testbed", flavour: str, record: dict[str, Any]
) -> None:
    """All pods of each tree are bound in its domains, for any number of binds before the kill of the leader."""
    moments = random.Random(SEED)  # noqa: S311 - a run can be repeated
    seconds: list[float] = []
    result = {"seed": SEED, "kills": CRASHES, "outcome": "incomplete", "seconds_until_complete": seconds}
    record[f"kills, {flavour}"] = result
    leader = testbed.start_replica(bindsInFlight=1)
    await testbed.wait_for_log(leader, "ready")
    standby = testbed.start_replica(bindsInFlight=1)
    trees = partial_trees = 0
    while trees < CRASHES or (partial_trees < trees / 2 and trees < MOST_TREES):
        async with testbed.watch_binds() as binds:
            await testbed.create(*testbed.tree(f"tree{trees}"))
            for _ in range(moments.randrange(1, TREE - 4)):
                await anext(binds)
        leader.process.kill()
        killed = time.monotonic()
        trees += 1
        partial_trees += await testbed.bound_count() < trees * TREE
        leader, standby = standby, testbed.start_replica(bindsInFlight=1)
        await testbed.wait_until_bound(trees * TREE)
        seconds.append(round(time.monotonic() - killed, 2))
    await testbed.wait_until_complete()
    assert partial_trees >= trees / 2, "most kills came after the last bind of the tree"
    assert len(await testbed.condition_messages(testbed.composites)) == trees
    result |= {"outcome": "complete", "partial_trees": partial_trees}
