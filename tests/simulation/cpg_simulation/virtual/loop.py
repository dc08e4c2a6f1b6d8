"""The event loop of a simulated thread: asyncio's own, except that it waits in virtual time."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVarTuple

from cpg_simulation.virtual.process import RUNNING, Process, VirtualThread
from cpg_simulation.virtual.sockets import VirtualSocket

if TYPE_CHECKING:
    from _typeshed import HasFileno

_Ts = TypeVarTuple("_Ts")


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that a run is the same each time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: "VirtualLoop", **options: Any) -> None:
        self.number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, loop: "VirtualLoop") -> None:
        self.number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that gives the other loops their turn whenever asyncio's would ask the kernel for events."""

    def __init__(self, process: Process) -> None:
        """Belong to a process; the thread is the one that runs it."""
        self.numbers = itertools.count()
        super().__init__()
        self._process = process
        self._selector = self
        self._thread: VirtualThread | None = None
        self.set_task_factory(_new_task)

    def time(self) -> float:
        """Return the monotonic clock of the machine, which includes what the thread has worked in this turn."""
        thread = RUNNING.thread
        return self._process.machine.monotonic() + (thread.busy if thread is not None else 0.0)

    def select(self, timeout: float | None) -> list[object]:
        """Wait as a selector does; what happens meanwhile calls ``call_soon``."""
        thread = RUNNING.thread
        if thread is None:
            raise RuntimeError("an event loop of the simulation runs outside of it")
        self._thread = thread
        thread.park(timeout)
        return []

    def notify(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call something in the next turn, from outside of the loop."""
        if not self.is_closed():
            self.call_soon(callback, *arguments)
            self._write_to_self()

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return _Future(loop=self)

    def add_reader(self, fd: "int | HasFileno", callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Call something whenever a socket can be read."""
        _socket(fd).set_reader(lambda: callback(*args))

    def remove_reader(self, fd: "int | HasFileno") -> bool:
        """Call it no longer."""
        _socket(fd).set_reader(None)
        return True

    def add_writer(self, fd: "int | HasFileno", callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Call something whenever a socket can be written, which is always soon."""
        _socket(fd).set_writer(lambda: callback(*args))

    def remove_writer(self, fd: "int | HasFileno") -> bool:
        """Call it no longer."""
        _socket(fd).set_writer(None)
        return True

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Handle a signal of the process."""
        self._process.signals[sig] = (self, lambda: callback(*args))

    def remove_signal_handler(self, sig: int) -> bool:
        """Handle it no longer."""
        return self._process.signals.pop(sig, None) is not None

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing: events have been added to the queue of callbacks already."""

    def _write_to_self(self) -> None:
        if self._thread is not None and self._thread is not RUNNING.thread:
            self._thread.wake()


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401
    if not isinstance(loop, VirtualLoop):
        raise TypeError("a task of another loop")
    return _Task(coroutine, loop=loop, **options)


def _socket(found: "int | HasFileno") -> VirtualSocket:
    if not isinstance(found, VirtualSocket):
        raise TypeError("not a socket of the simulation")
    return found
