"""The time of day of the API server, from the ``Date`` headers of its answers."""

import datetime as dt

import pytest
from tests.client.conftest import FakeServer

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.server_clock import MAX_SECONDS_LATE, ServerClock
from cpg_client.timing import Timing

NOON = 1_800_014_400.0
"""2027-01-15T12:00:00Z."""


class Clocks:
    """A server whose clock differs from the local one by hours."""

    def __init__(self) -> None:
        """Start both."""
        self.now, self.wall = 50.0, NOON + 7200.0
        self.server = ServerClock(clock=lambda: self.now, wall=lambda: self.wall)

    def answer(self, seconds: float) -> None:
        """Receive an answer with a date."""
        date = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        self.server.observe(date.encode())


def test_the_local_clock_counts_before_the_first_answer_only() -> None:
    """From then on a monotonic clock does, and jumps of the local clock change nothing."""
    clocks = Clocks()
    assert clocks.server() == NOON + 7200.0
    clocks.answer(NOON)
    assert clocks.server() == NOON
    clocks.wall += 86400.0
    clocks.now += 2.5
    assert clocks.server() == NOON + 2.5


def test_the_latest_of_several_dates_is_the_best() -> None:
    """A date is cut to whole seconds, and answers may be late."""
    clocks = Clocks()
    clocks.answer(NOON)
    clocks.now += 0.2
    clocks.answer(NOON + 1)
    assert clocks.server() == NOON + 1
    clocks.now += 3.0
    clocks.answer(NOON + 2)
    assert clocks.server() == NOON + 4


@pytest.mark.parametrize("change", [3600.0, -MAX_SECONDS_LATE - 2], ids=["ahead", "back"])
def test_a_clock_of_the_server_that_is_set_is_followed(change: float) -> None:
    """Timestamps of new objects follow it too."""
    clocks = Clocks()
    clocks.answer(NOON)
    clocks.answer(NOON + change)
    assert clocks.server() == NOON + change


@pytest.mark.parametrize("date", [None, b"", b"soon", b"\xff", b"Fri, 31 Dec 9999 23:59:59 GMT", b"0" * 5000])
def test_what_is_no_date_is_ignored(date: bytes | None) -> None:
    """Proxies may send anything, and nothing may come from it that no timestamp can hold."""
    clocks = Clocks()
    clocks.answer(NOON)
    clocks.server.observe(date)
    assert clocks.server() == NOON


async def test_a_connection_has_the_time_of_its_server(server: FakeServer) -> None:
    """Whatever is written through it has timestamps that can be compared with those of objects."""
    server.answers("GET", "/x", {}, headers={"Date": "Fri, 15 Jan 2027 12:00:00 GMT"})
    async with Connection(Endpoint(server=server.url), timing=Timing(wall=lambda: 0.0)) as connection:
        assert connection.timing.whole_seconds() == "1970-01-01T00:00:00Z"
        await connection.get("/x")
        assert connection.timing.whole_seconds() == "2027-01-15T12:00:00Z"
