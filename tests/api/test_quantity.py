"""Quantities: exact, rounded up, within int64, and QuantityError as the only error."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cpg_api.quantity import (
    INT64_MAX,
    INT64_MIN,
    MILLI,
    NANO,
    Quantity,
    QuantityError,
    amount,
    clamp,
    format_quantity,
    milli_value,
    nano_value,
    parse_int64,
    require_not_negative,
    value,
)

UNITS: dict[str, Fraction] = {
    suffix: Fraction(unit)
    for suffix, unit in (
        *(("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12), ("P", 10**15), ("E", 10**18)),
        *(("m", Fraction(1, 10**3)), ("u", Fraction(1, 10**6)), ("n", Fraction(1, 10**9))),
        *(("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50), ("Ei", 1 << 60)),
    )
}

# How k8s.io/apimachinery v0.37 reads these texts: text=exact value.
PARSED = """
    0=0 0n=0 0Ki=0 0m=0 0T=0 1=1 9=9 007=7 100m=0.1 2e3=2000 1.5Gi=1610612736
    1Ki=1024 8Ki=8192 7Mi=7340032 6Gi=6442450944 5Ti=5497558138880 4Pi=4503599627370496
    3Ei=3458764513820540928 100Ti=109951162777600 9223372036854775807=9223372036854775807
    5n=5e-9 4u=4e-6 3m=3e-3 8k=8e3 50k=5e4 7M=7e6 6G=6e9 5T=5e12 2P=2e15 1E=1e18
    1E-3=1e-3 1e3=1e3 1E6=1e6 1E18=1e18 1e14=1e14 1.2e3=1200 1.3E+6=1300000 1.53E12=1.53e12 1.7E18=1.7e18
    100.035k=100035 0.001=1e-3 0.0005k=0.5 0.00050k=0.5 0.50000=0.5 0.5e0=0.5 0.5e-2=0.005 10.035M=10035000
    7.123456M=7123456 6.987654321G=6987654321 1.01E=1.01e18
    3.001n=4e-9 1.1E-9=2e-9 0.0000000001=1e-9 0.5e-9=1e-9 0.9n=1e-9 0.00000012345=124e-9 0.00000012354=124e-9
    100.035Ki=102435.84 0.5Mi=524288 0.05Gi=53687091.2 0.025Ti=27487790694.4 0.000000000001Ki=2e-9 1e-30=1e-9
    .001=1e-3 .0001k=0.1 1.=1 1.G=1e9 .5=0.5 5.=5
"""
REFUSED = """
    1.1.M 1+1.0M 0.1mi 0.1am aoeu .5i 1i -3.01i -3.01e- 1e +-1 --1 1K 1g 1kk 1Ki3 1e3k 1e1.5 1_000
    0x10 1e0x1 \u0661 \xb9 1,5 inf nan . - + m Ki e3 -. +.Gi
"""

digits = st.text("0123456789", max_size=24)


@st.composite
def draw_quantity(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Draw a well-formed quantity and its value, computed independently of the code."""
    whole, places = draw(digits), draw(digits)
    if not whole + places:
        whole = "0"
    exponent = draw(st.integers(-45, 45))
    suffix, unit = draw(
        st.sampled_from(sorted(UNITS.items()))
        | st.sampled_from([(f"{mark}{exponent}", Fraction(10) ** exponent) for mark in "eE"])
    )
    point = draw(st.sampled_from(["", "."])) if not places else "."
    sign = draw(st.sampled_from(["", "+", "-"]))
    worth = Fraction(Decimal(f"{whole or 0}.{places or 0}")) * unit
    return f"{sign}{whole}{point}{places}{suffix}", -worth if sign == "-" else worth


def rounded_up(exact: Fraction, scale: int) -> int:
    """Round away from zero to a multiple of ``1/scale``, and cap at int64, slowly."""
    scaled = abs(exact) * scale
    whole = scaled.numerator // scaled.denominator + (scaled.denominator > 1)
    return whole if exact >= 0 else -whole


def capped(number: int, bound: int = INT64_MAX) -> int:
    """Return the number within the bounds, by sorting."""
    return sorted((-bound, number, bound))[1]


