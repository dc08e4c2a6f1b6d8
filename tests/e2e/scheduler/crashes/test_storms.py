"""Very many pods that fit nowhere: each is told once, and nobody else waits for that."""

import time
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import JSON_PATCH
from cpg_client.resources import NODES, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Arena

pytestmark = pytest.mark.e2e
MANY = 600


async def test_a_storm_of_words_holds_nobody_up(arena: "Arena") -> None:
    """A tree that fits goes before the words; news that do not help change none; what is wiped out is said again."""
    replica = arena.start("--no-leader-elect")
    await arena.until_said(replica, "ready")
    hopeless = [f"hopeless-{number}" for number in range(MANY)]
    await arena.create(*(arena.pod(name, cpu="5") for name in hopeless))
    told = len(await arena.messages(PODS))
    began = time.monotonic()
    await arena.create(*arena.tree("tree"))
    await arena.until(lambda: replica.log_lines("bound"))
    assert time.monotonic() - began < 4
    await arena.until_nobody_is_silent(30)
    assert told < MANY, "there was no storm any more when the tree came"
    events = await arena.events("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("hopeless")} == dict.fromkeys(hopeless, 1)
    small = {"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    await arena.create((NODES.path(), small))
    try:
        wiped = PODS.path(arena.namespace, "hopeless-7", "status")
        await arena.connection.patch(wiped, [{"op": "remove", "path": "/status/conditions"}], JSON_PATCH)
        await arena.until_nobody_is_silent()
    finally:
        await arena.delete(NODES, "small")
    # The tree came piece by piece, and was told in turn what it still waited for.
    events = await arena.events("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("hopeless")} == dict.fromkeys(hopeless, 1)
    assert replica.log_lines("attempt failed") == []
