"""What a check has found."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

MAX_NAMES = 5


class CheckLevel(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckFinding(msgspec.Struct, frozen=True):
    """One line of ``doctor``: what was checked, what was found, and what to do."""

    level: CheckLevel
    check: str
    text: str
    next: str = ""


def ok(check: str, text: str) -> CheckFinding:
    """Return a finding that needs nothing."""
    return CheckFinding(CheckLevel.OK, check, text)


def warning(check: str, text: str, todo: str = "") -> CheckFinding:
    """Return a finding that may matter."""
    return CheckFinding(CheckLevel.WARN, check, text, todo)


def failure(check: str, text: str, todo: str) -> CheckFinding:
    """Return a finding that has to be dealt with."""
    return CheckFinding(CheckLevel.FAIL, check, text, todo)


def some(names: Iterable[str]) -> str:
    """Return the first of some names, and how many there are besides."""
    found = sorted(names)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(found[:MAX_NAMES]) + more
