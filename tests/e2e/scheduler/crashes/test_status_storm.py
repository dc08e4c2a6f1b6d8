"""Hundreds of unschedulable pods: each gets one event, and their status writes delay no other unit."""

import time
from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import JSON_PATCH
from cpg_client.resources import NODES, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
PODS_IN_STORM = 600


async def test_many_status_writes_delay_no_bind(testbed: "Testbed") -> None:
    """A tree is bound before the writes have ended. A small node causes no new event; a removed condition returns."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    unschedulable = [f"large-{number}" for number in range(PODS_IN_STORM)]
    await testbed.create(*(testbed.pod(name, cpu="5") for name in unschedulable))
    written = len(await testbed.condition_messages(PODS))
    began = time.monotonic()
    await testbed.create(*testbed.tree("tree"))
    await testbed.wait_until(lambda: replica.log_lines("bound"))
    assert time.monotonic() - began < 4
    await testbed.wait_for_pod_conditions(30)
    assert written < PODS_IN_STORM, "all conditions were written before the tree was created"
    events = await testbed.event_counts("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("large")} == dict.fromkeys(unschedulable, 1)
    small = {"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    await testbed.create((NODES.path(), small))
    try:
        path = PODS.path(testbed.namespace, "large-7", "status")
        await testbed.connection.patch(path, [{"op": "remove", "path": "/status/conditions"}], JSON_PATCH)
        await testbed.wait_for_pod_conditions()
    finally:
        await testbed.delete(NODES, "small")
    # Only the tree may have several events: its objects were created one after the other, so its message changed.
    events = await testbed.event_counts("FailedScheduling")
    assert {name: events[name] for name in events if name.startswith("large")} == dict.fromkeys(unschedulable, 1)
    assert replica.log_lines("attempt failed") == []
