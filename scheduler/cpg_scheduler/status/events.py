"""The events that can wait: where pods went, and who had to go for whom, one for each, as kube-scheduler writes them.

They are the least of what there is to write, and as many as there are binds and evictions. So they wait until none of
those is under way, few are written at a time, and of too many the oldest are dropped, as are those that the server
refuses: the pods themselves say where they are, and those that had to go were told why beforehand. Where binds never
end they are written all the same, but no more than some a second: each takes as long as the bind of a pod.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from cpg_api.core.pod import Pod
from cpg_api.scheduling.names import EVENT_SCHEDULED
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.patching import Event, record_event
from cpg_client.resources import PODS
from cpg_scheduler.status.writer import MANAGER

WRITERS = 8
PACE = 0.1
"""Seconds from one to the next while binds and evictions are under way."""
MOST = 10_000
"""Announcements that are kept until there is time for them."""


class EventWriter:
    """Writes what can wait, in its own time."""

    def __init__(self, connection: Connection, *, instance: str, calm: Callable[[], Awaitable[object]]) -> None:
        """Have nothing to write; ``calm`` returns when nothing more important is being written."""
        self._connection = connection
        self._instance = instance
        self._calm = calm
        self._due: deque[Callable[[], Awaitable[None]]] = deque(maxlen=MOST)
        self._news = asyncio.Semaphore(0)

    def later(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write something when there is time, or never."""
        self._due.append(write)
        self._news.release()

    def placed(self, pod: Pod, node: str) -> None:
        """Tell of a pod that has been bound to a node."""
        event = Event(
            type="Normal",
            reason=EVENT_SCHEDULED,
            action="Binding",
            note=f"Successfully assigned {pod.metadata.key} to {node}",
            controller=MANAGER,
            instance=self._instance,
        )
        self.later(lambda: record_event(self._connection, PODS, pod.metadata, event))

    async def run(self) -> None:
        """Write until cancelled; what has not been written then never is."""
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                writers.create_task(self._write(self._calm if number else self._turn))

    async def _turn(self) -> None:
        """Wait for a while, or until there is time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACE):
                await self._calm()

    async def _write(self, calm: Callable[[], Awaitable[object]]) -> None:
        while True:
            await calm()
            await self._news.acquire()
            if self._due:  # else it was dropped
                with contextlib.suppress(ClientError):
                    await self._due.popleft()()
