"""The time until a gang is bound that is created while a scheduler is idle."""

import asyncio
import time
from pathlib import Path

import msgspec
from backlogs import Item, gang, member
from result_files import cpu_seconds
from timed_runs import watching_binds

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.resources import NATIVE_POD_GROUPS
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.replicas import Replica
from cpg_lab.specs import ClusterSpec

SPEC = ClusterSpec(gates="native", max_requests_inflight=3000, max_mutating_requests_inflight=1500)
TIMEOUT_SECONDS = 120.0
"""Seconds until a gang must be bound."""
IDLE_SECONDS, MAX_IDLE_SHARE = 1.0, 0.03
"""A scheduler is idle when it has used at most this share of a core for so many seconds."""


class BindTimes(msgspec.Struct, frozen=True):
    """Seconds until the last bind, since the first request to create the gang and since the last answer."""

    since_first_request: float
    since_created: float


def start_scheduler(cluster: Cluster, folder: Path) -> Replica:
    """Start the only scheduler of a cluster."""
    return Replica(cluster.kubeconfig, folder, "measured", settings={"api": "native", "leaderElect": False})


async def create_and_time_gang(connection: Connection, name: str, size: int) -> BindTimes:
    """Create a gang, wait until all its pods are bound, and return how long it took."""
    complete, left = asyncio.Event(), size
    ended = 0.0

    def on_bind() -> None:
        nonlocal left, ended
        left -= 1
        if not left:
            ended = time.monotonic()
            complete.set()

    async with watching_binds(connection, SCHEDULER_NAME, on_bind):
        began = time.monotonic()
        await create(connection, [gang(NATIVE_POD_GROUPS, name, size)])
        await create(connection, [member(name, index, SCHEDULER_NAME) for index in range(size)])
        created = time.monotonic()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await complete.wait()
    return BindTimes(since_first_request=ended - began, since_created=ended - created)


async def create(connection: Connection, items: list[Item]) -> None:
    """Create objects; raise if one of them fails."""
    made = await create_all(connection, items)
    if made.failures:
        raise made.failures[0].error


async def await_idle(replica: Replica, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a scheduler is idle."""
    deadline = time.monotonic() + seconds
    before = cpu_seconds(replica.process.pid)
    while time.monotonic() < deadline:
        await asyncio.sleep(IDLE_SECONDS)
        now = cpu_seconds(replica.process.pid)
        if now - before <= MAX_IDLE_SHARE * IDLE_SECONDS:
            return
        before = now
    raise LabError(f"the scheduler was not idle within {seconds:g} s")
