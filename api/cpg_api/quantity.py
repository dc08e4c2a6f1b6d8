"""Exact resource quantities: ``100m``, ``1.5Gi``, ``2e3``.

The grammar is the documented one of k8s.io/apimachinery. All arithmetic is on integers. The exact value of a quantity
is a whole number of nanos, because Kubernetes keeps nothing finer. Finer values are rounded up, away from zero, so that
a small request never becomes zero.

Beyond int64 Kubernetes contradicts itself. Its documentation caps every quantity at 2^63-1 in magnitude. Its code does
so for binary suffixes only: ``Value()`` of ``10E`` is 0, and ``MilliValue()`` of ``9Ei`` is -1000. Here the documented
cap holds for every spelling and scale, so a request too large to count never looks like a small one. All results below
fit int64, except the nanos. Sums may exceed it again: ``clamp`` brings them back.

Three more differences are deliberate. Negative values are always rounded away from zero; Kubernetes rounds either way,
depending on the digits. A number needs a digit; Kubernetes reads ``.``, ``-`` and ``m`` as zero. A quantity has at most
255 characters, which bounds the time to read it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from cpg_api.problems import quote

Quantity = str | int | float
"""A quantity on the wire. JSON and YAML write plain numbers, too."""

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
NANO = 10**9
MILLI = 10**3

_MAX_NANOS = INT64_MAX * NANO
_MAX_LENGTH = 255
_CACHE_SIZE = 2**16

_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_GRAMMAR = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+|)")
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")

_SPELLINGS = tuple(
    (suffix, unit)
    for power in range(6, 0, -1)
    for suffix, unit in (("KMGTPE"[power - 1] + "i", 1024**power), ("kMGTPE"[power - 1], 1000**power))
)
_MALFORMED = (
    "is not a quantity: write a number and, if need be, one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, "
    "or an exponent such as e3"
)
_NEGATIVE = "is negative, but only zero or more makes sense here"


class QuantityError(ValueError):
    """A text that is not a quantity, or not one that is valid in its place."""

    def __init__(self, text: str, complaint: str) -> None:
        super().__init__(text, complaint)
        self.text = text
        self.complaint = complaint

    def __str__(self) -> str:
        return f"{quote(self.text)} {self.complaint}"


def nano_value(quantity: Quantity) -> int:
    """Return the exact value in nanos. Results are cached, since most texts repeat."""
    return _parse(quantity)


def value(quantity: Quantity) -> int:
    """Return the value in whole units, rounded up."""
    return _divide_up(_parse(quantity), NANO)


def milli_value(quantity: Quantity) -> int:
    """Return the value in thousandths, rounded up: the unit of CPU."""
    return clamp(_divide_up(_parse(quantity), NANO // MILLI))


def require_not_negative(quantity: Quantity) -> Quantity:
    """Return the quantity unchanged; raise ``QuantityError`` where it is below zero."""
    if _parse(quantity) < 0:
        # Python refuses to format integers of many thousand digits, and no message needs them.
        raise QuantityError(str(clamp(quantity) if isinstance(quantity, int) else quantity), _NEGATIVE)
    return quantity


def amount(resource: str, quantity: Quantity) -> int:
    """Return the quantity in the unit in which the resource is counted: thousandths of CPU, else whole units."""
    return milli_value(quantity) if resource == "cpu" else value(quantity)


def format_quantity(resource: str, number: int) -> str:
    """Format an ``amount`` exactly, in the shortest spelling that is usual for the resource."""
    if resource == "cpu":
        cores, rest = divmod(number, MILLI)
        return f"{number}m" if rest else str(cores)
    if resource in {"memory", "storage", "ephemeral-storage"} or resource.startswith("hugepages-"):
        return ("-" if number < 0 else "") + min(_spellings(abs(number)), key=len)
    return str(number)


def clamp(number: int) -> int:
    """Return the number, or the nearest bound that Kubernetes sets: 2^63-1 in magnitude."""
    return max(-INT64_MAX, min(INT64_MAX, number))


def parse_int64(text: str) -> int | None:
    """Read an integer as Go's ``ParseInt(text, 10, 64)`` does; return None for everything that it refuses.

    Python's ``int`` accepts blanks, underscores, digits of other scripts and any size.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + match[2])
    return number if INT64_MIN <= number <= INT64_MAX else None


@lru_cache(maxsize=_CACHE_SIZE, typed=True)
def _parse(quantity: Quantity) -> int:
    """Return the exact value in nanos. The cache distinguishes types, so that True is not taken for 1."""
    if type(quantity) is int:
        return max(-_MAX_NANOS, min(_MAX_NANOS, quantity * NANO))
    # The shortest text that reads back as the same float is what the JSON or YAML had.
    text = quantity if isinstance(quantity, str) else repr(quantity)
    match = _GRAMMAR.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or not (match[2] or match[3]):
        raise QuantityError(text, _MALFORMED)
    sign, whole, fraction, suffix = match.groups()
    nanos = _magnitude(int(whole + fraction), len(fraction), suffix)
    return -nanos if sign == "-" else nanos


def _magnitude(digits: int, places: int, suffix: str) -> int:
    """Return ``digits / 10**places`` times the suffix in nanos, rounded up and capped.

    The power of ten is bounded where the result is certain (the cap, or one nano), so that ``1e999999999`` is cheap.
    """
    if not digits:
        return 0
    if suffix in _BINARY:
        digits *= _BINARY[suffix]
        exponent = 0
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    shift = exponent - places + 9
    power: int = 10 ** min(abs(shift), _MAX_LENGTH + 20)
    return min(digits * power if shift >= 0 else _divide_up(digits, power), _MAX_NANOS)


def _divide_up(number: int, divisor: int) -> int:
    """Divide, rounding away from zero."""
    return number // divisor if number < 0 else -(-number // divisor)


def _spellings(number: int) -> Iterator[str]:
    """Yield every spelling of a number of bytes that is exact with two decimals."""
    yield str(number)
    for suffix, unit in _SPELLINGS:
        hundredths, rest = divmod(number * 100, unit)
        if not rest and hundredths >= 100:
            yield f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".") + suffix