@pytest.mark.parametrize(("text", "exact"), [pair.split("=") for pair in PARSED.split()])
def test_values_equal_those_of_kubernetes(text: str, exact: str) -> None:
    """A plus sign changes nothing, a minus sign negates the value."""
    nanos = int(Decimal(exact) * NANO)
    assert nano_value(text) == nanos
    assert nano_value(f"+{text}") == nanos
    assert nano_value(f"-{text}") == -nanos


@pytest.mark.parametrize("text", [*REFUSED.split(), "", " ", " 1", "1 ", "1\n"])
def test_malformed_quantities_are_refused(text: str) -> None:
    """The error has the text and quotes it."""
    with pytest.raises(QuantityError, match="is not a quantity: write a number") as caught:
        nano_value(text)
    assert caught.value.text == text
    assert str(caught.value).startswith(repr(text))


def test_overlong_texts_are_refused_at_once() -> None:
    """A text of more than 255 characters is not parsed, and is shortened in the message."""
    assert value("0" * 254 + "1") == 1
    with pytest.raises(QuantityError) as caught:
        value("1" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("1n", 1, 1),
        ("1m", 1, 1),
        ("1.0001", 2, 1001),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("0.3Ki", 308, 307200),
        ("-1.5", -2, -1500),
        ("-1n", -1, -1),
        ("0", 0, 0),
    ],
)
def test_values_are_rounded_up(text: str, whole: int, milli: int) -> None:
    """Whole units and thousandths are rounded away from zero, so that a small request never becomes zero."""
    assert value(text) == whole
    assert milli_value(text) == milli


@pytest.mark.parametrize("text", ["8Ei", "9Ei", "9223372036854775807Ki", "12E", "1e19", "1e999999999999999999999999"])
def test_values_are_capped_at_int64(text: str) -> None:
    """At every scale and with every suffix."""
    assert (value(text), milli_value(text)) == (INT64_MAX, INT64_MAX)
    assert (value(f"-{text}"), milli_value(f"-{text}")) == (-INT64_MAX, -INT64_MAX)
    assert nano_value(text) == INT64_MAX * NANO


def test_thousandths_are_capped_before_whole_units() -> None:
    """A quantity may fit int64 in whole units and be capped in thousandths."""
    assert value("1E") == 10**18
    assert milli_value("1E") == INT64_MAX


def test_tiny_exponents_are_cheap() -> None:
    """Values far below a nano are rounded up to one, and zero stays zero at any exponent."""
    assert nano_value("1e-999999999999") == 1
    assert nano_value("0e-999999999999") == 0
    assert nano_value("0e999999999999") == 0


@pytest.mark.parametrize(
    ("number", "text"), [(2, "2"), (-3, "-3"), (0.1, "100m"), (1e22, "10000E"), (1.5e-7, "150n"), (-0.0, "0")]
)
def test_plain_numbers_have_their_decimal_value(number: float, text: str) -> None:
    """A number of JSON or YAML has the value of its text, not of the nearest binary fraction."""
    assert nano_value(number) == nano_value(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), True])
def test_infinities_nan_and_booleans_are_refused(number: float) -> None:
    """Also after the equal number 1 is in the cache."""
    assert nano_value(1) == NANO
    with pytest.raises(QuantityError):
        nano_value(number)


def test_huge_integers_are_capped() -> None:
    """An integer with more digits than Python prints is capped, and refused where it is negative."""
    huge: int = 10**5000
    assert value(huge) == INT64_MAX
    with pytest.raises(QuantityError, match="'-9223372036854775807' is negative"):
        require_not_negative(-huge)


@settings(max_examples=250)
@given(draw_quantity())
@example(("9223372036854775807.5", Fraction(2**64 - 1, 2)))
@example(("-0.001307218e0", Fraction(-1307218, 10**9)))
def test_every_well_formed_text_agrees_with_fractions(drawn: tuple[str, Fraction]) -> None:
    """Value, rounding and cap are those of exact fractions."""
    text, exact = drawn
    nanos = capped(rounded_up(exact, NANO), INT64_MAX * NANO)
    assert nano_value(text) == nanos
    assert value(text) == rounded_up(Fraction(nanos, NANO), 1)
    assert milli_value(text) == capped(rounded_up(Fraction(nanos, NANO), MILLI))


