"""Puts the virtual platform into the place of the real one: clocks, threads, event loops, sockets, names, randomness.

It has to be installed before the programs are imported: some keep the clock that they find then. Whatever runs outside
of a simulated process still gets the real thing.
"""

import asyncio
import os
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from unittest import mock

from cpg_simulation.virtual.loop import VirtualLoop
from cpg_simulation.virtual.process import RUNNING, Process, ProcessExit, VirtualThread
from cpg_simulation.virtual.sockets import VirtualSocket

Dial = Callable[[Process, VirtualLoop, str, int], Awaitable[VirtualSocket]]
"""Connects a process to a host and port."""


def install() -> None:
    """Replace the platform for the rest of this process."""
    for module, name, replacement in (
        (time, "monotonic", _clock(time.monotonic, _monotonic)),
        (time, "perf_counter", _clock(time.perf_counter, _monotonic)),
        (time, "thread_time", _clock(time.thread_time, _monotonic)),
        (time, "process_time", _clock(time.process_time, _monotonic)),
        (time, "time", _clock(time.time, lambda thread: thread.process.machine.wall() + thread.busy)),
        (time, "clock_gettime", _clock_gettime(time.clock_gettime)),
        (threading, "Thread", _Thread),
        (os, "_exit", _exit_function(os._exit)),
        (os, "getpid", _in_process(os.getpid, lambda _: 1)),
        (socket, "gethostname", _in_process(socket.gethostname, lambda thread: thread.process.name)),
        (uuid, "uuid4", _in_process(uuid.uuid4, _new_uuid)),
    ):
        mock.patch.object(module, name, replacement).start()
    asyncio.set_event_loop_policy(_Policy())


def replace_sockets(dial: Dial) -> None:
    """Let the client connect by the network of the simulation."""
    from cpg_client import connection_pool  # noqa: PLC0415 - the platform comes first

    async def connect(host: str, port: int, *_: object) -> VirtualSocket:
        thread = RUNNING.thread
        loop = asyncio.get_running_loop()
        if thread is None or not isinstance(loop, VirtualLoop):
            raise RuntimeError("a connection from outside of the simulation")
        return await dial(thread.process, loop, host, port)

    mock.patch.object(connection_pool, "connect", connect).start()


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Gives a simulated process virtual event loops."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop for whatever runs."""
        thread = RUNNING.thread
        return super().new_event_loop() if thread is None else VirtualLoop(thread.process)


def _in_process(real: Callable[..., Any], virtual: Callable[[VirtualThread], Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:  # noqa: ANN401 - as the real one
        thread = RUNNING.thread
        return real(*arguments) if thread is None else virtual(thread)

    return call


def _clock(real: Callable[[], float], virtual: Callable[[VirtualThread], float]) -> Callable[[], float]:
    """Return a clock that costs time to read in a simulated process."""

    def read() -> float:
        thread = RUNNING.thread
        if thread is None:
            return real()
        thread.busy += thread.process.machine.seconds_per_reading
        return virtual(thread)

    return read


def _monotonic(thread: VirtualThread) -> float:
    return thread.process.machine.monotonic() + thread.busy


def _clock_gettime(real: Callable[[int], float]) -> Callable[[int], float]:
    """Return the clocks by number, of which processes read the one that counts on while the machine is suspended."""
    read = _clock(lambda: 0.0, lambda thread: thread.process.machine.boottime() + thread.busy)
    return lambda number: real(number) if RUNNING.thread is None else read()


def _new_uuid(thread: VirtualThread) -> uuid.UUID:
    return uuid.UUID(int=thread.process.random.getrandbits(128), version=4)


class _Thread(threading.Thread):
    """A thread of the system; in a simulated process, a virtual one."""

    def __new__(cls, *, target: Callable[[], object] | None = None, name: str = "", **_: Any) -> Any:  # noqa: ANN401
        thread = RUNNING.thread
        if thread is None or target is None:
            return super().__new__(cls)
        return thread.process.add_thread(target, name)


def _exit_function(real: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    def leave(code: int) -> NoReturn:
        if RUNNING.thread is None:
            real(code)
        raise ProcessExit(code)

    return leave
