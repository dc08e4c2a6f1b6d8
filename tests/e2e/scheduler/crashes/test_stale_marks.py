"""Nominations and conditions of a preemption that do not hold any more: they are cleared until the API shows it.

Nominations of other components stay.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.connection import FIELD_MANAGER, MERGE_PATCH
from cpg_client.resources import PODS
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
CLASSES = {"high": 100, "low": 10}
FAILED_WRITES = 2
"""That of the plan that breaks, and the first correction."""
FAILING_CLEARANCE = f"""
import itertools, sys
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_scheduler.__main__ import main

working, numbers = Connection.patch, itertools.count()

async def failing(self, path, body, *arguments, **named):
    status = body.get("status", {{}}) if isinstance(body, dict) else {{}}
    if status.get("nominatedNodeName", "") is None and next(numbers) < {FAILED_WRITES}:
        raise ApiError(503, "ServiceUnavailable", "not now", request=path)
    return await working(self, path, body, *arguments, **named)

Connection.patch = failing
sys.exit(main())
"""
"""A scheduler whose first writes that clear a nomination fail."""


@pytest.fixture(scope="module")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with two nodes and two priorities."""
    with Cluster(ClusterSpec(nodes=(NodePool.parse("2 nodes, cpu=4"),))) as cluster:
        for name, value in CLASSES.items():
            cluster.kubectl("create", "priorityclass", name, f"--value={value}")
        yield cluster


async def set_status(testbed: "Testbed", name: str, manager: str = FIELD_MANAGER, **status: Any) -> None:
    """Change the status of a pod, by default as an earlier leader would have."""
    path = PODS.path(testbed.namespace, name, "status")
    await testbed.connection.patch(path, {"status": status}, MERGE_PATCH, params={"fieldManager": manager})


async def pod_status(testbed: "Testbed", name: str) -> dict[str, Any]:
    """Return the status of a pod."""
    found: dict[str, Any] = msgspec.json.decode(await testbed.connection.get(PODS.path(testbed.namespace, name)))
    return {**found["status"], "uid": found["metadata"]["uid"]}


async def marks(testbed: "Testbed", *names: str) -> list[str]:
    """Return the status of the condition ``DisruptionTarget`` of these pods."""
    conditions = [(await pod_status(testbed, name)).get("conditions", ()) for name in names]
    return [one["status"] for each in conditions for one in each if one["type"] == "DisruptionTarget"]


async def test_a_nomination_is_cleared_though_the_first_writes_fail(testbed: "Testbed") -> None:
    """The plan breaks, because its node is cordoned. The API server answers 503 to what follows from that."""
    replica = testbed.start_replica("--no-leader-elect", program=FAILING_CLEARANCE)
    await testbed.create(
        testbed.pod("slow", cpu="4", nodeName="node-1", priorityClassName="low", terminationGracePeriodSeconds=60),
        testbed.pod("wall", cpu="4", nodeName="node-2", priorityClassName="high"),
    )
    await testbed.create(testbed.pod("high", cpu="4", priorityClassName="high"))

    async def nomination() -> str:
        return str((await pod_status(testbed, "high")).get("nominatedNodeName", ""))

    await testbed.wait_until(nomination, what="a nomination")
    testbed.cluster.kubectl("cordon", "node-1")
    try:
        await testbed.wait_for_log(replica, "plan broken")

        async def is_cleared() -> bool:
            return not await nomination()

        await testbed.wait_until(is_cleared, 60, "the end of the nomination")
    finally:
        testbed.cluster.kubectl("uncordon", "node-1")


async def test_a_new_leader_evicts_no_pod_because_of_a_stale_condition(testbed: "Testbed") -> None:
    """An earlier leader has marked a unit and nominated a pod, and could not retract that. There is room elsewhere."""
    whole: dict[str, Any] = {"disruptionMode": {"all": {}}, "priorityClassName": "low"}
    names = [f"whole-{number}" for number in range(4)]
    await testbed.create(
        testbed.group("whole", 4, **whole),
        *(testbed.pod(name, group="whole", nodeName="node-1", priorityClassName="low") for name in names),
        testbed.pod("high", priorityClassName="high"),
    )
    uid = (await pod_status(testbed, "high"))["uid"]
    message = f"cpg-scheduler: preempting to accommodate a higher priority pod {testbed.namespace}/high {uid}"
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message}
    stamped = {**mark, "lastTransitionTime": "2099-01-01T00:00:00Z"}  # later than the creation of the pods
    for name in names:
        await set_status(testbed, name, conditions=[stamped])
    await set_status(testbed, "high", nominatedNodeName="node-1")
    group = testbed.pod_groups.path(testbed.namespace, "whole")
    await testbed.connection.patch(f"{group}/status", {"status": {"conditions": [stamped]}}, MERGE_PATCH)
    testbed.start_replica("--no-leader-elect")
    await testbed.wait_until_bound(5)

    async def are_retracted() -> bool:
        (whole,) = await testbed.list_objects(testbed.pod_groups)
        said = [one["status"] for one in whole["status"]["conditions"] if one["type"] == "DisruptionTarget"]
        return await marks(testbed, *names) + said == ["False"] * 5

    await testbed.wait_until(are_retracted, 30, "the end of the conditions")
    assert (await testbed.pod_nodes())["high"] == "node-2"


async def test_a_nomination_of_another_component_stays(testbed: "Testbed") -> None:
    """It may be for a node that is yet to come, and reserves nothing. One of an earlier leader is cleared beside it.

    A preemption takes the nomination over. All this holds for the next leader as well.
    """
    absent = {"kubernetes.io/hostname": "none"}
    names = {"soon": "node-3", "here": "node-2"}
    await testbed.create(
        *(testbed.pod(name, cpu="4", priorityClassName="high", nodeSelector=absent) for name in (*names, "stale")),
        testbed.pod("taken", cpu="4", priorityClassName="high"),
    )
    for name, node in {**names, "taken": "node-2"}.items():
        await set_status(testbed, name, "autoscaler", nominatedNodeName=node)

    async def nominations(*pods: str) -> list[str]:
        return [str((await pod_status(testbed, name)).get("nominatedNodeName", "")) for name in pods]

    await testbed.create(
        testbed.pod("slow", cpu="4", nodeName="node-1", priorityClassName="low", terminationGracePeriodSeconds=60),
        testbed.pod("wall", cpu="4", nodeName="node-2", priorityClassName="high"),
    )
    for number in range(2):
        await set_status(testbed, "stale", nominatedNodeName="node-2")
        replica = testbed.start_replica("--no-leader-elect")
        await testbed.wait_for_log(replica, "ready")

        async def is_cleared() -> bool:
            return await nominations("stale", "taken") == ["", "node-1"]

        await testbed.wait_until(is_cleared, 30, "the end of the stale nomination, and that of the preemptor")
        await asyncio.sleep(6.0 * number)  # one more round of corrections
        assert await nominations(*names) == list(names.values())
        replica.process.kill()
    await testbed.delete(PODS, "wall")
    testbed.start_replica("--no-leader-elect")

    async def is_placed() -> bool:
        return (await testbed.pod_nodes())["taken"] == "node-2"

    await testbed.wait_until(is_placed, what="the place of the preemptor where another pod is nominated to")