@given(draw_quantity(), draw_quantity())
def test_order_is_preserved(one: tuple[str, Fraction], other: tuple[str, Fraction]) -> None:
    """Neither parsing nor rounding puts the larger quantity before the smaller one."""
    (small, _), (large, _) = sorted((one, other), key=lambda drawn: drawn[1])
    assert nano_value(small) <= nano_value(large)
    assert value(small) <= value(large)
    assert milli_value(small) <= milli_value(large)


@given(st.integers(-INT64_MAX, INT64_MAX))
def test_integers_keep_their_value(number: int) -> None:
    """An integer within int64 is its own value, as a number and as a text."""
    assert value(number) == value(str(number)) == number


@settings(max_examples=250)
@given(
    st.text(max_size=400)
    | st.text("0123456789.+-eEinumkKMGTP ", max_size=12)
    | st.integers()
    | st.floats()
    | st.booleans()
)
def test_any_input_gives_int64_or_quantity_error(absurd: Quantity) -> None:
    """No other error occurs."""
    with suppress(QuantityError):
        assert -INT64_MAX <= value(absurd) <= INT64_MAX
        assert -INT64_MAX <= milli_value(absurd) <= INT64_MAX
        assert require_not_negative(absurd) is absurd


def test_negative_quantities_are_refused() -> None:
    """All others, including zero with a minus sign, are returned unchanged."""
    assert require_not_negative("100m") == "100m"
    assert require_not_negative(2) == 2
    assert require_not_negative("-0") == "-0"
    for negative in ("-1n", "-1Gi", -0.5):
        with pytest.raises(QuantityError, match=f"'{negative}' is negative, but only zero or more makes sense here"):
            require_not_negative(negative)


def test_amounts_count_cpu_in_thousandths() -> None:
    """All other resources count in whole units; both are rounded up."""
    assert amount("cpu", "1500m") == 1500
    assert amount("memory", "1.5Gi") == 1610612736
    assert amount("nvidia.com/gpu", "1.1") == 2


@pytest.mark.parametrize(
    ("resource", "number", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("cpu", -1500, "-1500m"),
        ("memory", 1610612736, "1.5Gi"),
        ("memory", 2**40, "1Ti"),
        ("memory", 16433932 * 1024, "16433932Ki"),
        ("memory", 500_000_000, "500M"),
        ("memory", 1000, "1k"),
        ("memory", 1001, "1001"),
        ("memory", 0, "0"),
        ("memory", -(2**30), "-1Gi"),
        ("ephemeral-storage", 100 * 2**30, "100Gi"),
        ("storage", 10 * 2**20, "10Mi"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi"),
        ("pods", 1000, "1000"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_are_formatted_as_is_usual(resource: str, number: int, text: str) -> None:
    """Bytes get the shortest exact unit, CPU its thousandths, and counts stay plain."""
    assert format_quantity(resource, number) == text


@given(
    st.sampled_from(["cpu", "memory", "pods"]),
    st.integers(-INT64_MAX, INT64_MAX)
    | st.builds(lambda units, power: units * 2**power, st.integers(-2000, 2000), st.integers(0, 50)),
)
def test_formatted_amounts_are_exact(resource: str, number: int) -> None:
    """Parsed again they are the same amount, and they are never longer than the number."""
    text = format_quantity(resource, number)
    assert amount(resource, text) == number
    assert len(text) <= len(str(number)) + (resource == "cpu")


@given(st.integers())
def test_clamp_returns_the_nearest_number_in_range(number: int) -> None:
    """Numbers within the bounds are unchanged."""
    assert clamp(number) == capped(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("-0", 0),
        ("9223372036854775807", INT64_MAX),
        ("-9223372036854775808", INT64_MIN),
        ("0" * 10_000 + "1", 1),
        *((text, None) for text in ("9223372036854775808", "-9223372036854775809", "1" * 10_000)),
        *((text, None) for text in ("", "+", "-", " 1", "1 ", "1_0", "1.0", "1e3", "0x1", "\u0661", "\xb2")),
    ],
)
def test_integers_are_parsed_as_in_go(text: str, number: int | None) -> None:
    """A text is an int64 only if Go's ParseInt accepts it."""
    assert parse_int64(text) == number


@given(st.integers(-(2**65), 2**65))
def test_every_int64_is_parsed_from_its_text(number: int) -> None:
    """Every larger integer is refused."""
    assert parse_int64(str(number)) == (number if INT64_MIN <= number <= INT64_MAX else None)
