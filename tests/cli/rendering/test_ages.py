"""Ages as kubectl shows them."""

import pytest

from cpg_cli.rendering.ages import short_age

THEN = "2026-11-20T05:00:00Z"
SECONDS = 1795150800.0


@pytest.mark.parametrize(
    ("age", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (119, "1m59s"), (3600, "1h"), (3605, "1h"), (90061, "1d1h")],
)
def test_an_age(age: int, text: str) -> None:
    """The two largest units, and never a negative age: clocks differ."""
    assert short_age(THEN, SECONDS + age) == text


def test_no_timestamp() -> None:
    """An object that does not exist has no age."""
    assert short_age(None, SECONDS) == ""
