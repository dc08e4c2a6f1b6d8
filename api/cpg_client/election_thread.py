"""Leader election on a thread of its own, so that the lease is renewed while the main loop is busy.

1. **The thread renews, the main loop works.** The thread has its own event loop and connection. However long a
   decision holds the main loop, the lease is kept.
2. **A lost lease is known at once.** ``LeaderElector.check`` reads the same state from any thread, so nothing is
   written after the deadline. The work is cancelled in the next turn of the main loop.
3. **A stuck main loop ends the process.** The thread asks the main loop for a turn once a second. After
   ``MAX_TURNS_MISSED`` it exits the process, as the watchdog of kube-scheduler's lease does. The lease is not released
   then, since the work may be in the middle of anything: another replica follows when it has expired.
"""

import asyncio
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

from structlog.typing import FilteringBoundLogger

from cpg_client.leader_election import LeaderElector
from cpg_client.timing import cancel_and_wait, run_until

Work = Callable[[], Coroutine[Any, Any, None]]

SECONDS_BETWEEN_CHECKS = 1.0
MAX_TURNS_MISSED = 30
"""Checks, one a second, without a turn of the main loop after which it counts as stuck.

The budget of a decision allows a few seconds, and a starved machine may be ten times slower. The liveness probe of the
chart ends a process after a minute, so a stuck process with a lease ends before that. Checks are counted and not
seconds, because a process that was frozen, and its machine suspended, has missed none.
"""


class ElectionThread:
    """Runs an elector, and the connection that it uses, on a thread."""

    def __init__(
        self,
        elector: LeaderElector,
        connection: AbstractAsyncContextManager[object],
        log: FilteringBoundLogger,
        *,
        max_turns_missed: int = MAX_TURNS_MISSED,
    ) -> None:
        """Start nothing yet; the thread opens the connection."""
        self._elector = elector
        self._connection = connection
        self._log = log
        self._max_turns_missed = max_turns_missed
        self._stopping = asyncio.Event()
        self._has_turn = True
        """Whether the main loop has answered the last check."""

    async def run(self, work: Work) -> None:
        """Do what ``LeaderElector.run`` does, with the work in the loop that calls this."""
        election_loop, main = asyncio.new_event_loop(), asyncio.get_running_loop()
        result: Future[None] = Future()

        def elect() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: election_loop) as runner:
                    runner.run(self._elect(main, work))
            except BaseException as error:  # noqa: BLE001 - whatever it is, the main loop raises it
                result.set_exception(error)
            else:
                result.set_result(None)

        threading.Thread(target=elect, name="leader election", daemon=True).start()
        outcome = asyncio.wrap_future(result)
        try:
            await asyncio.shield(outcome)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # the thread has ended by itself
                election_loop.call_soon_threadsafe(self._stopping.set)
            await _wait_ended(outcome)
            raise

    async def _elect(self, main: asyncio.AbstractEventLoop, work: Work) -> None:
        """Run the elector on the thread, until it ends or is to stop."""
        async with self._connection:
            watching = asyncio.create_task(self._watch(main), name="watch of the main loop")
            try:
                await run_until(self._stopping, self._elector.run(lambda: _run_in(main, work)))
            finally:
                await cancel_and_wait(watching)

    async def _watch(self, main: asyncio.AbstractEventLoop) -> NoReturn:
        """Exit the process when the main loop is stuck."""
        missed = 0
        while True:
            if self._has_turn:
                missed, self._has_turn = 0, False
                main.call_soon_threadsafe(self._note_turn)
            elif missed >= self._max_turns_missed:
                self._exit()
            missed += 1
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)

    def _note_turn(self) -> None:
        self._has_turn = True

    def _exit(self) -> NoReturn:
        """Exit at once: the main loop cannot end the process."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - there is no other way
        stack = "".join(traceback.format_stack(frame))
        self._log.critical("the main loop is stuck", seconds=self._max_turns_missed, stack=stack)
        os._exit(1)


async def _run_in(main: asyncio.AbstractEventLoop, work: Work) -> None:
    """Do the work in the main loop; when cancelled, cancel it there and wait until it has ended."""
    result: Future[None] = Future()
    tasks: list[asyncio.Task[None]] = []

    def start() -> None:
        tasks.append(main.create_task(work(), name="work of the leader"))
        tasks[0].add_done_callback(finish)

    def finish(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            result.cancel()
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(None)

    def cancel() -> None:
        tasks[0].cancel()

    main.call_soon_threadsafe(start)
    outcome = asyncio.wrap_future(result)
    try:
        await asyncio.shield(outcome)
    except asyncio.CancelledError:
        main.call_soon_threadsafe(cancel)
        await _wait_ended(outcome)
        outcome.result()


async def _wait_ended(outcome: asyncio.Future[None]) -> None:
    """Wait for the other thread, even if cancelled again: its loop still uses what the caller would close."""
    while not outcome.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({outcome})
    if not outcome.cancelled():
        outcome.exception()  # marks the exception as retrieved
