"""Programs that the lab runs: started so that nothing can leave them behind, stopped by process number.

Each gets a session of its own, so that Ctrl-C in a terminal reaches only us and we stop them in order. Each
dies with us, even when we are killed (see `launching`). That tie is to the *thread* that forks, and ends with
it: a cluster started by a worker thread would die when the pool lets the thread go. So one thread of our own
does all the forking, and lives as long as the process.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from cpg_lab import launcher
from cpg_lab.process_identity import ProcessIdentity

TAIL_LINES = 15
_forkers: dict[int, ThreadPoolExecutor] = {}


def _forker() -> ThreadPoolExecutor:
    """Give this process's forking thread; a forked copy of us would have the object only, hence the key."""
    return _forkers.setdefault(os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="lab-forking"))


def _forked(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Fork in the forking thread; if we are interrupted while waiting for it, the child is not wanted."""
    future = _forker().submit(start)
    try:
        return future.result()
    except BaseException:
        future.add_done_callback(_discard)
        raise


def _discard(future: Future[subprocess.Popen[bytes]]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().kill()
        future.result().wait()


class Process:
    """A running program, its log, and the ways to end it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        tied = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid())]
        with log.open("ab") as sink:
            self._log_start = sink.tell()
            self._popen = _forked(
                lambda: subprocess.Popen(
                    [*tied, *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    env=env,
                    cwd=folder,
                    start_new_session=True,
                )
            )

    @property
    def pid(self) -> int:
        """The process number, which is the number of its group too."""
        return self._popen.pid

    @property
    def identity(self) -> ProcessIdentity | None:
        """Who it is, for another process that wants to know whether it lives."""
        return ProcessIdentity.of(self.pid) if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The code it ended with, negative for a signal; None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """Give what this run wrote to the log, which may hold earlier runs as well."""
        with self.log.open("rb") as source:
            source.seek(self._log_start)
            return source.read().decode(errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Give the last lines of what this run wrote."""
        return "\n".join(self.output().splitlines()[-lines:])

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and whatever it started, at once."""
        self._signal(signal.SIGKILL)
        self._popen.wait()

    def stop(self, grace: float) -> None:
        """Ask it to end, and end it by force when it takes longer than the grace."""
        stop_all([self], grace)

    def wait(self, timeout: float) -> bool:
        """Wait for its end; tell whether it came in time."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group. Nobody else can get its number before we collect its exit code."""
        if self.alive:
            os.killpg(self.pid, number)


def stop_all(processes: Sequence[Process], grace: float) -> None:
    """End several at once: ask all, wait for all, then force the rest."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace
    for process in processes:
        process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()


def tail_of(log: Path, lines: int = TAIL_LINES) -> str:
    """Give the last lines of a log file, or nothing where there is none."""
    try:
        with log.open(errors="replace") as source:
            return "".join(deque(source, lines)).rstrip()
    except FileNotFoundError:
        return ""
