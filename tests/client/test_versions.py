"""The order of resource versions of one collection."""

from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import Connection
from cpg_client.versions import is_at_least, is_older, present_version

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer


@pytest.mark.parametrize(
    ("version", "other", "older", "at_least"),
    [
        ("9", "10", True, False),
        ("10", "10", False, True),
        ("11", "10", False, True),
        ("", "10", False, False),
        ("10", "", False, False),
        ("", "", False, False),
        ("a", "b", False, False),
        ("a", "a", False, True),
    ],
)
def test_numbers_have_an_order_and_nothing_else_has(version: str, other: str, older: bool, at_least: bool) -> None:  # noqa: FBT001  # parameters
    """What is no number is neither older nor later; equal versions are the same one."""
    assert (is_older(version, other), is_at_least(version, other)) == (older, at_least)


async def test_the_present_version_costs_one_object(server: "FakeServer", connection: Connection) -> None:
    """The read names no version, so it is consistent, and reads no second page."""
    server.answers("GET", "/api/v1/pods", {"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [{}]})
    assert await present_version(connection, "/api/v1/pods", {"labelSelector": "a=b"}) == "7"
    (seen,) = server.seen
    assert seen.query == {"labelSelector": "a=b", "limit": "1"}
