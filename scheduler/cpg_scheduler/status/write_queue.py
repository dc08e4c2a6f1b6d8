"""The queue of status writes: the newest write of each object, sent by a few workers.

1. **A write replaces the one of the same object that has not been sent**, so a burst of attempts is one request. While
   one is being sent, the next of the same object waits: on two connections, the newer one could arrive first.
2. **Most workers pause while binds and evictions are in flight**: the conditions of ten thousand unschedulable pods
   must not hold up a gang that fits.
3. **A write that may settle waits a few seconds** for newer ones of its object.
4. **A failed write is sent again**, unless a newer one has replaced it.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_client.errors import ClientError
from cpg_scheduler.write_gate import WriteGate

WORKERS = 16
WORKERS_THAT_NEVER_PAUSE = 2
RETRY_SECONDS = 5.0
SETTLE_SECONDS = 5.0

Send: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class QueuedWrite(Struct, frozen=True, eq=False):
    """A request to send; the lowest ``order`` first."""

    send: Send
    order: int
    settles: bool = False
    """Whether it may wait for a newer write of its object."""


class WriteQueue:
    """Writes by the key of their object."""

    def __init__(
        self,
        gate: WriteGate,
        *,
        log: FilteringBoundLogger,
        retry_seconds: float = RETRY_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Start empty; the gate is closed while binds or evictions are in flight."""
        self._gate = gate
        self._log = log
        self._retry_seconds = retry_seconds
        self._settle_seconds = settle_seconds
        self._queue: asyncio.PriorityQueue[tuple[int, int, str]] = asyncio.PriorityQueue()
        self._sequence = itertools.count()
        self._due: dict[str, QueuedWrite] = {}
        self._settling: set[str] = set()
        """The objects with a due write that is not in the queue yet."""
        self._sending: set[str] = set()
        self._failed: dict[str, QueuedWrite] = {}
        """The writes to send again."""

    def put(self, key: str, write: QueuedWrite) -> None:
        """Send a write in place of an earlier one of the same object."""
        was_due, self._due[key] = key in self._due, write
        self._failed.pop(key, None)
        if key not in self._sending and (not was_due or key in self._settling):
            self._enqueue(key)

    def is_due(self, key: str) -> bool:
        """Return whether a write of an object has not been begun."""
        return key in self._due

    def is_busy(self, key: str) -> bool:
        """Return whether a write of an object is due or being sent."""
        return key in self._due or key in self._sending

    def withdraw(self, key: str) -> None:
        """Do not send the write of an object that still settles, or that has failed."""
        self._failed.pop(key, None)
        if key in self._settling:
            self._settling.remove(key)
            del self._due[key]

    def forget(self, key: str) -> None:
        """Do not repeat the failed write of an object."""
        self._failed.pop(key, None)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(pauses=number >= WORKERS_THAT_NEVER_PAUSE))

    async def drained(self) -> None:
        """Wait until everything has been sent."""
        await self._queue.join()

    def _enqueue(self, key: str) -> None:
        """Put the due write of an object into the queue, or let it settle first."""
        write = self._due[key]
        if not write.settles:
            self._settling.discard(key)
            self._queue.put_nowait((write.order, next(self._sequence), key))
        elif key not in self._settling:
            self._settling.add(key)
            asyncio.get_running_loop().call_later(self._settle_seconds, self._end_settling, key)

    def _end_settling(self, key: str) -> None:
        if key in self._settling:
            self._due[key] = replace(self._due[key], settles=False)
            self._enqueue(key)

    async def _work(self, *, pauses: bool) -> None:
        while True:
            if pauses:
                await self._gate.wait_open()
            _, _, key = await self._queue.get()
            write = self._due.pop(key)
            self._sending.add(key)
            try:
                with self._gate.writing(key):
                    await write.send()
            except ClientError as error:
                self._retry_later(key, write, error)
            finally:
                self._sending.remove(key)
                if key in self._due:
                    self._enqueue(key)
                self._queue.task_done()

    def _retry_later(self, key: str, write: QueuedWrite, error: ClientError) -> None:
        self._log.warning("status write failed", uid=key, error=str(error), retry_in=self._retry_seconds)
        if key not in self._due:
            self._failed[key] = write
            asyncio.get_running_loop().call_later(self._retry_seconds, self._retry, key, write)

    def _retry(self, key: str, write: QueuedWrite) -> None:
        """Send a failed write again, unless it has been replaced or forgotten."""
        if self._failed.get(key) is write:
            self.put(key, write)
