"""Events that can wait: where pods were bound, and which pods were evicted and why.

There is one for every bind and every eviction, and none is needed, since the pods themselves show the same. So events
are written while no bind or eviction is in flight, by a few workers. While binds go on for long, one worker writes a
few events per second, because each costs the API server as much as a bind. Of too many the oldest are dropped, and so
is an event that the API server refuses.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import EVENT_PREEMPTED, EVENT_SCHEDULED
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.patching import Event, record_event
from cpg_client.resources import PODS, Resource
from cpg_engine.preemption.values import EvictionReason
from cpg_scheduler.preemption.jobs import Preemptor
from cpg_scheduler.status.conditions import MANAGER
from cpg_scheduler.status.messages.preemption import eviction_message, resumed_eviction_message
from cpg_scheduler.write_gate import WriteGate

WORKERS = 8
SECONDS_BETWEEN_EVENTS = 0.1
"""While binds or evictions are in flight."""
MAX_QUEUED_EVENTS = 10_000


class EventWriter:
    """Writes events of the lowest priority."""

    def __init__(self, connection: Connection, *, instance: str, gate: WriteGate) -> None:
        """Have nothing to write; the gate is closed while binds or evictions are in flight."""
        self._connection = connection
        self._instance = instance
        self._gate = gate
        self._due: deque[Callable[[], Awaitable[None]]] = deque(maxlen=MAX_QUEUED_EVENTS)
        self._arrivals = asyncio.Semaphore(0)

    def later(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write when there is time, or never."""
        self._due.append(write)
        self._arrivals.release()

    def placed(self, pod: Pod, node: str) -> None:
        """Write that a pod was bound to a node."""
        event = Event(
            type="Normal",
            reason=EVENT_SCHEDULED,
            action="Binding",
            note=f"Successfully assigned {pod.metadata.key} to {node}",
            controller=MANAGER,
            instance=self._instance,
        )
        self.later(lambda: record_event(self._connection, PODS, pod.metadata, event))

    def preempted(
        self, pod: Pod, preemptor: Preemptor, reason: EvictionReason | None, related: tuple[Resource, ObjectMeta] | None
    ) -> None:
        """Write that a pod was evicted; ``related`` is the preemptor, if it is known."""
        why = resumed_eviction_message(preemptor.key) if reason is None else eviction_message(reason)
        event = Event(
            type="Normal",
            reason=EVENT_PREEMPTED,
            action="Preempting",
            note=f"Preempted by {preemptor.kind} {preemptor.uid}: {why}",
            controller=MANAGER,
            instance=self._instance,
        )
        self.later(lambda: record_event(self._connection, PODS, pod.metadata, event, related=related))

    async def run(self) -> None:
        """Write until cancelled; events that are still queued are lost."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(self._gate.wait_open if number else self._wait_a_while))

    async def _wait_a_while(self) -> None:
        """Wait until the gate is open, but no longer than the time between two events."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_BETWEEN_EVENTS):
                await self._gate.wait_open()

    async def _work(self, wait: Callable[[], Awaitable[None]]) -> None:
        while True:
            await wait()
            await self._arrivals.acquire()
            if self._due:  # else the event was dropped
                with contextlib.suppress(ClientError):
                    await self._due.popleft()()
