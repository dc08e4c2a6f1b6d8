"""What was done in a run, and what was found: faults, violations and counts."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CONTROL_PLANE = ("apiserver", "etcd", "every replica")
RECENT_SECONDS = 15.0
"""A violation names the faults that ended within this time before it."""


@dataclass
class Fault:
    """One fault; ``end`` is infinite while it lasts."""

    kind: str
    target: str
    begin: float
    end: float = float("inf")


@dataclass(frozen=True)
class Violation:
    """A rule that did not hold, and the faults that may have to do with it."""

    at: float
    rule: str
    what: str
    faults: tuple[str, ...]


@dataclass
class RunRecord:
    """The faults and violations of a run, with times as in the API server's log."""

    began: float = field(default_factory=time.time)
    faults: list[Fault] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def fault(self, kind: str, target: str = "") -> Iterator[Fault]:
        """Record a fault that lasts as long as the block."""
        fault = Fault(kind, target, time.time())
        self.faults.append(fault)
        try:
            yield fault
        finally:
            fault.end = time.time()

    def violate(self, rule: str, what: str, at: float | None = None) -> None:
        """Record a violation once."""
        when = time.time() if at is None else at
        if all((one.rule, one.what) != (rule, what) for one in self.violations):
            self.violations.append(Violation(when, rule, what, tuple(self._faults_around(when))))
            sys.stderr.write(f"\nFAILED after {when - self.began:.0f} s: {rule}: {what}\n")

    def calm_seconds(self, begin: float, end: float, *targets: str) -> float:
        """Return for how long between two times there was no fault of the control plane or of these targets."""
        calm, since = 0.0, begin
        concerned = (*CONTROL_PLANE, *targets)
        faults = (one for one in self.faults if one.target.startswith(concerned))
        for fault in sorted(faults, key=lambda one: one.begin):
            calm += max(0.0, min(fault.begin, end) - since)
            since = max(since, fault.end)
        return calm + max(0.0, end - since)

    def _faults_around(self, when: float) -> Iterator[str]:
        for fault in self.faults:
            if fault.begin <= when and fault.end >= when - RECENT_SECONDS:
                ended = "lasts" if fault.end > when else f"ended {when - fault.end:.1f} s before"
                yield f"{fault.kind} {fault.target}".strip() + f", {when - fault.begin:.1f} s before, {ended}"
