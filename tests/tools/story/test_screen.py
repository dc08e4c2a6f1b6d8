"""The output of the demo."""

import io

from story.screen import Screen
from story.state import ClusterState, Node

ONE = ClusterState((Node("node-1", "block-1", "rack-1"),))
TWO = ClusterState((*ONE.nodes, Node("node-2", "block-2", "rack-2")))


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_a_file_gets_a_line_for_each_change_and_the_picture_at_the_end() -> None:
    """No line is repeated, and there are no control sequences."""
    stream = io.StringIO()
    screen = Screen(stream)
    for state in (ONE, ONE, TWO):
        screen.show(state)
    screen.finish(TWO)
    output = stream.getvalue()
    assert output.splitlines()[:2] == ["  1 nodes in racks", "  2 nodes in racks"]
    assert output.endswith("  block-1   rack-1     [  ]\n  block-2   rack-2     [  ]\n")
    assert "\x1b" not in output


def test_a_terminal_redraws_the_picture_in_place() -> None:
    """The second picture replaces the first, an equal one is not drawn, and a pause follows."""
    stream, slept = Terminal(), list[float]()
    screen = Screen(stream, sleep=slept.append)
    for state in (ONE, ONE, TWO):
        screen.show(state)
    screen.finish(TWO)
    assert stream.getvalue().count("rack-1 ") == 2
    assert stream.getvalue().count("\x1b[1A\r") == 1
    assert len(slept) == 1


def test_long_lines_are_cut() -> None:
    """A wrapped line would shift the picture."""
    stream = Terminal()
    wide = ClusterState(tuple(Node(f"node-{number:03}", "block-1", "rack-1") for number in range(100)))
    Screen(stream).show(wide)
    assert max(map(len, stream.getvalue().replace("\x1b[K", "").splitlines())) <= 100


def test_a_smaller_picture_clears_the_rest_of_a_larger_one() -> None:
    """No line of the larger picture stays."""
    stream = Terminal()
    screen = Screen(stream)
    screen.show(TWO)
    screen.show(ONE)
    assert stream.getvalue().endswith("\x1b[2A\r  block-1   rack-1     [  ]\x1b[K\n\r\x1b[K\n")
