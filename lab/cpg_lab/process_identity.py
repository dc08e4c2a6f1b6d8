"""Which process is meant, for sure: its number and the moment it began.

Numbers are used again. A process that we noted down yesterday may be somebody's editor today, so nothing
here is signalled by number alone.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, of this boot of the machine, for ever."""

    pid: int
    started: int
    """Clock ticks between the boot and the process's beginning, as the kernel counts them."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Give the identity of a living process."""
        found = _state_and_start(pid)
        return None if found is None else cls(pid, found[1])

    def is_running(self) -> bool:
        """Tell whether it still runs; one that ended and waits for its parent to notice does not."""
        found = _state_and_start(self.pid)
        return found is not None and found[0] not in "ZX" and found[1] == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal it if it lives; through a handle, so that check and signal mean the same process."""
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
