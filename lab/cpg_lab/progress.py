"""How far a build is, and how long it will take: the arithmetic, and the line that shows it.

Go does not tell how far it is, but it names each package as it compiles it, and can say beforehand which ones
it will have to. Packages differ in size, so the time left is an estimate; the linking at the end, which names
nothing, counts like a number of packages that was seen to fit.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TextIO

LINK_WEIGHT = 40
"""How many average packages one program's linking takes as long as."""
_PLAIN_EVERY = 15.0
_LIVE_EVERY = 0.2
_FIRST_GUESS_AFTER = 3.0


@dataclass(frozen=True)
class Progress:
    """A moment of a build."""

    total: int
    done: int = 0
    elapsed: float = 0.0
    silent: int = 0
    """How much of the total is linking, of which nothing is heard until it is done."""

    def advanced(self, done: int, elapsed: float) -> "Progress":
        """Give a later moment; what is done never shrinks, and never passes the total."""
        return replace(self, done=min(max(done, self.done), self.total), elapsed=elapsed)

    @property
    def fraction(self) -> float:
        """The part that is done, between 0 and 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def linking(self) -> bool:
        """Whether all that can be heard of is done."""
        return self.silent > 0 and self.done >= self.total - self.silent

    @property
    def seconds_left(self) -> float | None:
        """The time left at the pace so far; None while there is too little to judge by."""
        if self.done >= self.total:
            return 0.0
        if self.done == 0 or self.elapsed < _FIRST_GUESS_AFTER:
            return None
        return self.elapsed * (self.total - self.done) / self.done


def duration(seconds: float) -> str:
    """Write a duration for people: 8 s, 2 min 5 s."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def sentence(title: str, progress: Progress) -> str:
    """Write one line about a moment."""
    left = progress.seconds_left
    tail = ", linking" if progress.linking else "" if left is None else f", {duration(left)} left"
    return f"{title}: {progress.fraction:.0%}{tail}"


@dataclass
class Display:
    """The line on the terminal, rewritten in place; without a terminal a plain line now and then."""

    title: str = ""
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _shown_at: float = field(default=float("-inf"), init=False)
    _shown_text: str = field(default="", init=False)

    def show(self, progress: Progress) -> None:
        """Show a moment, unless there is nothing to do, or the last one was shown only just now."""
        if not progress.total:
            return
        live = self.stream.isatty()
        now = self.clock()
        if now - self._shown_at < (_LIVE_EVERY if live else _PLAIN_EVERY):
            return
        self._shown_at = now
        text = sentence(self.title, progress)
        if live:
            self._write("\r" + text.ljust(len(self._shown_text)))
        elif text != self._shown_text:
            self._write(text + "\n")
        self._shown_text = text

    def say(self, text: str) -> None:
        """Write a line of its own; a live line begins anew below it."""
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
