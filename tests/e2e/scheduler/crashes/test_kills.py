"""A leader that is killed in the middle of binding a tree: the next one completes it.

A few kills are in the suite; ``make crash`` kills twenty times (``CRASHES``), at other moments on demand
(``CRASH_SEED``). With twenty, the cluster is exactly full at the end: a tree that strayed would leave another without
a place.
"""

import os
import random
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Arena

CRASHES = int(os.environ.get("CRASHES", "5"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
TREE = 16

pytestmark = pytest.mark.e2e


async def test_every_tree_ends_whole(arena: "Arena") -> None:
    """However many of its pods were bound when the leader died; the standby follows when the lease is over."""
    moments = random.Random(SEED)  # noqa: S311 - to be repeated
    leader = arena.start(bindsInFlight=1)
    await arena.until_said(leader, "ready")
    standby = arena.start(bindsInFlight=1)
    halves = 0
    for number in range(CRASHES):
        async with arena.binds() as binds:
            await arena.create(*arena.tree(f"tree{number}"))
            for _ in range(moments.randrange(1, TREE - 4)):
                await anext(binds)
        leader.process.kill()
        halves += await arena.bound() < (number + 1) * TREE
        leader, standby = standby, arena.start(bindsInFlight=1)
        await arena.until_bound((number + 1) * TREE)
    await arena.until_whole()
    assert halves >= CRASHES / 2, "the kills came too late to show anything"
    assert len(await arena.messages(CPG_COMPOSITE_POD_GROUPS)) == CRASHES
