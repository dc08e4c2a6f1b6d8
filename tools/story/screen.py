"""Where the story is told: on a terminal a picture is redrawn as things change, elsewhere each change is a line."""

import re
import shutil
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from story.picture import drawing, summary
from story.sights import Sight

WIDTH = 100
READING = 2.5
"""Seconds that a reader at a terminal gets for a step that is over; a file or a pipe needs none."""

_COLOUR = re.compile(r"(\x1b\[[0-9]*m)")


@dataclass
class Screen:
    """A stream, and what stands on it last."""

    stream: TextIO
    sleep: Callable[[float], object] = time.sleep
    _drawn: list[str] = field(default_factory=list, init=False)
    _height: int = field(default=0, init=False)
    _told: str = field(default="", init=False)

    @property
    def is_live(self) -> bool:
        """Whether lines can be drawn anew."""
        return self.stream.isatty()

    def step(self, title: str, text: str) -> None:
        """Begin a step: its name, and what happens in it."""
        self._write(f"\n{self._bold(f'== {title}')}\n{textwrap.fill(text, self._width())}\n")

    def command(self, line: str, answer: str = "") -> None:
        """Show a command as one would type it, and what it answered."""
        self._write(f"\n{self._bold('$ ' + line)}\n{answer}")

    def quote(self, text: str) -> None:
        """Show what an object says."""
        indented = textwrap.fill(text, self._width(), initial_indent="  ", subsequent_indent="  ")
        self._write(f"{indented}\n")

    def advice(self, why: str, line: str) -> None:
        """Show a command that may be tried later, and what for."""
        self._write(f"\n  {why}:\n    {line}\n")

    def show(self, sight: Sight) -> None:
        """Show a moment; where lines cannot be redrawn, in one line, and only if it says something new."""
        if self.is_live:
            self._redraw(drawing(sight, coloured=True))
        elif (told := summary(sight)) != self._told:
            self._told = told
            self._write(f"  {told}\n")

    def settle(self, sight: Sight) -> None:
        """Leave the picture of a moment standing, and time to look at it."""
        if self.is_live:
            self._redraw(drawing(sight, coloured=True))
            self.sleep(READING)
        else:
            self._write("\n" + "".join(f"{line}\n" for line in drawing(sight, coloured=False)))
        self._drawn, self._height, self._told = [], 0, ""

    def _redraw(self, lines: list[str]) -> None:
        if lines == self._drawn:
            return
        width = self._width()
        wiped = [""] * (self._height - len(lines))  # of a picture that was taller
        up = f"\x1b[{self._height}A" if self._height else "\n"
        self._write(up + "".join(f"\r{_clipped(line, width)}\x1b[K\n" for line in [*lines, *wiped]))
        self._drawn, self._height = lines, max(self._height, len(lines))

    def _width(self) -> int:
        return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns - 1) if self.is_live else WIDTH

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.is_live else text

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def _clipped(line: str, width: int) -> str:
    """Cut a line that would break and shift all below it; colours have no width."""
    parts, room = [], width
    for part in _COLOUR.split(line):
        if _COLOUR.fullmatch(part):
            parts.append(part)
        else:
            parts.append(part[:room])
            room -= len(parts[-1])
    return "".join(parts)
