"""The annotations of owners, one by one."""

import pytest

from cpg_api.integrations.policy import MIN_COUNT, read_policy


@pytest.mark.parametrize(
    "text", ["0", "", "-1", "+1", "1.5", "\u0663", "2147483648", "00000000019999999999", "0" * 5000 + "1" * 5000]
)
def test_a_count_of_any_length_is_a_number_or_a_problem(text: str) -> None:
    """Python refuses to read thousands of digits."""
    policy = read_policy({MIN_COUNT: text})
    assert policy.min_count is None
    assert policy.problems


def test_leading_zeros_do_not_matter() -> None:
    """However many there are."""
    assert read_policy({MIN_COUNT: "0" * 5000 + "7"}).min_count == 7
