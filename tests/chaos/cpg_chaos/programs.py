"""Our processes: replicas of the scheduler and the operator, which start again when they end, as in a Deployment."""

import base64
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from cpg_api.decoding import decode
from cpg_chaos.record import RunRecord
from cpg_chaos.relays import Relay
from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.processes import Process

LEASE = {"leaseDuration": 4, "renewDeadline": 2.6, "retryPeriod": 0.5}
"""Shorter than the default, so that a run has many takeovers."""
SECONDS_UNTIL_RESTART = 1.0
GRACE_SECONDS = 30.0
"""The grace period of the chart's pods after SIGTERM."""
DEFECTS = re.compile(
    r"Traceback|\"event\": \"(attempt failed|process failed|reconcile failed|event not processed|object refused)\""
    r"|\"finding\": \"Contradiction\""
)
LEGITIMATE_ENDS = {
    "lost lease": re.compile(r"lease (could not be renewed|is not ours)|holds the lease"),
    "versions went back": re.compile(r"went back from"),
}


class Program:
    """One replica with its own way to the API server and its own token; it is started again when it ends."""

    def __init__(self, part: str, number: int, access: Access, relay: Relay, folder: Path) -> None:
        """Start nothing yet; the token shows in the audit log which replica has written."""
        self.part, self.relay = part, relay
        self.name = f"{part}-{number}"
        command = ("create", "token", f"kube-cpg-{part}", "--namespace=kube-cpg", "--duration=24h")
        token = access.kubectl(*command).stdout.strip()
        claims = token.split(".")[1]
        self.credential = f"JTI={decode(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"
        self._files = folder / self.name
        write_kubeconfig(self._kubeconfig, url=relay.url, ca_file=access.ca_file, token=token)
        self.process: Process | None = None
        self.is_stopped_by_us = False
        self._ended = 0.0
        self._told_to_end = 0.0

    @property
    def log(self) -> Path:
        """The log of all its runs."""
        return self._files.with_suffix(".log")

    @property
    def _kubeconfig(self) -> Path:
        return self._files.with_suffix(".kubeconfig")

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.process is not None and self.process.is_running

    def start(self, settings: Mapping[str, object]) -> None:
        """Start it with these settings."""
        config = {**settings, "listen": f"{LOOPBACK}:{free_port()}", "leaderElection": LEASE}
        path = self._files.with_suffix(".yaml")
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        options = ["-m", f"cpg_{self.part}", "--kubeconfig", str(self._kubeconfig), "--config", str(path)]
        self.is_stopped_by_us, self._ended, self._told_to_end = False, 0.0, 0.0
        self.process = Process(self.name, [sys.executable, *options], log=self.log)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.process is not None and self.process.is_running:
            if number in {signal.SIGKILL, signal.SIGTERM}:
                self.is_stopped_by_us = True
                self._told_to_end = time.monotonic() if number == signal.SIGTERM else 0.0
            os.killpg(self.process.pid, number)

    def supervise(self, settings: Mapping[str, object], record: RunRecord) -> None:
        """Start it again when it has ended; check why it has."""
        if self.process is None:
            self.start(settings)
        elif self.process.is_running:
            if self._told_to_end and time.monotonic() > self._told_to_end + GRACE_SECONDS:
                record.violate("processes end within their grace period", self.name)
                self.process.kill()
        elif not self._ended:
            self._ended = time.monotonic()
            if self.is_stopped_by_us:
                record.counts[f"{self.part}s killed or stopped"] += 1
            else:
                check_end(self.name, self.process, record)
        elif time.monotonic() > self._ended + SECONDS_UNTIL_RESTART:
            self.start(settings)


def check_end(name: str, process: Process, record: RunRecord) -> None:
    """Count why a process has ended that no fault has killed, by the end of its log; report any other reason."""
    end = process.tail(3)
    for why, pattern in LEGITIMATE_ENDS.items():
        if pattern.search(end):
            record.counts[f"{name.partition('-')[0]}s ended: {why}"] += 1
            return
    record.violate("processes end only when killed", f"{name} ended with {process.exit_code}: {end}")


def defects(log: Path, offset: int) -> Iterator[str]:
    """Yield the lines of a log after an offset that report a defect of ours."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(offset)
        for line in lines:
            if DEFECTS.search(line):
                yield line.strip()[:2000]
