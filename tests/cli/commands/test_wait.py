"""Durations, as kubectl takes them."""

import pytest
from click import BadParameter

from cpg_cli.commands.wait import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5m", 30), ("1h1m1s", 3661)],
)
def test_a_time_is_read(text: str, seconds: float) -> None:
    """A number alone is seconds."""
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "x", "10x", "1..5s", "m", "10 m", "-5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """The message shows some that are."""
    with pytest.raises(BadParameter, match="no time such as 90s"):
        Duration().convert(text, None, None)
