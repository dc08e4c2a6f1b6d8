"""Replicas of our own scheduler as processes beside a cluster: for crash tests, soaks and comparisons.

The lab knows the scheduler as users do, by its command, its settings file, its log and its probes.
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
"""Times of a leader election that a test can wait for."""


class Replica:
    """One process of the scheduler; it dies with us."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        name: str,
        *arguments: str,
        settings: Mapping[str, object] | None = None,
        program: str = "",
    ) -> None:
        """Start it; ``program`` is Python that runs in place of the scheduler's own main, to break it on purpose."""
        self.url = f"http://{LOOPBACK}:{free_port()}"
        config = folder / f"{name}.yaml"
        listen = self.url.removeprefix("http://")
        config.write_text(yaml.safe_dump({"listen": listen, **(settings or {})}), encoding="utf-8")
        runs = ["-c", program] if program else ["-m", "cpg_scheduler"]
        options = ["--kubeconfig", str(kubeconfig), "--config", str(config), *arguments]
        self.process = Process(name, [sys.executable, *runs, *options], log=folder / f"{name}.log")

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of its log about something."""
        lines = (line for line in self.process.output().splitlines() if f'"event": "{event}"' in line)
        return [decode(line) for line in lines if line.endswith("}")]

    def await_said(self, event: str, patience: float = 20.0) -> dict[str, Any]:
        """Return the first line of its log about something, once there is one."""
        self.wait(lambda: bool(self.said(event)), patience, f"the word {event!r}")
        return self.said(event)[0]

    def ask(self, path: str) -> tuple[int, str]:
        """Return what a probe is answered: the status and the body, or 0 and why there is none."""
        return probing.get_plain(self.url + path)

    def pause(self) -> None:
        """Stop it in its tracks."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def wait(self, until: Callable[[], bool], patience: float, what: str) -> None:
        """Wait until something holds; raise with the last words of the log when it does not come."""
        deadline = time.monotonic() + patience
        while not until():
            if time.monotonic() > deadline:
                raise LabError(f"{what} did not come within {patience:g} s; {self._last_words()}")
            time.sleep(0.02)

    def resident(self) -> float:
        """Return its resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def _last_words(self) -> str:
        code = self.process.exit_code
        state = "it runs" if code is None else f"it ended with {code}"
        return f"{state}, and said last:\n{self.process.tail()}"
