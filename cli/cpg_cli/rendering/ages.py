"""Ages of objects."""

from datetime import UTC, datetime

UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def seconds_since(timestamp: str, now: float) -> int:
    """Return how many seconds ago a timestamp of the API was; zero for one in the future."""
    return max(int(now - datetime.fromisoformat(timestamp).astimezone(UTC).timestamp()), 0)


def short_age(timestamp: str | None, now: float) -> str:
    """Return how long ago a timestamp was, as kubectl shows ages: in its two largest units."""
    if not timestamp:
        return ""
    rest, parts = seconds_since(timestamp, now), list[str]()
    for size, unit in UNITS:
        if rest >= size or (unit == "s" and not parts):
            parts.append(f"{rest // size}{unit}")
            rest %= size
        elif parts:
            break
    return "".join(parts[:2])
