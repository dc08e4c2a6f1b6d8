"""Progress, and the line that shows it."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_lab.progress import Display, Progress, duration, sentence


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return true."""
        return True


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_time_left_follows_the_pace() -> None:
    """A quarter in ten seconds leaves thirty."""
    assert Progress(100).advanced(25, 10.0).seconds_left == 30.0


def test_no_estimate_from_too_little() -> None:
    """Nothing done, or hardly started."""
    assert Progress(100).advanced(0, 10.0).seconds_left is None
    assert Progress(100).advanced(1, 0.5).seconds_left is None


def test_a_complete_build_has_no_time_left() -> None:
    """And a build without packages is complete."""
    assert Progress(10).advanced(10, 1.0).seconds_left == 0.0
    assert Progress(0).fraction == 1.0


@given(st.integers(0, 500), st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1000))))
def test_progress_never_decreases(total: int, steps: list[tuple[int, float]]) -> None:
    """The fraction stays within 0 and 1, and the time left is never negative."""
    progress = Progress(total)
    for done, elapsed in steps:
        later = progress.advanced(done, elapsed)
        assert 0.0 <= progress.fraction <= later.fraction <= 1.0
        assert later.seconds_left is None or later.seconds_left >= 0.0
        progress = later


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (125.2, "2 min 5 s")])
def test_durations_have_minutes_and_seconds(seconds: float, text: str) -> None:
    """Only seconds below a minute."""
    assert duration(seconds) == text


def test_a_sentence_has_percentage_and_time() -> None:
    """The line has title and percentage, and the time left where it is known."""
    assert sentence("Building", Progress(4).advanced(1, 20.0)) == "Building: 25%, 1 min 0 s left"
    assert sentence("Building", Progress(4)) == "Building: 0%"


def test_linking_is_named() -> None:
    """Once every package is compiled, because linking prints nothing to estimate from."""
    progress = Progress(100, silent=40)
    assert not progress.advanced(59, 10.0).linking
    assert sentence("Building", progress.advanced(60, 10.0)) == "Building: 60%, linking"


def test_without_a_terminal_lines_are_rare() -> None:
    """A log gets a line every 15 s, and none twice."""
    clock, stream = Clock(), io.StringIO()
    display = Display("Building", stream, clock)
    for second in range(60):
        clock.now = float(second)
        display.show(Progress(100).advanced(second, float(second)))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert "\r" not in stream.getvalue()
    clock.now = 1000.0
    display.show(Progress(100).advanced(45, 45.0))
    display.clear()
    assert stream.getvalue().splitlines() == lines


def test_on_a_terminal_the_line_is_rewritten() -> None:
    """A message goes on a line of its own."""
    clock, stream = Clock(), Terminal()
    display = Display("Building", stream, clock)
    display.show(Progress(4).advanced(1, 20.0))
    display.show(Progress(4).advanced(2, 20.0))
    clock.now = 1.0
    display.show(Progress(4).advanced(2, 20.0))
    assert stream.getvalue() == "\rBuilding: 25%, 1 min 0 s left\rBuilding: 50%, 20 s left     "
    display.say("Done.")
    assert stream.getvalue().endswith("\rDone.\n")


def test_nothing_to_do_is_not_shown() -> None:
    """There is no percentage of nothing."""
    stream = io.StringIO()
    Display("Building", stream).show(Progress(0))
    assert stream.getvalue() == ""
