"""The tokens of an expression, and the values of literals."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from cpg_engine.cel.errors import CelError
from cpg_engine.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

KEYWORDS = frozenset({"in", "true", "false", "null"})
"""Words that are no names at all."""
_RESERVED = "as break const continue else for function if import let loop package namespace return var void while"
RESERVED = frozenset(_RESERVED.split(" "))
"""Words that can be names of fields only."""

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_STRING = "|".join(
    (
        r"[rR]\"\"\"[\s\S]*?\"\"\"",
        r"[rR]'''[\s\S]*?'''",
        r"[rR]\"[^\"\n\r]*\"",
        r"[rR]'[^'\n\r]*'",
        rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"",
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf"\"(?:{_ESCAPE}|[^\\\"\n\r])*\"",
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
# A fixed pattern without nested repetition, so it takes linear time on every text.
_TOKEN = re.compile(
    rf"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_./ -]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[][(){{}}.,?:!<>+*/%-])""",
    re.VERBOSE,
)
_PART = re.compile(r"\\([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)|([^\\]+)", re.DOTALL)
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_LAST_CODE_POINT = 0x10FFFF


class Token(NamedTuple):
    """A token: ``kind`` is the operator itself, ``name``, the kind of a literal, or ``end``."""

    kind: str
    text: str
    position: int


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens, and one more of the kind ``end``."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CelError(f"syntax error: unexpected {text[position]!r} at position {position}")
        kind = str(match.lastgroup)
        if kind != "space":
            is_word = kind == "operator" or match[0] in KEYWORDS
            yield Token(match[0] if is_word else kind, match[0], position)
        position = match.end()
    yield Token("end", "end of the expression", position)


def literal_value(kind: str, text: str) -> object:
    """Return the value of a literal token; ``text`` of a number may begin with a minus."""
    match kind:
        case "int":
            return _integer(text, INT_MIN, INT_MAX)
        case "uint":
            return Uint(_integer(text[:-1], 0, UINT_MAX))
        case "double":
            value = float(text)
            if value in {float("inf"), float("-inf")}:
                raise CelError(f"invalid double literal {text}")
            return value
        case "bytes":
            return _unquote(text[1:], is_bytes=True)
        case _:
            return _unquote(text, is_bytes=False).decode()


def _integer(text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    # Python limits the digits of decimal numbers that it converts.
    magnitude = int(digits, 0) if digits.startswith("0x") else int(digits.lstrip("0")[:32] or "0")
    value = -magnitude if text.startswith("-") else magnitude
    if not least <= value <= most:
        raise CelError(f"integer literal {text[:32]} out of range")
    return value


def _unquote(text: str, *, is_bytes: bool) -> bytes:
    """Return the contents in UTF-8; in bytes, escapes of numbers are single bytes."""
    is_raw = text[0] in "rR"
    text = text[1:] if is_raw else text
    quotes = 3 if len(text) >= 6 and text[:3] in {'"""', "'''"} else 1
    text = text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n")
    if is_raw or "\\" not in text:
        return text.encode()
    return b"".join(
        match[2].encode() if match[1] is None else _escape(match[1], is_bytes=is_bytes)
        for match in _PART.finditer(text)
    )


def _escape(sequence: str, *, is_bytes: bool) -> bytes:
    letter = sequence[0]
    if len(sequence) == 1:
        code = _SIMPLE.get(letter, ord(letter))
    elif letter in "01234567":
        code = int(sequence, 8)
    else:
        code = int(sequence[1:], 16)
        if is_bytes and letter in "uU":
            raise CelError(f"\\{sequence} cannot stand in bytes")
    if is_bytes:
        return bytes([code]) if code < 256 else chr(code).encode()
    if code > _LAST_CODE_POINT or 0xD800 <= code <= 0xDFFF:
        raise CelError(f"\\{sequence} is no Unicode character")
    return chr(code).encode()
