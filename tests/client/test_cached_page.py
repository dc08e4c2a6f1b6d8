"""Pages that are computed at most once a second."""

from collections.abc import Iterator

from cpg_client.cached_page import SECONDS_KEPT, CachedPage
from cpg_client.probe_server import ProbeResponse


class Counted:
    """A page in parts, with the number of times that it was computed."""

    def __init__(self) -> None:
        """Count from zero."""
        self.now = 0.0
        self.begun = self.done = 0
        self.page = CachedPage(self.route, lambda: self.now)

    def route(self, _: str) -> ProbeResponse:
        """Return the page."""
        self.begun += 1
        return ProbeResponse(b"count ", chunks=self._parts())

    def _parts(self) -> Iterator[bytes]:
        yield b""
        self.done += 1
        yield str(self.done).encode()

    def ask(self) -> bytes:
        """Return the page."""
        found = self.page("")
        return found.body + b"".join(found.chunks)


def test_a_page_is_computed_once_a_second_however_often_it_is_asked_for() -> None:
    """Between, the last one is served."""
    counted = Counted()
    assert [counted.ask() for _ in range(100)] == [b"count 1"] * 100
    counted.now += SECONDS_KEPT
    assert [counted.ask() for _ in range(100)] == [b"count 2"] * 100
    assert (counted.begun, counted.done) == (2, 2)


def test_while_a_page_is_computed_the_last_one_is_served() -> None:
    """Computation is in parts, and other requests come between them."""
    counted = Counted()
    counted.ask()
    counted.now += SECONDS_KEPT
    slow = iter(counted.page("").chunks)
    assert next(slow) == b""
    assert counted.ask() == b"count 1"
    assert b"".join(slow) == b"count 2"


def test_a_request_that_was_overtaken_gets_the_faster_result() -> None:
    """Of several first requests."""
    counted = Counted()
    slow = iter(counted.page("").chunks)
    assert next(slow) == b""
    assert counted.ask() == b"count 1"
    assert b"".join(slow) == b"count 1"
    assert counted.done <= 2


def test_a_page_in_one_piece_is_kept_too() -> None:
    """It keeps its length."""
    computed: list[str] = []

    def route(rest: str) -> ProbeResponse:
        computed.append(rest)
        return ProbeResponse(b"whole")

    page = CachedPage(route, lambda: 0.0)
    assert page("") == page("") == ProbeResponse(b"whole")
    assert computed == [""]


def test_an_abandoned_request_blocks_no_other() -> None:
    """Its reader went away between two parts."""
    counted = Counted()
    abandoned = iter(counted.page("").chunks)
    next(abandoned)
    del abandoned
    assert counted.ask() == b"count 1"
