"""The identity of a process: its number and the time of its start.

The kernel reuses numbers: yesterday's number may belong to another program today. So no process is signalled by its
number alone.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, unique within this boot of the machine."""

    pid: int
    started: int
    """Clock ticks between the boot and the start of the process, as the kernel counts them."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the identity of a process, or None if there is none with this number."""
        found = _state_and_start(pid)
        return None if found is None else cls(pid, found[1])

    def is_running(self) -> bool:
        """Return whether the process runs; a zombie does not."""
        found = _state_and_start(self.pid)
        return found is not None and found[0] not in "ZX" and found[1] == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal the process if it runs; through a file descriptor, so that check and signal mean the same process."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.is_running():
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
