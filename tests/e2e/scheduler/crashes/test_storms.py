"""Very many pods that fit nowhere: each is told once, and nobody else waits for that."""

import time
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import JSON_PATCH
from cpg_client.resources import NODES, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
MANY = 600


async def test_a_storm_of_words_holds_nobody_up(testbed: "Testbed") -> None:
    """A tree that fits goes before the words; news that do not help change none; what is wiped out is said again."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    hopeless = [f"hopeless-{number}" for number in range(MANY)]
    await testbed.create(*(testbed.pod(name, cpu="5") for name in hopeless))
    told = len(await testbed.condition_messages(PODS))
    began = time.monotonic()
    await testbed.create(*testbed.tree("tree"))
    await testbed.wait_until(lambda: replica.log_lines("bound"))
    assert time.monotonic() - began < 4
    await testbed.wait_for_pod_conditions(30)
    assert told < MANY, "there was no storm any more when the tree came"
    events = await testbed.event_counts("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("hopeless")} == dict.fromkeys(hopeless, 1)
    small = {"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    await testbed.create((NODES.path(), small))
    try:
        wiped = PODS.path(testbed.namespace, "hopeless-7", "status")
        await testbed.connection.patch(wiped, [{"op": "remove", "path": "/status/conditions"}], JSON_PATCH)
        await testbed.wait_for_pod_conditions()
    finally:
        await testbed.delete(NODES, "small")
    # The tree came piece by piece, and was told in turn what it still waited for.
    events = await testbed.event_counts("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("hopeless")} == dict.fromkeys(hopeless, 1)
    assert replica.log_lines("attempt failed") == []
