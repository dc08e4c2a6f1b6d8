"""Timestamps and durations, as Go reads, writes and adds them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from cpg_engine.cel.errors import EvaluationError, NotSupportedError
from cpg_engine.cel.values import INT_MAX, INT_MIN, CelDuration, Timestamp

_SECOND: Final = 10**9
_MIN_SECONDS: Final = -62135596800
_MAX_SECONDS: Final = 253402300799
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,  # the Greek letter
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:(Z)|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_LENGTH: Final = 255


def checked_duration(nanos: int) -> CelDuration:
    """Return the duration; raise an error if its nanoseconds do not fit 64 bits."""
    if INT_MIN <= nanos <= INT_MAX:
        return CelDuration(nanos)
    raise EvaluationError("duration overflow")


def checked_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return the timestamp; raise an error if it is not in the years 1 to 9999."""
    if _MIN_SECONDS <= nanos // _SECOND <= _MAX_SECONDS:
        return Timestamp(nanos, offset)
    raise EvaluationError("timestamp overflow")


def add_to_timestamp(start: Timestamp, nanos: int) -> Timestamp:
    """Return the timestamp so much later."""
    return checked_timestamp(start.nanos + nanos, start.offset)


def parse_duration(text: str) -> CelDuration:
    """Read a duration such as ``1h30m`` or ``-1.5s``."""
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if digits == "0":
        return CelDuration(0)
    total, position = 0, 0
    while position < len(digits):
        match = _PART.match(digits, position)
        if match is None or not (match[1] or match[2]) or len(text) > _MAX_LENGTH:
            break
        fraction = match[2] or ""
        unit = _UNITS[match[3]]
        # Go computes the fraction in floating point.
        total += int(match[1] or "0") * unit + (int(int(fraction) * (unit / 10.0 ** len(fraction))) if fraction else 0)
        position = match.end()
    if not digits or position < len(digits):
        raise EvaluationError(f"{text[:_MAX_LENGTH]!r} is not a duration")
    return checked_duration(-total if text[0] == "-" else total)


def parse_timestamp(text: str) -> Timestamp:
    """Read a timestamp of RFC 3339, as leniently as Go."""
    match = _RFC3339.fullmatch(text[:_MAX_LENGTH])
    if match is None:
        raise EvaluationError(f"{text[:_MAX_LENGTH]!r} is not a timestamp")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    offset = 0
    if match[9]:
        hours, minutes = int(match[10]), int(match[11])
        if hours > 24 or minutes > 60:
            raise EvaluationError(f"{text!r} has an invalid offset from UTC")
        offset = (hours * 60 + minutes) * (-60 if match[9] == "-" else 60)
    nanos = int((match[7] or "")[:9].ljust(9, "0"))
    try:
        # Go's year 0 is before Python's first one, and out of range anyway.
        elapsed = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError:
        raise EvaluationError(f"{text!r} is not a timestamp") from None
    seconds = elapsed.days * 86400 + elapsed.seconds - offset
    return checked_timestamp(seconds * _SECOND + nanos, offset)


def format_timestamp(value: Timestamp) -> str:
    """Write a timestamp with the offset that it was written with."""
    nanos = f"{value.nanos % _SECOND:09}".rstrip("0")
    hours, minutes = divmod(abs(value.offset) // 60, 60)
    zone = f"{'-' if value.offset < 0 else '+'}{hours:02}:{minutes:02}" if value.offset else "Z"
    date = _at(value, value.offset)
    return f"{date.year:04}-{date:%m-%dT%H:%M:%S}{'.' + nanos if nanos else ''}{zone}"


def _at(value: Timestamp, offset: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=value.nanos // _SECOND + offset)
    except OverflowError:
        raise NotSupportedError("a timestamp that is out of the years 1 to 9999 in its zone is not supported") from None


def _offset(zone: str) -> int:
    """Return the offset of a time zone in seconds; only UTC and offsets are known without a time zone database."""
    if zone in {"", "UTC"}:
        return 0
    hours, colon, minutes = zone.partition(":")
    if not colon:
        raise NotSupportedError(f"time zone {zone!r} is not supported; use UTC or an offset such as -08:00")
    if not re.fullmatch(r"[+-]?[0-9]{1,6}", hours) or not re.fullmatch(r"[+-]?[0-9]{1,6}", minutes):
        raise EvaluationError(f"invalid time zone {zone!r}")
    sign = -1 if zone[0] == "-" else 1
    return (int(hours) * 60 + sign * int(minutes)) * 60


def getter(read: Callable[[datetime], int]) -> Callable[..., int]:
    """Return a function that reads a part of a timestamp, in UTC or in a zone."""
    return lambda value, zone="": read(_at(value, _offset(zone)))


def get_milliseconds(value: Timestamp, zone: str = "") -> int:
    """Return the milliseconds of the second."""
    _offset(zone)
    return value.nanos % _SECOND // 10**6


def whole(unit: int) -> Callable[[CelDuration], int]:
    """Return a function that counts whole units of a duration, rounded toward zero."""

    def count(value: CelDuration) -> int:
        return abs(value.nanos) // unit * (-1 if value.nanos < 0 else 1)

    return count


def to_seconds(value: CelDuration) -> float:
    """Return the duration in seconds, as Go divides it."""
    seconds, rest = divmod(abs(value.nanos), _SECOND)
    return (seconds + rest / 1e9) * (-1 if value.nanos < 0 else 1)


GETTERS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda date: date.year,
    "getMonth": lambda date: date.month - 1,
    "getDayOfYear": lambda date: date.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda date: date.day - 1,
    "getDate": lambda date: date.day,
    "getDayOfWeek": lambda date: date.isoweekday() % 7,
    "getHours": lambda date: date.hour,
    "getMinutes": lambda date: date.minute,
    "getSeconds": lambda date: date.second,
}
"""What the functions read of a timestamp."""

UNITS_OF_GETTERS: Final = {
    "getHours": 3600 * _SECOND,
    "getMinutes": 60 * _SECOND,
    "getSeconds": _SECOND,
    "getMilliseconds": 10**6,
}
"""The units in which the functions count a duration."""
