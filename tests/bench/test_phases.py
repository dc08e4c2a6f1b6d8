"""The phases of a run, from the scheduler's log."""

from phases import phases_of

LOG = """\
not a line of ours
{"version": "1", "event": "starting", "level": "info", "timestamp": "2026-01-01T00:00:01.250000Z"}
{"pods": 1, "nodes": 2, "event": "ready", "level": "info", "timestamp": "2026-01-01T00:00:03Z"}
{"pods": 1, "nodes": 2, "event": "ready", "level": "info", "timestamp": "2026-01-01T00:00:09Z"}
{"root": "a ready root", "event": "bound", "level": "info", "timestamp": "2026-01-01T00:00:10Z"}
"""


def test_phases_are_read_from_the_log() -> None:
    """In seconds since the start; the first event of a kind counts, and other lines are ignored."""
    assert phases_of(LOG, 1767225600.0) == {"first_request": 1.25, "lists_done": 3.0}


def test_a_log_without_events_has_no_phases() -> None:
    """As that of another scheduler."""
    assert phases_of("I0101 starting\n", 0.0) == {}
