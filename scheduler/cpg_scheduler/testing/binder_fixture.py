"""A binder over a fake connection, with and without volumes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog
from msgspec.structs import replace

from cpg_client.connection import Connection
from cpg_client.retrying import WatchBackoff
from cpg_client.timing import Timing
from cpg_engine.decisions import Allocation, VolumeAllocation
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import DRIVER, claim, storage_class, using, volume
from cpg_scheduler.binding.batch import (
    BindBatch,
    BindDelayed,
    BindEvent,
    BindFailed,
    BindFailure,
    BindSucceeded,
)
from cpg_scheduler.binding.binder import Binder
from cpg_scheduler.binding.claim_writer import ClaimWriter
from cpg_scheduler.binding.devices import DeviceBinder
from cpg_scheduler.binding.extended_claims import ExtendedClaims
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.testing.claim_server import ClaimServer
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.write_gate import WriteGate


class BinderFixture:
    """A binder with pods to bind, its inbox, and an API server that has the pods."""

    def __init__(self, tasks: asyncio.TaskGroup, *, in_flight: int = 9) -> None:
        """Start with four pods of one CPU; waits take no time, and are kept."""
        self.waits: list[float] = []
        self.stage = Stage(node("n1"), *(pod(name, cpu=1) for name in "abcd"))
        self.api = ClaimServer(self.stage, Timing(sleep=self._sleep, wall=lambda: 0.0))
        self.inbox, self.gate, self.ids = EventInbox(), WriteGate(), itertools.count()
        for name in "abcd":
            self.show(name)
        connection, cache = cast("Connection", self.api), self.stage.cache
        log = structlog.wrap_logger(self.stage.log, processors=[])
        self.claims = ClaimWriter(connection, cache, log=log)
        self.extended = ExtendedClaims(connection, cache, log=log)
        self.binder = Binder(
            connection,
            cache,
            tasks,
            inbox=self.inbox,
            gate=self.gate,
            prebinds=[
                VolumeBinder(connection, cache, timeout=5),
                DeviceBinder(self.claims, self.extended, cache, self.stage.metrics.devices, timeout=5),
            ],
            metrics=self.stage.metrics,
            log=log,
            in_flight=in_flight,
            guard=self.stage.guard,
            backoff=WatchBackoff(first=1, longest=8),
        )
        self._events: list[BindEvent] = []

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    def show(self, name: str, **fields: Any) -> None:
        """Let the API server have a pod with these fields, such as its node or another UID."""
        meta = {"name": name, "namespace": "default", "uid": f"uid-default-{name}", **fields.pop("metadata", {})}
        self.api.objects[f"/api/v1/namespaces/default/pods/{name}"] = {"metadata": meta, **fields}

    def start(
        self,
        names: str = "abc",
        *allocations: Allocation,
        unit: str = "",
        each: Mapping[str, tuple[Allocation, ...]] | None = None,
    ) -> None:
        """Begin to bind these pods, as members of one unit, with allocations for all of them, or for each by name."""
        pods = {found.metadata.uid: found for found in map(self.stage.pod, names)}
        allocated = {uid: (each or {}).get(found.metadata.name, allocations) for uid, found in pods.items()}
        for uid in pods:
            self.stage.cache.assume(uid, "n1", allocated[uid])
        batch = BindBatch(
            id=next(self.ids),
            unit=self.stage.cache.unit_of(self.stage.pod(unit or names[0])),
            pods=pods,
            nodes=dict.fromkeys(pods, "n1"),
            allocations={uid: found for uid, found in allocated.items() if found},
        )
        self.stage.cache.binds_in_flight.begin(batch.id, pods)
        self.binder.start(batch)

    @property
    def events(self) -> list[BindEvent]:
        """Return all events that the binder has put into the inbox."""
        self._events.extend(self.inbox.take())
        return self._events

    @property
    def outcomes(self) -> list[str]:
        """Return how batches have ended, each with the names of its pods."""
        words = {BindSucceeded: "bound", BindFailed: "failed"}
        ended = [event for event in self.events if not isinstance(event, BindDelayed)]
        return [
            f"{words[type(event)]} {''.join(found.metadata.name for found in event.batch.pods.values())}"
            for event in ended
        ]

    @property
    def failure(self) -> BindFailure:
        """Return how the last batch failed."""
        return [event.failure for event in self.events if isinstance(event, BindFailed)][-1]

    @property
    def delays(self) -> list[BindFailure]:
        """Return the delays that were reported."""
        return [event.failure for event in self.events if isinstance(event, BindDelayed)]

    def fail(self, name: str, *errors: Exception) -> None:
        """Let the first binds of a pod fail with these errors."""
        left = list(errors)
        self.api.error = lambda write: left.pop(0) if left and write.path.endswith(f"/{name}/binding") else None

    def assumed(self) -> list[str]:
        """Return the names of the pods that count as bound."""
        pods = self.stage.cache.pods.values()
        return sorted(found.metadata.name for found in pods if found.spec.node_name)

    def sent(self, name: str) -> int:
        """Return the number of binds of a pod that have worked."""
        return sum(write.path.endswith(f"/{name}/binding") for write in self.api.writes)


class VolumeBinderFixture(BinderFixture):
    """A binder for two pods with a claim each; their volumes are provisioned at the node."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        """Start with the claims x of the pod a and y of the pod b."""
        super().__init__(tasks)
        self.stage.put(storage_class(provisioner=DRIVER), claim("x"), claim("y"))
        self.stage.put(pod("a", cpu=1, volumes=using("x")), pod("b", cpu=1, volumes=using("y")))
        for name in "xy":
            meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "5"}
            spec = {"storageClassName": "local"}
            self.api.objects[f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"] = {
                "metadata": meta,
                "spec": spec,
            }

    def show_claim(self, name: str, **fields: Any) -> None:
        """Let the watch show a claim, in a version after our write."""
        found = claim(name, **fields)
        self.stage.put(replace(found, metadata=replace(found.metadata, resource_version="9")))

    def bind_claim(self, name: str) -> None:
        """Let the watch show a claim as bound."""
        self.stage.put(volume(f"pv-{name}"))
        self.show_claim(name, bound_to=f"pv-{name}")


@asynccontextmanager
async def running_binder(**options: Any) -> AsyncIterator[BinderFixture]:
    """Run a binder, and wait until all its batches have ended."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks, **options)
        yield bench
        await until(lambda: not bench.binder.active)


@asynccontextmanager
async def binding_with_volumes() -> AsyncIterator[VolumeBinderFixture]:
    """Bind two pods with claims, and wait until the batch has ended."""
    async with asyncio.TaskGroup() as tasks:
        bench = VolumeBinderFixture(tasks)
        bench.start("ab", *(VolumeAllocation(f"default/{name}", None, "n1") for name in "xy"))
        await run_others()
        yield bench
        await until(lambda: not bench.binder.active)


async def run_others(count: int = 20) -> None:
    """Let other tasks run for a while."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let other tasks run until a condition holds."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition did not hold in time")
