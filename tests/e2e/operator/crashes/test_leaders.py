"""Two replicas and a lease: the leader is killed or stopped in the middle of its writes."""

import asyncio
import signal
from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_api.scheduling.names import FINALIZER, INSTANTIATE

if TYPE_CHECKING:
    from tests.e2e.operator.crashes.conftest import Operators, Replica

pytestmark = pytest.mark.e2e

MANY = 8
LEAF = {"name": "leaf", "replicas": MANY, "schedulingPolicy": {"gang": {"minCount": 1}}}


async def pair(operators: "Operators") -> tuple["Replica", "Replica"]:
    """Return a leader and a standby."""
    leader = await operators.start(elected=True)
    await operators.until_leading(leader)
    return leader, await operators.start(elected=True)


async def wanted(operators: "Operators") -> None:
    """Create a Workload with many groups."""
    await operators.testbed.create("Workload", "w", {"podGroupTemplates": [LEAF]}, annotations={INSTANTIATE: "true"})


async def whole(operators: "Operators") -> bool:
    """Return whether all of them exist, with health and finalizer."""
    testbed = operators.testbed
    groups = msgspec.json.decode(await testbed.connection.get(testbed.resource("PodGroup").path(testbed.namespace)))[
        "items"
    ]
    found = 0
    for group in groups:
        health = {one["type"] for one in group.get("status", {}).get("conditions", ())}
        found += "Healthy" in health and group["metadata"].get("finalizers") == [FINALIZER]
    condition = await operators.testbed.condition("Workload", "w", "Instantiated")
    return found == MANY == len(groups) and condition.get("reason") == "Instantiated"


async def test_the_standby_continues_the_work_of_a_killed_leader(operators: "Operators") -> None:
    """In the middle of creating groups; all of them exist in the end, and the Workload reports that."""
    leader, standby = await pair(operators)
    leader.proxy.at(3, leader.process.kill)
    await wanted(operators)
    await operators.until_leading(standby)
    assert not leader.process.is_running
    await operators.until("all groups are there", lambda: whole(operators))


async def test_a_leader_that_was_stopped_writes_no_more(operators: "Operators") -> None:
    """It was stopped with writes in flight; when it continues, the other has done its work, and it ends."""
    leader, standby = await pair(operators)
    leader.proxy.at(3, lambda: leader.signal(signal.SIGSTOP))
    await wanted(operators)
    await operators.until_leading(standby)
    await operators.until("all groups are there", lambda: whole(operators))
    written = leader.proxy.writes
    leader.signal(signal.SIGCONT)
    assert await asyncio.to_thread(leader.process.wait, 10)
    assert leader.process.exit_code == 1
    assert "cpg-operator: " in leader.process.tail(3)
    assert leader.proxy.writes == written
