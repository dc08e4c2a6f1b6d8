"""Conversions between types, with the formats of Go."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from cpg_api.quantity import parse_int64
from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.functions.operators import checked_int, checked_uint
from cpg_engine.cel.functions.times import (
    checked_timestamp,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    to_seconds,
)
from cpg_engine.cel.values import UINT_MAX, CelDuration, TypeValue, Uint, type_name

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity)|[+-]?nan", re.IGNORECASE
)
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_BOUND: Final = 2.0**63


def _fail(value: object, target: str) -> EvaluationError:
    return EvaluationError(f"{type_name(value)} cannot be converted to {target}: {str(value)[:64]!r}")


def to_bool(text: str) -> bool:
    """Read a bool."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _fail(text, "bool")


def int_of_text(text: str) -> int:
    """Read an integer."""
    value = parse_int64(text)
    if value is None:
        raise _fail(text, "int")
    return value


def uint_of_text(text: str) -> Uint:
    """Read an unsigned integer."""
    digits = text.lstrip("0") or "0"
    if not text or not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or int(digits) > UINT_MAX:
        raise _fail(text, "uint")
    return Uint(digits)


def int_of_double(value: float) -> int:
    """Cut off the fraction."""
    if not -_BOUND < value < _BOUND:
        raise _fail(value, "int")
    return int(value)


def uint_of_double(value: float) -> Uint:
    """Cut off the fraction."""
    if not 0 <= value < 2 * _BOUND:
        raise _fail(value, "uint")
    return Uint(value)


def double_of_text(text: str) -> float:
    """Read a double."""
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            raise _fail(text, "double") from None
    if not _DOUBLE.fullmatch(text):
        raise _fail(text, "double")
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise _fail(text, "double")
    return value


def text_of_double(value: float) -> str:
    """Write a double as Go's %g does: with an exponent from a million on, or below 0.0001."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - finite
    point = len(digits) + exponent - 1
    if not value or -4 <= point < 6:
        return ("-" if sign else "") + _plain(abs(value))
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if point < 0 else '+'}{abs(point):02}"


def _plain(value: float) -> str:
    """Write a double without an exponent, with as few digits as needed."""
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_of_duration(value: CelDuration) -> str:
    """Write a duration in seconds."""
    seconds = to_seconds(value)
    return ("-" if seconds < 0 else "") + _plain(abs(seconds)) + "s"


def text_of_bytes(value: bytes) -> str:
    """Read bytes as UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("the bytes are not UTF-8") from None


def type_of(value: object) -> TypeValue:
    """Return the type of a value."""
    return TypeValue(type_name(value))


def identity(value: object) -> object:
    """Return the value."""
    return value


CONVERSIONS: Final[tuple[tuple[str, str, Callable[..., object]], ...]] = (
    ("bool", "bool -> bool", identity),
    ("bool", "string -> bool", to_bool),
    ("bytes", "bytes -> bytes", identity),
    ("bytes", "string -> bytes", str.encode),
    ("double", "double -> double", identity),
    ("double", "int -> double", float),
    ("double", "string -> double", double_of_text),
    ("double", "uint -> double", float),
    ("duration", "duration -> duration", identity),
    ("duration", "string -> duration", parse_duration),
    ("int", "int -> int", identity),
    ("int", "double -> int", int_of_double),
    ("int", "duration -> int", lambda value: value.nanos),
    ("int", "string -> int", int_of_text),
    ("int", "timestamp -> int", lambda value: value.nanos // 10**9),
    ("int", "uint -> int", lambda value: checked_int(int(value))),
    ("string", "string -> string", identity),
    ("string", "bool -> string", lambda value: "true" if value else "false"),
    ("string", "bytes -> string", text_of_bytes),
    ("string", "double -> string", text_of_double),
    ("string", "duration -> string", text_of_duration),
    ("string", "int -> string", str),
    ("string", "timestamp -> string", format_timestamp),
    ("string", "uint -> string", str),
    ("timestamp", "timestamp -> timestamp", identity),
    ("timestamp", "int -> timestamp", lambda value: checked_timestamp(value * 10**9)),
    ("timestamp", "string -> timestamp", parse_timestamp),
    ("uint", "uint -> uint", identity),
    ("uint", "double -> uint", uint_of_double),
    ("uint", "int -> uint", checked_uint),
    ("uint", "string -> uint", uint_of_text),
)
"""Function, signature, implementation."""
