"""An operator that is killed with writes in flight, in every step of a tree's life: the result is the same.

It is killed at seeded writes, at others by ``CRASH_SEED``, and more often in each step by ``CRASH_KILLS``.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.scheduling.names import INSTANTIATE

if TYPE_CHECKING:
    from tests.e2e.operator.crashes.conftest import Operators, Replica

pytestmark = pytest.mark.e2e

SEED = int(os.environ.get("CRASH_SEED", "1"))
KILLS = int(os.environ.get("CRASH_KILLS", "1"))
QUIET = 1.5
"""After this time without a write, an undisturbed operator has finished."""
CPG, PG = "CompositePodGroup", "PodGroup"
KINDS = ("Workload", CPG, PG)
Plain = dict[str, Any]
Step = Callable[["Operators"], Awaitable[None]]


def templates(replicas: int) -> Plain:
    """Return the templates of a tree of three levels."""
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}
    gang = {"gang": {"minGroupCount": 1}}
    replica = {"name": "replica", "replicas": replicas, "schedulingPolicy": gang, "podGroupTemplates": [leaf]}
    root = {"name": "root", "schedulingPolicy": gang, "compositePodGroupTemplates": [replica]}
    return {"compositePodGroupTemplates": [root]}


async def instantiate(operators: "Operators") -> None:
    """Create a Workload that is instantiated, and a pod of one of its groups."""
    await operators.testbed.pod("member", "w-leaf-0")
    await operators.testbed.create("Workload", "w", templates(3), annotations={INSTANTIATE: "true"})


async def grow(operators: "Operators") -> None:
    """Raise the number of groups."""
    await operators.testbed.patch("Workload", "w", {"spec": templates(6)})


async def shrink(operators: "Operators") -> None:
    """Lower the number of groups."""
    await operators.testbed.patch("Workload", "w", {"spec": templates(1)})


async def delete(operators: "Operators") -> None:
    """Delete the pod, and then the Workload."""
    testbed = operators.testbed
    await testbed.delete("Pod", "member")
    await testbed.connection.delete(testbed.resource("Workload").path(testbed.namespace, "w"))


async def by_hand(operators: "Operators") -> None:
    """Create a tree without a Workload."""
    await operators.testbed.composite("root", 2)
    for side in ("left", "right"):
        await operators.testbed.composite(side, parent="root")
        for number in range(3):
            await operators.testbed.group(f"{side}-{number}", parent=side)


async def delete_by_hand(operators: "Operators") -> None:
    """Delete all of it at once: it is released from the leaves to the root."""
    for kind in (CPG, PG):
        path = operators.testbed.resource(kind).path(operators.testbed.namespace)
        await operators.testbed.connection.delete(path)


GOING = (delete, delete_by_hand)
STEPS: dict[Step, int] = {
    instantiate: 12,
    grow: 10,
    shrink: 10,
    delete: 3,
    by_hand: 9,
    delete_by_hand: 6,
}
"""The steps, and within how many writes of the operator it is killed: fewer than the step takes."""


async def state(operators: "Operators") -> Plain:
    """Return all objects without their times, versions, UIDs and field managers."""
    found = {}
    for kind in KINDS:
        path = operators.testbed.resource(kind).path(operators.testbed.namespace)
        for one in (await listed(operators, path))["items"]:
            meta, status = one["metadata"], dict(one.get("status", {}))
            conditions = status.pop("conditions", ())
            found[f"{kind} {meta['name']}"] = {
                "spec": one["spec"],
                "status": {key: value for key, value in status.items() if key != "observedGeneration"},
                "conditions": sorted((each["type"], each["status"], each["reason"]) for each in conditions),
                "finalizers": meta.get("finalizers", []),
                "owners": [owner["name"] for owner in meta.get("ownerReferences", ())],
                "leaves": "deletionTimestamp" in meta,
            }
    return found


async def listed(operators: "Operators", path: str) -> Plain:
    """Return the objects at a path."""
    answer: Plain = msgspec.json.decode(await operators.testbed.connection.get(path))
    return answer


async def settled(operators: "Operators", replica: "Replica", step: Step) -> Plain:
    """Return all objects once an undisturbed operator writes no more, and all deleted objects are gone."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET or (step in GOING and await state(operators)):
        if replica.proxy.writes != seen:
            seen, since = replica.proxy.writes, time.monotonic()
        await asyncio.sleep(0.05)
    return await state(operators)


async def in_peace(operators: "Operators") -> list[Plain]:
    """Return all objects after each step, without kills."""
    replica = await operators.start()
    await operators.until_leading(replica)
    ends = []
    for step in STEPS:
        await step(operators)
        ends.append(await settled(operators, replica, step))
    replica.process.kill()
    return ends


async def killed(operators: "Operators", replica: "Replica") -> "Replica":
    """Return a new operator once one has been killed, with all of its writes in flight."""

    async def is_dead() -> bool:
        return not replica.process.is_running

    await operators.until("it is killed at one of its writes", is_dead)
    return await operators.start()


async def test_every_step_ends_as_without_a_kill(operators: "Operators") -> None:
    """Finalizers and statuses are right, no group exists twice or is left over, and the root is the same object."""
    expected = await in_peace(operators)
    moments = random.Random(SEED)  # noqa: S311  # to be repeated
    replica = await operators.start()
    await operators.until_leading(replica)
    root = ""
    for (step, writes), end in zip(STEPS.items(), expected, strict=True):
        numbers = [moments.randrange(1, max(2, writes // KILLS)) for _ in range(KILLS)]
        replica.proxy.at(numbers[0], replica.process.kill)
        await step(operators)
        for number in (*numbers[1:], None):
            replica = await killed(operators, replica)
            if number:
                replica.proxy.at(number, replica.process.kill)
        await operators.testbed.until(end, lambda: state(operators), 30)
        if step in {instantiate, grow, shrink}:
            uid = (await operators.testbed.get(CPG, "w-root"))["metadata"]["uid"]
            root = root or uid
            assert uid == root, f"{step} has replaced the root"
