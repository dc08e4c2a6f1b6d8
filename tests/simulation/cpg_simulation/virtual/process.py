"""Simulated processes: threads with an event loop each, which run in turns of one event loop.

A process that is stopped gets no turns. One that is killed gets none any more, and nothing of it runs again, not even
a ``finally``: its requests in flight stay in flight.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from greenlet import greenlet

from cpg_simulation.virtual.coordinator import Coordinator, Scheduled
from cpg_simulation.virtual.machine import Machine

WAKE_SECONDS = 20e-6
"""Seconds until a thread that waits runs after something has happened."""


class ProcessExit(BaseException):
    """The process has called ``os._exit``."""


class VirtualThread:
    """A thread: a stack of its own, which runs until its event loop waits."""

    def __init__(self, process: "Process", target: Callable[[], object], name: str = "main") -> None:
        """Do not run yet."""
        self.process = process
        self.name = name
        self.busy = 0.0
        """Seconds of the machine for which the thread has worked in this turn."""
        self._wakeup: Scheduled | None = None
        self._is_deferred = False
        self._coordinator = process.coordinator
        self._stack = greenlet(self._run, parent=process.parent)
        self._target = target

    def start(self) -> None:
        """Run as soon as the processor is free."""
        self.wake()

    def wake(self) -> None:
        """Run soon, if it waits."""
        self._wake_at(self._coordinator.now + WAKE_SECONDS)

    def park(self, seconds: float | None) -> None:
        """Give the other threads their turn; return after some seconds, or when woken."""
        now, rate = self._coordinator.now, self.process.machine.rate
        self._resume_at = now + self.busy / rate
        self._wakeup = None
        if seconds is not None:
            self._wake_at(self._resume_at + (seconds / rate + 1e-7 if seconds else 0.0))
        loop, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
        self.process.parent.switch()
        asyncio._set_running_loop(loop)  # of this thread: the real one has run others meanwhile
        sys.set_asyncgen_hooks(*hooks)

    def resume(self) -> None:
        """Run a turn, unless the process is stopped or dead."""
        process = self.process
        if not process.is_alive:
            return
        if process.is_stopped:
            self._is_deferred = True
            return
        self._wakeup, self.busy = None, 0.0
        RUNNING.thread = self
        try:
            self._stack.switch()
        finally:
            RUNNING.thread = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(None, None)

    def undefer(self) -> None:
        """Have the turn that came while the process was stopped."""
        if self._is_deferred:
            self._is_deferred, self._wakeup = False, None
            self.wake()

    _resume_at = 0.0

    def _wake_at(self, when: float) -> None:
        when = max(when, self._resume_at)
        if self._wakeup is not None:
            if self._wakeup.at <= when:
                return
            self._wakeup.cancel()
        self._wakeup = self._coordinator.at(when, self.resume)

    def _run(self) -> None:
        self.process.run_thread(self, self._target)


class Running:
    """The thread that runs at this moment, or None while the coordinator does."""

    def __init__(self) -> None:
        """Begin in the coordinator."""
        self.thread: VirtualThread | None = None


RUNNING: Final = Running()


class Process:
    """A process on a machine. ``on_exit`` is called when it has ended by itself, with its error if any."""

    def __init__(
        self,
        name: str,
        coordinator: Coordinator,
        machine: Machine,
        *,
        random: Random,
        on_exit: Callable[["Process", BaseException | None], None],
    ) -> None:
        """Do not run yet."""
        self.name = name
        self.coordinator = coordinator
        self.machine = machine
        self.random = random
        self.parent = greenlet.getcurrent()
        self.is_alive = True
        self.is_stopped = False
        self._stopped_at = 0.0
        self.signals: dict[int, tuple[asyncio.BaseEventLoop, Callable[[], object]]] = {}
        self._on_exit = on_exit
        self._threads: list[VirtualThread] = []

    def start(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begin to run."""
        self.add_thread(lambda: asyncio.run(main())).start()

    def add_thread(self, target: Callable[[], object], name: str = "main") -> VirtualThread:
        """Return a further thread, which does not run yet."""
        found = VirtualThread(self, target, name)
        self._threads.append(found)
        return found

    def stop(self) -> None:
        """Give it no turns (SIGSTOP)."""
        if not self.is_stopped:
            self.is_stopped, self._stopped_at = True, self.coordinator.now

    def resume(self) -> float:
        """Give it turns again (SIGCONT); return the seconds for which it had none."""
        seconds = self.coordinator.now - self._stopped_at if self.is_stopped else 0.0
        self.is_stopped = False
        for thread in self._threads:
            thread.undefer()
        return seconds

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.is_alive = False

    def signal(self, number: int) -> None:
        """Send a signal that it handles."""
        if self.is_alive and number in self.signals:
            loop, handler = self.signals[number]
            loop.call_soon_threadsafe(handler)

    def run_thread(self, thread: VirtualThread, target: Callable[[], object]) -> None:
        """Run a thread to its end. The end of the first one ends the process."""
        error: BaseException | None = None
        try:
            target()
        except BaseException as problem:  # noqa: BLE001 - whatever it is, the process has ended with it
            error = problem
        if self.is_alive and (thread is self._threads[0] or isinstance(error, ProcessExit)):
            self.is_alive = False
            self._on_exit(self, error)
