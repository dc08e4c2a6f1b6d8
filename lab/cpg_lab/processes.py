"""Child processes of the lab, which cannot outlive it.

Each has a session of its own, so that Ctrl-C in a terminal reaches only the lab, which stops its children in order.
Each dies with the lab, even when the lab is killed (see `launcher`). The kernel ties a child to the *thread* that
forks: a cluster started by a worker thread would die when the pool ends the thread. So one thread of our own does all
the forking, and lives as long as the process.
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
    """Return the forking thread of this process; the key is the process number, because a fork copies no threads."""
    return _forkers.setdefault(os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="lab-forking"))


def _fork(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Fork in the forking thread; after an interrupt the child is killed."""
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
    """A child process and its log."""

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
            self._popen = _fork(
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
        """The process number, which is also the number of its group."""
        return self._popen.pid

    @property
    def identity(self) -> ProcessIdentity | None:
        """The identity by which another process can check whether it runs."""
        return ProcessIdentity.of(self.pid) if self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """Return the output of this run; the log may contain earlier runs."""
        with self.log.open("rb") as source:
            source.seek(self._log_start)
            return source.read().decode(errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the output of this run."""
        return "\n".join(self.output().splitlines()[-lines:])

    def terminate(self) -> None:
        """Terminate it with SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and its children."""
        self._signal(signal.SIGKILL)
        self._popen.wait()

    def stop(self, grace: float) -> None:
        """Terminate it, and kill it after the grace period."""
        stop_all([self], grace)

    def wait(self, timeout: float) -> bool:
        """Wait for its end; return whether it ended before the timeout."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def peak_megabytes(self) -> float:
        """Return the most resident memory that it has had; it must still run."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group. The kernel does not reuse its number before its exit code is collected."""
        if self.is_running:
            os.killpg(self.pid, number)


def stop_all(processes: Sequence[Process], grace: float) -> None:
    """Terminate all, wait for all, then kill the rest."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace
    for process in processes:
        process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()


def tail_of(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log file, or nothing where there is none."""
    try:
        with log.open(errors="replace") as source:
            return "".join(deque(source, lines)).rstrip()
    except FileNotFoundError:
        return ""
