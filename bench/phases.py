"""The phases of a run of our scheduler, from its log."""

import datetime as dt

import msgspec

EVENTS = {"starting": "first_request", "ready": "lists_done"}
"""Events of the log, and the phase that each begins or ends."""


class Line(msgspec.Struct, frozen=True):
    """The fields of a log line that a phase needs."""

    event: str
    timestamp: dt.datetime


def phases_of(log: str, began: float) -> dict[str, float]:
    """Return the seconds from the start, a time of day, until each phase; the first event of a kind counts."""
    found: dict[str, float] = {}
    for text in log.splitlines():
        if any(f'"event": "{event}"' in text for event in EVENTS):
            line = msgspec.json.decode(text, type=Line)
            found.setdefault(EVENTS[line.event], round(line.timestamp.timestamp() - began, 3))
    return found
