"""Semantic versions, read and compared as the library of Kubernetes does it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cpg_engine.cel.errors import EvaluationError

_DIGITS: Final = frozenset("0123456789")
_IDENTIFIER: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-")
_MOST: Final = 2**64 - 1
_MAX_CACHED: Final = 256
_SHOWN: Final = 64
"""Characters of a text in a message."""


@dataclass(frozen=True, slots=True)
class Semver:
    """A version; build metadata has to be well-formed and counts for nothing."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[tuple[int, int, str], ...] = ()
    """Each identifier as (0, number, "") or (1, 0, text), so that tuples compare as the specification says."""

    @property
    def key(self) -> tuple[object, ...]:
        """What versions are compared by: a release comes after its prereleases."""
        return self.major, self.minor, self.patch, not self.prerelease, self.prerelease

    def compare(self, other: "Semver") -> int:
        """Return -1, 0 or 1."""
        return (self.key > other.key) - (self.key < other.key)


def parse_semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 - called with CEL's operands
    """Read a version; ``normalize`` allows a leading v, leading zeros, and fewer than three numbers."""
    return (_parse if len(text) <= _MAX_CACHED else _parse.__wrapped__)(text, normalize)


@lru_cache(maxsize=4096)
def _parse(text: str, normalize: bool) -> Semver:  # noqa: FBT001 - as above
    parts = (_normalized(text) if normalize else text).split(".", 2)
    if len(parts) != 3:
        raise EvaluationError(f"{text[:_SHOWN]!r} has no major, minor and patch version")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    if plus and not all(map(_is_identifier, build.split("."))):
        raise EvaluationError(f"invalid build metadata in version {text[:_SHOWN]!r}")
    identifiers = tuple(_prerelease(one, text) for one in prerelease.split(".")) if dash else ()
    return Semver(_number(parts[0], text), _number(parts[1], text), _number(patch, text), identifiers)


def is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - called with CEL's operands
    """Say whether the text is a version."""
    try:
        parse_semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and not {"+", "-"}.isdisjoint(parts[-1]):
        raise EvaluationError(f"short version {text[:_SHOWN]!r} cannot have prerelease or build metadata")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    stripped = part.lstrip("0")
    if len(part) < 2 or stripped[:1] in _DIGITS:
        return stripped if len(part) > 1 else part
    return "0" + stripped


def _number(text: str, version: str) -> int:
    is_valid = text and _DIGITS.issuperset(text) and (len(text) == 1 or text[0] != "0") and len(text) <= 20
    if not is_valid or int(text) > _MOST:
        raise EvaluationError(f"invalid number {text[:_SHOWN]!r} in version {version[:_SHOWN]!r}")
    return int(text)


def _prerelease(text: str, version: str) -> tuple[int, int, str]:
    if text and _DIGITS.issuperset(text):
        return 0, _number(text, version), ""
    if not _is_identifier(text):
        raise EvaluationError(f"invalid prerelease in version {version[:_SHOWN]!r}")
    return 1, 0, text


def _is_identifier(text: str) -> bool:
    return bool(text) and _IDENTIFIER.issuperset(text)
