"""Functions on strings. Regular expressions are RE2's, whose time is linear in the text."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import re2

from cpg_engine.cel.errors import EvaluationError, NotSupportedError
from cpg_engine.cel.values import Meter, no_overload

_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""White space as Go has it; Python's includes a few control characters."""
_UPPER: Final = {letter: letter - 32 for letter in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {upper: lower for lower, upper in _UPPER.items()}
_ESCAPES: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


class Match(Protocol):
    """A match of a pattern."""

    def group(self) -> str:
        """Return the text."""

    def start(self) -> int:
        """Return where it starts."""

    def end(self) -> int:
        """Return where it ends."""


_MAX_MEMORY: Final = 2**20
"""What a compiled pattern may take in bytes; it takes milliseconds to compile then."""
_MAX_CACHED: Final = 256
_INSTRUCTIONS_PER_STEP: Final = 40
_STEPS_PER_MATCH: Final = 24
_CHARACTERS_PER_STEP: Final = 200
_CHARACTERS_PER_COPYING_STEP: Final = 8


def _checked(index: int, most: int) -> int:
    if 0 <= index <= most:
        return index
    raise EvaluationError(f"index out of range: {index}")


def char_at(text: str, index: int) -> str:
    """Return a character; the empty string at the end."""
    return text[_checked(index, len(text)) :][:1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """Return where the part first occurs from ``start`` on, or -1."""
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start) if part else min(start, len(text))


def last_index_of(meter: Meter, text: str, part: str, start: int | None = None) -> int:
    """Return where the part last occurs, beginning at ``start`` or before, or -1."""
    # Python searches backwards in quadratic time.
    meter.spend(1 + len(text) * len(part) // _CHARACTERS_PER_STEP)
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def lower_ascii(text: str) -> str:
    """Return the text with the letters A to Z in lower case."""
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    """Return the text with the letters a to z in upper case."""
    return text.translate(_UPPER)


def replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    """Replace the first occurrences, or all if ``count`` is negative."""
    found = text.count(old)
    _spend_on(meter, len(text) + len(new) * (found if count < 0 else min(found, count)))
    return text.replace(old, new, max(count, -1))


def _spend_on(meter: Meter, size: int) -> None:
    """Take off what a text of the size costs, before it is made."""
    meter.spend(1 + size // _CHARACTERS_PER_COPYING_STEP)


def split(text: str, separator: str, count: int = -1) -> list[object]:
    """Split into at most ``count`` parts, or all if it is negative."""
    if not count:
        return []
    if separator:
        return list(text.split(separator, max(count, 0) - 1))
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return a part of the text."""
    last = len(text) if end is None else _checked(end, len(text))
    if end is not None and start > end:
        raise EvaluationError(f"invalid range of a substring: {start} to {end}")
    return text[_checked(start, len(text)) : last]


def trim(text: str) -> str:
    """Remove white space at both ends."""
    return text.strip(_SPACES)


def quote(text: str) -> str:
    """Return the text in double quotes, with escapes."""
    return f'"{text.translate(_ESCAPES)}"'


def join(meter: Meter, parts: list[object], separator: str = "") -> str:
    """Join strings."""
    found = [part for part in parts if isinstance(part, str)]
    if len(found) < len(parts):
        raise EvaluationError("join: an element is not a string")
    _spend_on(meter, sum(map(len, found)) + (8 + len(separator)) * len(found))
    return separator.join(found)


class Pattern(NamedTuple):
    """A compiled pattern, and the number of its instructions."""

    search: Callable[[str, int], Match | None]
    """Finds the first match from a position on."""
    size: int


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0].decode()
        kind = NotSupportedError if "too large" in text else EvaluationError
        raise kind(f"regular expression {pattern[:64]!r}: {text}") from None
    return Pattern(compiled.search, compiled.programsize)


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern; raise an error if it is malformed."""
    return _compile(pattern) if len(pattern) <= _MAX_CACHED else _compile.__wrapped__(pattern)


def _prepare(meter: Meter, text: str, pattern: str) -> Pattern:
    """Return the pattern after its cost for the text is taken off."""
    compiled = compile_pattern(pattern)
    meter.spend(1 + len(text) * compiled.size // _INSTRUCTIONS_PER_STEP)
    return compiled


def matches(meter: Meter, text: object, pattern: object) -> bool:
    """Say whether the pattern matches a part of the text."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise no_overload("matches", text, pattern)
    return _prepare(meter, text, pattern).search(text, 0) is not None


def find(meter: Meter, text: str, pattern: str) -> str:
    """Return the first match, or the empty string."""
    match = _prepare(meter, text, pattern).search(text, 0)
    return match.group() if match else ""


def find_all(meter: Meter, text: str, pattern: str, count: int = -1) -> list[object]:
    """Return the first matches, or all if ``count`` is negative; an empty one that abuts another does not count."""
    search = _prepare(meter, text, pattern).search
    found: list[object] = []
    position, end_of_last = 0, -1
    while len(found) != count and position <= len(text) and (match := search(text, position)):
        meter.spend(_STEPS_PER_MATCH + len(text) // _CHARACTERS_PER_STEP)
        if match.end() > match.start() or match.start() != end_of_last:
            found.append(match.group())
        end_of_last = match.end()
        position = match.end() + (match.start() == match.end())
    return found
