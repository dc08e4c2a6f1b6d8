"""The progress of a build and the line that shows it.

Go reports no progress, but it prints each package that it compiles, and lists beforehand which ones it has to.
Packages differ in size, so the time left is an estimate. Linking prints nothing and counts as a number of packages that
was measured.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TextIO

LINK_WEIGHT = 40
"""Linking one program takes as long as compiling so many packages."""
_SECONDS_BETWEEN_LINES = 15.0
_SECONDS_BETWEEN_UPDATES = 0.2
_SECONDS_BEFORE_ESTIMATE = 3.0


@dataclass(frozen=True)
class Progress:
    """The progress of a build at one moment."""

    total: int
    done: int = 0
    elapsed: float = 0.0
    silent: int = 0
    """The part of the total that is linking, which prints nothing until it is done."""

    def advanced(self, done: int, elapsed: float) -> "Progress":
        """Return a later progress; ``done`` never decreases and never exceeds the total."""
        return replace(self, done=min(max(done, self.done), self.total), elapsed=elapsed)

    @property
    def fraction(self) -> float:
        """The part that is done, between 0 and 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def linking(self) -> bool:
        """Whether only linking is left."""
        return self.silent > 0 and self.done >= self.total - self.silent

    @property
    def seconds_left(self) -> float | None:
        """The time left at the pace so far; None while too little is done for an estimate."""
        if self.done >= self.total:
            return 0.0
        if self.done == 0 or self.elapsed < _SECONDS_BEFORE_ESTIMATE:
            return None
        return self.elapsed * (self.total - self.done) / self.done


def duration(seconds: float) -> str:
    """Return a duration as text: 8 s, 2 min 5 s."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def sentence(title: str, progress: Progress) -> str:
    """Return a progress as a line of text."""
    left = progress.seconds_left
    tail = ", linking" if progress.linking else "" if left is None else f", {duration(left)} left"
    return f"{title}: {progress.fraction:.0%}{tail}"


@dataclass
class Display:
    """A line that is rewritten in place on a terminal; elsewhere a plain line every 15 s."""

    title: str = ""
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _shown_at: float = field(default=float("-inf"), init=False)
    _shown_text: str = field(default="", init=False)

    def show(self, progress: Progress) -> None:
        """Show a progress, unless the total is zero or the last update is too recent."""
        if not progress.total:
            return
        live = self.stream.isatty()
        now = self.clock()
        if now - self._shown_at < (_SECONDS_BETWEEN_UPDATES if live else _SECONDS_BETWEEN_LINES):
            return
        self._shown_at = now
        text = sentence(self.title, progress)
        if live:
            self._write("\r" + text.ljust(len(self._shown_text)))
        elif text != self._shown_text:
            self._write(text + "\n")
        self._shown_text = text

    def say(self, text: str) -> None:
        """Write a line; a live line continues below it."""
        self.clear()
        self._shown_at = self.clock()
        self._write(text + "\n")

    def clear(self) -> None:
        """Wipe the live line."""
        if self.stream.isatty() and self._shown_text:
            self._write("\r" + " " * len(self._shown_text) + "\r")
            self._shown_text = ""

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
