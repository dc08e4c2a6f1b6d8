"""Plays nights in child processes: each begins in the same state, and one that hangs or crashes is a finding."""

import os
import resource
import selectors
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from cpg_simulation.nights.plan import Night
from cpg_simulation.outcome import Broken, Outcome

CPU_SECONDS_OF_NIGHT = 60
"""A night that works longer than this hangs; a usual one takes less than half a second."""

Play = Callable[[Night], Outcome]


def play_all(nights: Iterable[Night], play: Play, jobs: int) -> Iterator[Outcome]:
    """Yield the outcome of each night, as soon as it has ended; ``jobs`` of them are played at once."""
    waiting, running = iter(nights), selectors.DefaultSelector()
    for night in waiting:
        running.register(*_fork(night, play))
        if len(running.get_map()) >= jobs:
            yield from _collect(running)
    while running.get_map():
        yield from _collect(running)


def _collect(running: selectors.BaseSelector) -> Iterator[Outcome]:
    """Yield the outcomes of the nights that have ended, at least of one."""
    has_ended = False
    while not has_ended:
        for key, _ in running.select():
            child: _Child = key.data
            piece = os.read(key.fd, 1 << 16)
            if piece:
                child.answer += piece
                continue
            has_ended = True
            running.unregister(key.fd)
            os.close(key.fd)
            yield child.outcome()


class _Child:
    """A child process that plays a night."""

    def __init__(self, night: Night, process: int) -> None:
        self.answer = b""
        self._night = night
        self._process = process

    def outcome(self) -> Outcome:
        """Return the outcome that the child has sent, or that it has sent none."""
        _, status = os.waitpid(self._process, 0)
        if self.answer:
            return msgspec.json.decode(self.answer, type=Outcome)
        reason = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended without a result"
        broken = Broken("the simulation ends", 0.0, f"the night of seed {self._night.seed} {reason}")
        return Outcome(seed=self._night.seed, number=self._night.number, digest="", broken=(broken,))


def _fork(night: Night, play: Play) -> tuple[int, int, _Child]:
    """Begin to play a night; return what to register with a selector."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return reading, selectors.EVENT_READ, _Child(night, process)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_OF_NIGHT, CPU_SECONDS_OF_NIGHT))
        answer = memoryview(msgspec.json.encode(_played(night, play)))
        with suppress(BrokenPipeError):
            while answer:
                answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(0)


def _played(night: Night, play: Play) -> Outcome:
    try:
        return play(night)
    except BaseException:  # noqa: BLE001 - a defect of the simulation is a finding as well
        broken = Broken("the simulation works", 0.0, traceback.format_exc())
        return Outcome(seed=night.seed, number=night.number, digest="", broken=(broken,))
