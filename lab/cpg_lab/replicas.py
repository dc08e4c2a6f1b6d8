"""Replicas of our scheduler as processes beside a cluster, for crash tests, soaks and comparisons.

The lab uses the scheduler as users do: command, settings file, log and probes.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cpg_api.decoding import decode
from cpg_lab import probing
from cpg_lab.errors import LabError
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process

SHORT_LEASE = {"leaseDuration": 2, "renewDeadline": 1.3, "retryPeriod": 0.3}
"""A leader election short enough for tests, in seconds."""


class Replica:
    """One process of the scheduler; it dies with the lab."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        name: str,
        *arguments: str,
        settings: Mapping[str, object] | None = None,
        program: str = "",
    ) -> None:
        """Start it; ``program`` is Python code that runs instead of the scheduler's main, to inject a fault."""
        self.url = f"http://{LOOPBACK}:{free_port()}"
        config = folder / f"{name}.yaml"
        listen = self.url.removeprefix("http://")
        config.write_text(yaml.safe_dump({"listen": listen, **(settings or {})}), encoding="utf-8")
        runs = ["-c", program] if program else ["-m", "cpg_scheduler"]
        options = ["--kubeconfig", str(kubeconfig), "--config", str(config), *arguments]
        self.process = Process(name, [sys.executable, *runs, *options], log=folder / f"{name}.log")

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of its log with this event."""
        lines = (line for line in self.process.output().splitlines() if f'"event": "{event}"' in line)
        return [decode(line) for line in lines if line.endswith("}")]

    def await_log_line(self, event: str, timeout: float = 20.0) -> dict[str, Any]:
        """Return the first line of its log with this event; wait until there is one."""
        self.wait(lambda: bool(self.log_lines(event)), timeout, f"the log line {event!r}")
        return self.log_lines(event)[0]

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an answer, or 0 and the error."""
        return probing.get_plain(self.url + path)

    def pause(self) -> None:
        """Pause it with SIGSTOP."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def wait(self, until: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait until a condition holds; raise with the end of the log after the timeout."""
        deadline = time.monotonic() + timeout
        while not until():
            if time.monotonic() > deadline:
                raise LabError(f"{what} did not come within {timeout:g} s; {self._log_end()}")
            time.sleep(0.02)

    def resident(self) -> float:
        """Return its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def _log_end(self) -> str:
        code = self.process.exit_code
        state = "it runs" if code is None else f"it ended with {code}"
        return f"{state}; the end of its log:\n{self.process.tail()}"
