"""A gang that arrives at a scheduler at rest, and how long it takes until the last of its pods has a node."""

import asyncio
import time
from pathlib import Path

import msgspec
from backlogs import Item, gang, member
from keeping import cpu_seconds
from racing import watching

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.resources import NATIVE_POD_GROUPS
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.replicas import Replica
from cpg_lab.specs import ClusterSpec

SPEC = ClusterSpec(gates="native", max_requests_inflight=3000, max_mutating_requests_inflight=1500)
PATIENCE = 120.0
"""Seconds for a gang to be bound."""
REST, CALM = 1.0, 0.03
"""A scheduler is at rest when for so many seconds it has used no more of a core than this share."""


class Arrival(msgspec.Struct, frozen=True):
    """Seconds until the last bind was seen: since the first request to create the gang, and since the last answer."""

    since_first_request: float
    since_created: float


def started(cluster: Cluster, folder: Path) -> Replica:
    """Start a scheduler that has all the cluster to itself."""
    return Replica(cluster.kubeconfig, folder, "measured", settings={"api": "native", "leaderElect": False})


async def arrive(connection: Connection, name: str, size: int) -> Arrival:
    """Create a gang and wait until all of it is bound."""
    complete, left = asyncio.Event(), size
    ended = 0.0

    def on_bind() -> None:
        nonlocal left, ended
        left -= 1
        if not left:
            ended = time.monotonic()
            complete.set()

    async with watching(connection, SCHEDULER_NAME, on_bind):
        began = time.monotonic()
        await create(connection, [gang(NATIVE_POD_GROUPS, name, size)])
        await create(connection, [member(name, index, SCHEDULER_NAME) for index in range(size)])
        created = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await complete.wait()
    return Arrival(since_first_request=ended - began, since_created=ended - created)


async def create(connection: Connection, items: list[Item]) -> None:
    """Create objects; all of them, or it is an error."""
    made = await create_all(connection, items)
    if made.failures:
        raise made.failures[0].error


async def rest(replica: Replica, patience: float = PATIENCE) -> None:
    """Wait until a scheduler has nothing to do."""
    deadline = time.monotonic() + patience
    before = cpu_seconds(replica.process.pid)
    while time.monotonic() < deadline:
        await asyncio.sleep(REST)
        now = cpu_seconds(replica.process.pid)
        if now - before <= CALM * REST:
            return
        before = now
    raise LabError(f"the scheduler did not come to rest in {patience:g} s")
