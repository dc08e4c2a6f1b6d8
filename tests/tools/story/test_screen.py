"""Where the story is told."""

import io

from story.screen import Screen
from story.sights import Node, Sight

ONE = Sight((Node("node-1", "block-1", "rack-1"),))
TWO = Sight((*ONE.nodes, Node("node-2", "block-2", "rack-2")))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_file_gets_a_line_for_each_change_and_the_picture_at_the_end() -> None:
    """Nothing is written twice, and nothing that a terminal alone understands."""
    stream = io.StringIO()
    screen = Screen(stream)
    for sight in (ONE, ONE, TWO):
        screen.show(sight)
    screen.settle(TWO)
    told = stream.getvalue()
    assert told.splitlines()[:2] == ["  1 nodes in racks", "  2 nodes in racks"]
    assert told.endswith("  block-1   rack-1     [  ]\n  block-2   rack-2     [  ]\n")
    assert "\x1b" not in told


def test_a_terminal_has_the_picture_redrawn_in_place() -> None:
    """The second picture begins where the first did, the same one is not drawn again, and the reader gets time."""
    stream, slept = Terminal(), list[float]()
    screen = Screen(stream, sleep=slept.append)
    for sight in (ONE, ONE, TWO):
        screen.show(sight)
    screen.settle(TWO)
    assert stream.getvalue().count("rack-1 ") == 2
    assert stream.getvalue().count("\x1b[1A\r") == 1
    assert len(slept) == 1


def test_a_line_that_would_break_is_cut() -> None:
    """Or all below it would stand elsewhere than where it is redrawn."""
    stream = Terminal()
    wide = Sight(tuple(Node(f"node-{number:03}", "block-1", "rack-1") for number in range(100)))
    Screen(stream).show(wide)
    assert max(map(len, stream.getvalue().replace("\x1b[K", "").splitlines())) <= 100


def test_a_smaller_picture_wipes_what_stood_below() -> None:
    """A terminal is left with what is so now."""
    stream = Terminal()
    screen = Screen(stream)
    screen.show(TWO)
    screen.show(ONE)
    assert stream.getvalue().endswith("\x1b[2A\r  block-1   rack-1     [  ]\x1b[K\n\r\x1b[K\n")
