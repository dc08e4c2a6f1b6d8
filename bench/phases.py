"""What our scheduler was about and when, by its own log: what the seconds of a run are made of."""

import datetime as dt

import msgspec

EVENTS = {"starting": "first_request", "ready": "lists_done"}
"""Lines of the log, each by what begins or is done with it."""


class Line(msgspec.Struct, frozen=True):
    """As much of a line of the log as tells of a phase."""

    event: str
    timestamp: dt.datetime


def phases_of(log: str, began: float) -> dict[str, float]:
    """Return how many seconds after the start, by the time of day, each phase was reached; the first time counts."""
    found: dict[str, float] = {}
    for text in log.splitlines():
        if any(f'"event": "{event}"' in text for event in EVENTS):
            line = msgspec.json.decode(text, type=Line)
            found.setdefault(EVENTS[line.event], round(line.timestamp.timestamp() - began, 3))
    return found
