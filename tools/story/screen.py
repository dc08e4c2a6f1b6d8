"""The output of the demo: a terminal shows a picture that is redrawn, any other stream a line per change."""

import re
import shutil
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from story.picture import draw, summarize
from story.state import ClusterState

WIDTH = 100
READING_SECONDS = 2.5
"""The pause after a step on a terminal."""

_COLOUR = re.compile(r"(\x1b\[[0-9]*m)")


@dataclass
class Screen:
    """A stream and its last picture."""

    stream: TextIO
    sleep: Callable[[float], object] = time.sleep
    _drawn: list[str] = field(default_factory=list, init=False)
    _height: int = field(default=0, init=False)
    _last_line: str = field(default="", init=False)

    @property
    def is_live(self) -> bool:
        """Whether the stream is a terminal, so that lines can be redrawn."""
        return self.stream.isatty()

    def step(self, title: str, text: str) -> None:
        """Show the title and text of a step."""
        self._write(f"\n{self._bold(f'== {title}')}\n{textwrap.fill(text, self._width())}\n")

    def command(self, line: str, answer: str = "") -> None:
        """Show a command and its output."""
        self._write(f"\n{self._bold('$ ' + line)}\n{answer}")

    def quote(self, text: str) -> None:
        """Show a message of an object."""
        indented = textwrap.fill(text, self._width(), initial_indent="  ", subsequent_indent="  ")
        self._write(f"{indented}\n")

    def suggest(self, why: str, line: str) -> None:
        """Show a command to try, and its purpose."""
        self._write(f"\n  {why}:\n    {line}\n")

    def show(self, state: ClusterState) -> None:
        """Show a state: redraw the picture, or write one line if it differs from the last."""
        if self.is_live:
            self._redraw(draw(state, coloured=True))
        elif (line := summarize(state)) != self._last_line:
            self._last_line = line
            self._write(f"  {line}\n")

    def finish(self, state: ClusterState) -> None:
        """Show the last picture of a step and pause."""
        if self.is_live:
            self._redraw(draw(state, coloured=True))
            self.sleep(READING_SECONDS)
        else:
            self._write("\n" + "".join(f"{line}\n" for line in draw(state, coloured=False)))
        self._drawn, self._height, self._last_line = [], 0, ""

    def _redraw(self, lines: list[str]) -> None:
        if lines == self._drawn:
            return
        width = self._width()
        wiped = [""] * (self._height - len(lines))  # clear the rest of a taller picture
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
    """Cut a line to the width, because a wrapped line would shift those below; colours have no width."""
    parts, room = [], width
    for part in _COLOUR.split(line):
        if _COLOUR.fullmatch(part):
            parts.append(part)
        else:
            parts.append(part[:room])
            room -= len(parts[-1])
    return "".join(parts)
