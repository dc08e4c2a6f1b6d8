"""An operator that is killed with writes in flight, in every step of a life: the end is that of one left in peace.

Killed at seeded writes, at other ones (``CRASH_SEED``) and more often in each step (``CRASH_KILLS``) on demand.
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
"""Seconds without a write after which an operator that is left in peace has done what there was to do."""
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
    """Have a Workload make its groups; there is a pod for one of them."""
    await ring.stage.pod("member", "w-leaf-0")
    await ring.stage.create("Workload", "w", templates(3), annotations={INSTANTIATE: "true"})


async def grow(ring: "Ring") -> None:
    """Want more groups."""
    await ring.stage.patch("Workload", "w", {"spec": templates(6)})


async def shrink(ring: "Ring") -> None:
    """Want fewer."""
    await ring.stage.patch("Workload", "w", {"spec": templates(1)})


async def delete(ring: "Ring") -> None:
    """Want none; the pod has gone before."""
    stage = ring.stage
    await stage.delete("Pod", "member")
    await stage.connection.delete(stage.resource("Workload").path(stage.namespace, "w"))


async def by_hand(ring: "Ring") -> None:
    """Make a tree of another kind."""
    await ring.stage.composite("root", 2)
    for side in ("left", "right"):
        await ring.stage.composite(side, parent="root")
        for number in range(3):
            await ring.stage.group(f"{side}-{number}", parent=side)


async def delete_by_hand(ring: "Ring") -> None:
    """Delete all of it at once: it goes from the leaves to the root."""
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
"""What is done, and within how many writes of an operator the kills come: fewer than it takes."""


async def state(ring: "Ring") -> Plain:
    """Return what is there, but for names of its making: times, versions, UIDs, who manages what."""
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
    """Return what is at a path."""
    answer: Plain = msgspec.json.decode(await ring.stage.connection.get(path))
    return answer


async def settled(ring: "Ring", replica: "Replica", step: Step) -> Plain:
    """Return what is there once an operator that is left in peace writes no more, and what was to go has gone."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET or (step in GOING and await state(ring)):
        if replica.line.writes != seen:
            seen, since = replica.line.writes, time.monotonic()
        await asyncio.sleep(0.05)
    return await state(ring)


async def in_peace(ring: "Ring") -> list[Plain]:
    """Return what is there after each step."""
    replica = await ring.start()
    await ring.until_leading(replica)
    ends = []
    for step in STEPS:
        await step(ring)
        ends.append(await settled(ring, replica, step))
    replica.process.kill()
    return ends


async def killed(ring: "Ring", replica: "Replica") -> "Replica":
    """Return another operator once one has come to the write at which it dies, with all that was in flight."""

    async def is_dead() -> bool:
        return not replica.process.is_running

    await ring.until("it dies at one of its writes", is_dead)
    return await ring.start()


async def test_every_step_ends_as_without_a_kill(ring: "Ring") -> None:
    """Finalizers are gone, statuses right, no group is there twice or left over, and what was there is the same one."""
    expected = await in_peace(ring)
    moments = random.Random(SEED)  # noqa: S311  # to be repeated
    replica = await ring.start()
    await ring.until_leading(replica)
    root = ""
    for (step, writes), end in zip(STEPS.items(), expected, strict=True):
        numbers = [moments.randrange(1, max(2, writes // KILLS)) for _ in range(KILLS)]
        replica.line.at(numbers[0], replica.process.kill)
        await step(ring)
        for number in (*numbers[1:], None):
            replica = await killed(ring, replica)
            if number:
                replica.line.at(number, replica.process.kill)
        await ring.stage.until(end, lambda: state(ring), 30)
        if step in {instantiate, grow, shrink}:
            uid = (await ring.stage.get(CPG, "w-root"))["metadata"]["uid"]
            root = root or uid
            assert uid == root, f"{step} has made the root anew"
