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
    from tests.e2e.operator.crashes.conftest import Replica, Ring

pytestmark = pytest.mark.e2e

SEED = int(os.environ.get("CRASH_SEED", "1"))
KILLS = int(os.environ.get("CRASH_KILLS", "1"))
QUIET = 1.5
"""After this time without a write, an undisturbed operator has finished."""
CPG, PG = "CompositePodGroup", "PodGroup"
KINDS = ("Workload", CPG, PG)
Plain = dict[str, Any]
Step = Callable[["Ring"], Awaitable[None]]


def templates(replicas: int) -> Plain:
    """Return the templates of a tree of three levels."""
    leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}
    gang = {"gang": {"minGroupCount": 1}}
    replica = {"name": "replica", "replicas": replicas, "schedulingPolicy": gang, "podGroupTemplates": [leaf]}
    root = {"name": "root", "schedulingPolicy": gang, "compositePodGroupTemplates": [replica]}
    return {"compositePodGroupTemplates": [root]}


async def instantiate(ring: "Ring") -> None:
    """Create a Workload that is instantiated, and a pod of one of its groups."""
    await ring.stage.pod("member", "w-leaf-0")
    await ring.stage.create("Workload", "w", templates(3), annotations={INSTANTIATE: "true"})


async def grow(ring: "Ring") -> None:
    """Raise the number of groups."""
    await ring.stage.patch("Workload", "w", {"spec": templates(6)})


async def shrink(ring: "Ring") -> None:
    """Lower the number of groups."""
    await ring.stage.patch("Workload", "w", {"spec": templates(1)})


async def delete(ring: "Ring") -> None:
    """Delete the pod, and then the Workload."""
    stage = ring.stage
    await stage.delete("Pod", "member")
    await stage.connection.delete(stage.resource("Workload").path(stage.namespace, "w"))


async def by_hand(ring: "Ring") -> None:
    """Create a tree without a Workload."""
    await ring.stage.composite("root", 2)
    for side in ("left", "right"):
        await ring.stage.composite(side, parent="root")
        for number in range(3):
            await ring.stage.group(f"{side}-{number}", parent=side)


async def delete_by_hand(ring: "Ring") -> None:
    """Delete all of it at once: it is released from the leaves to the root."""
    for kind in (CPG, PG):
        path = ring.stage.resource(kind).path(ring.stage.namespace)
        await ring.stage.connection.delete(path)


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


async def state(ring: "Ring") -> Plain:
    """Return all objects without their times, versions, UIDs and field managers."""
    found = {}
    for kind in KINDS:
        path = ring.stage.resource(kind).path(ring.stage.namespace)
        for one in (await listed(ring, path))["items"]:
            meta, status = one["metadata"], dict(one.get("status", {}))
            told = status.pop("conditions", ())
            found[f"{kind} {meta['name']}"] = {
                "spec": one["spec"],
                "status": {key: value for key, value in status.items() if key != "observedGeneration"},
                "conditions": sorted((each["type"], each["status"], each["reason"]) for each in told),
                "finalizers": meta.get("finalizers", []),
                "owners": [owner["name"] for owner in meta.get("ownerReferences", ())],
                "leaves": "deletionTimestamp" in meta,
            }
    return found


async def listed(ring: "Ring", path: str) -> Plain:
    """Return the objects at a path."""
    answer: Plain = msgspec.json.decode(await ring.stage.connection.get(path))
    return answer


async def settled(ring: "Ring", replica: "Replica", step: Step) -> Plain:
    """Return all objects once an undisturbed operator writes no more, and all deleted objects are gone."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET or (step in GOING and await state(ring)):
        if replica.proxy.writes != seen:
            seen, since = replica.proxy.writes, time.monotonic()
        await asyncio.sleep(0.05)
    return await state(ring)


async def in_peace(ring: "Ring") -> list[Plain]:
    """Return all objects after each step, without kills."""
    replica = await ring.start()
    await ring.until_leading(replica)
    ends = []
    for step in STEPS:
        await step(ring)
        ends.append(await settled(ring, replica, step))
    replica.process.kill()
    return ends


async def killed(ring: "Ring", replica: "Replica") -> "Replica":
    """Return a new operator once one has been killed, with all of its writes in flight."""

    async def is_dead() -> bool:
        return not replica.process.is_running

    await ring.until("it is killed at one of its writes", is_dead)
    return await ring.start()


async def test_every_step_ends_as_without_a_kill(ring: "Ring") -> None:
    """Finalizers and statuses are right, no group exists twice or is left over, and the root is the same object."""
    expected = await in_peace(ring)
    moments = random.Random(SEED)  # noqa: S311  # to be repeated
    replica = await ring.start()
    await ring.until_leading(replica)
    root = ""
    for (step, writes), end in zip(STEPS.items(), expected, strict=True):
        numbers = [moments.randrange(1, max(2, writes // KILLS)) for _ in range(KILLS)]
        replica.proxy.at(numbers[0], replica.process.kill)
        await step(ring)
        for number in (*numbers[1:], None):
            replica = await killed(ring, replica)
            if number:
                replica.proxy.at(number, replica.process.kill)
        await ring.stage.until(end, lambda: state(ring), 30)
        if step in {instantiate, grow, shrink}:
            uid = (await ring.stage.get(CPG, "w-root"))["metadata"]["uid"]
            root = root or uid
            assert uid == root, f"{step} has made the root anew"
