"""What a watch makes of whatever a server sends."""

import asyncio
import itertools
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError, UnreadableAnswerError
from cpg_client.timing import Timing
from cpg_client.watching import LineSplitter, WatchEvent, WatchHooks, WatchSettings, read_event, watch

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, Naps

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}


def line(kind: str, version: int, **content: object) -> bytes:
    """Build a line of a watch."""
    made = {"metadata": {"resourceVersion": str(version)}, **content}
    return msgspec.json.encode({"type": kind, "object": made}) + b"\n"


def error_line(**status: object) -> bytes:
    """Build the line of an ERROR event."""
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


@dataclass
class Told:
    """Takes note of what the hooks are told."""

    on_accepted: int = 0
    failures: list[tuple[ClientError, float]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def hooks(self) -> WatchHooks:
        """Give the hooks to hand in."""
        return WatchHooks(on_accepted=self.accept, on_failed=lambda *failure: self.failures.append(failure))

    def accept(self) -> None:
        """Count a stream that the server accepted."""
        self.on_accepted += 1
        self.begun.set()


async def take(connection: Connection, count: int, told: Told | None = None, **more: object) -> list[WatchEvent]:
    """Watch /x from version 1 until so many events have come."""
    found: list[WatchEvent] = []
    hooks = (told or Told()).hooks
    async with aclosing(watch(connection, "/x", "1", hooks=hooks, **more)) as events:  # type: ignore[arg-type]
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


@given(st.lists(st.binary(max_size=20).map(lambda one: one.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_put_together_from_any_pieces(lines: list[bytes], data: st.DataObject) -> None:
    """Wherever the bytes are cut, the lines come out whole, in order, without empty ones; a rest stays."""
    whole = b"".join(one + b"\n" for one in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    edges = [0, *cuts, len(whole)]
    reader = LineSplitter()
    pieces = [whole[start:end] for start, end in itertools.pairwise(edges)]
    assert [one for piece in pieces for one in reader.feed(piece)] == [one for one in lines if one]
    assert reader.feed(b"\n") == [b"rest"]


def test_a_line_without_end_is_given_up() -> None:
    """What is no watch must not fill the memory."""
    reader = LineSplitter(longest=10)
    assert reader.feed(b"1234567890") == []
    with pytest.raises(UnreadableAnswerError, match="longer than 10 bytes"):
        reader.feed(b"1")


def test_an_event_keeps_its_object_as_bytes() -> None:
    """Only type and version are read, and the object is handed on as it was sent."""
    event = read_event(b'{"type":"ADDED","object":{"metadata": {"resourceVersion":"7"}, "n":1e400}}')
    assert (event.type, event.resource_version) == ("ADDED", "7")
    assert bytes(event.object) == b'{"metadata": {"resourceVersion":"7"}, "n":1e400}'


def test_deep_nesting_breaks_nothing() -> None:
    """Anybody who may write an object may nest it by the thousand; the event comes through, the depth cut away."""
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    event = read_event(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"},"deep":' + deep + b"}}")
    assert event.resource_version == "7"
    assert len(event.object) < 2000


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>502</html>",
        b'{"type":"ADDED"}',
        b'{"type":"CHANGED","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"type":"ADDED","object":{"metadata":{}}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"\xff"}}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"',
        b'{"type":"ERROR","object":7}',
    ],
)
def test_garbage_is_named(garbage: bytes) -> None:
    """A line that is no event says so, with its beginning."""
    with pytest.raises(UnreadableAnswerError, match="WATCH /x: not a watch event: ") as caught:
        read_event(garbage, "WATCH /x")
    assert repr(garbage.decode(errors="replace"))[1:10] in str(caught.value)


def test_an_error_event_is_an_answer() -> None:
    """It carries the status of an HTTP answer, and becomes the same error."""
    with pytest.raises(ApiError, match="WATCH /x: 410 Expired: too old") as caught:
        read_event(error_line(**GONE), "WATCH /x")
    assert caught.value.is_gone
    with pytest.raises(ApiError, match="500 InternalServerError"):
        read_event(error_line(kind="Status"))


async def test_events_come_as_they_happen(server: "FakeServer", connection: Connection) -> None:
    """The request asks for what follows a version, with bookmarks and for a limited time, and selects."""
    server.streams("/x", line("ADDED", 2, n=1), line("BOOKMARK", 5), end="hold")
    told = Told()
    events = await take(connection, 2, told, params={"labelSelector": "a=b"}, settings=WatchSettings(timeout_seconds=7))
    assert [(event.type, event.resource_version) for event in events] == [("ADDED", "2"), ("BOOKMARK", "5")]
    assert told.on_accepted == 1
    assert server.seen[0].query == {
        "labelSelector": "a=b",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "7",
    }


async def test_a_watch_goes_on_where_it_was(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """A stream that ended in order is followed by the next at once, from the last event or bookmark."""
    server.streams("/x", line("ADDED", 2), line("MODIFIED", 3))
    server.streams("/x", line("BOOKMARK", 9))
    server.streams("/x", line("DELETED", 10))
    assert [event.resource_version for event in await take(connection, 4)] == ["2", "3", "9", "10"]
    assert [seen.query["resourceVersion"] for seen in server.seen] == ["1", "3", "9"]
    assert naps.seconds == []


async def test_a_cut_line_is_sent_again(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """What a torn connection leaves unfinished is dropped, and asked for again after a moment."""
    server.streams("/x", line("ADDED", 2), line("ADDED", 3)[:-9], end="cut")
    server.streams("/x", line("ADDED", 3), end="hold")
    told = Told()
    events = await take(connection, 2, told)
    assert [event.resource_version for event in events] == ["2", "3"]
    ((error, wait),) = told.failures
    assert isinstance(error, ConnectionFailedError)
    assert naps.seconds == [wait] == [0.25]


async def test_a_last_line_without_an_end_is_dropped(server: "FakeServer", connection: Connection) -> None:
    """Even if it is complete: what was meant to be a line ends as one."""
    server.streams("/x", line("ADDED", 2), line("ADDED", 3)[:-1])
    server.streams("/x", line("ADDED", 3))
    assert [event.resource_version for event in await take(connection, 2)] == ["2", "3"]


async def test_large_objects_come_whole(server: "FakeServer", connection: Connection) -> None:
    """Objects of megabytes arrive in hundreds of pieces."""
    big = line("ADDED", 2, data="x" * 5_000_000)
    pieces = [big[at : at + 70_000] for at in range(0, len(big), 70_000)]
    server.streams("/x", *pieces, line("ADDED", 3), end="hold")
    first, second = await take(connection, 2)
    assert len(first.object) == len(big) - len(b'{"type":"ADDED","object":}\n')
    assert second.resource_version == "3"


@pytest.mark.parametrize("status", [429, 503])
async def test_throttling_is_waited_out(
    server: "FakeServer", connection: Connection, naps: "Naps", status: int
) -> None:
    """The server's own time counts where it is longer than ours, and waits grow until an event comes."""
    server.answers("GET", "/x", status=status, headers={"Retry-After": "7"})
    server.answers("GET", "/x", status=status)
    server.answers("GET", "/x", status=status)
    server.streams("/x", line("ADDED", 2), end="cut")
    server.streams("/x", line("ADDED", 3), end="hold")
    assert [event.resource_version for event in await take(connection, 2)] == ["2", "3"]
    assert naps.seconds == [7, 0.5, 1, 0.25]


async def test_an_error_event_may_ask_for_patience(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """Throttling is the same within a stream as before it."""
    too_many = error_line(kind="Status", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 3})
    server.streams("/x", too_many)
    server.streams("/x", line("ADDED", 2))
    assert len(await take(connection, 1)) == 1
    assert naps.seconds == [3]


async def test_a_stream_closed_at_once_is_a_failure(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """A server that accepts and hangs up is not asked a thousand times a second."""
    for _ in range(6):
        server.streams("/x")
    server.streams("/x", line("ADDED", 2))
    told = Told()
    await take(connection, 1, told)
    assert naps.seconds == [0.25, 0.5, 1, 2, 4, 5]
    assert "WATCH /x: closed at once" in str(told.failures[0][0])


async def test_a_quiet_stream_is_none(server: "FakeServer", naps: "Naps") -> None:
    """A stream that ends in order after its time has nothing wrong with it, even without an event."""
    server.streams("/x")
    server.streams("/x", line("ADDED", 2))
    seconds = iter(range(0, 1000, 60))
    timing = Timing(sleep=naps, clock=lambda: next(seconds))
    async with Connection(Endpoint(server=server.url), timing=timing) as connection:
        assert len(await take(connection, 1)) == 1
    assert naps.seconds == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 500, 504])
async def test_what_patience_does_not_mend_is_raised(server: "FakeServer", connection: Connection, status: int) -> None:
    """Such refusals call for another list, whether as an answer or as an event."""
    server.answers("GET", "/x", status=status)
    with pytest.raises(ApiError) as caught:
        await take(connection, 1)
    assert caught.value.status == status
    server.script.clear()
    server.streams("/x", line("ADDED", 2), error_line(kind="Status", code=status))
    with pytest.raises(ApiError) as caught:
        await take(connection, 2)
    assert caught.value.status == status
    assert caught.value.is_gone == (status == 410)


async def test_garbage_ends_the_watch(server: "FakeServer", connection: Connection) -> None:
    """It may have been an event, so what comes after it does not follow on what came before."""
    server.streams("/x", line("ADDED", 2), b"garbage\n", line("ADDED", 3))
    with pytest.raises(UnreadableAnswerError, match="not a watch event"):
        await take(connection, 2)


async def test_a_silent_server_is_lost(server: "FakeServer", connection: Connection) -> None:
    """When a server says nothing for longer than it may, the watch goes on over another connection."""
    server.streams("/x", line("ADDED", 2), end="hold")
    server.streams("/x", line("ADDED", 3), end="hold")
    told = Told()
    settings = WatchSettings(timeout_seconds=0, grace=0.1)
    assert [event.resource_version for event in await take(connection, 2, told, settings=settings)] == ["2", "3"]
    assert "no data for 0.1 s" in str(told.failures[0][0])


async def test_cancellation_ends_it_at_once(server: "FakeServer", connection: Connection) -> None:
    """Also in the middle of silence."""
    server.streams("/x", end="hold")
    told = Told()
    watching = asyncio.create_task(take(connection, 1, told))
    await told.begun.wait()
    watching.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await watching


async def test_closing_gives_the_connection_back(server: "FakeServer") -> None:
    """A thousand watches that were left do not use up the sockets."""
    server.streams("/x", line("ADDED", 2), end="hold")
    settings = ConnectionSettings(limit=3, total_timeout=5)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        for _ in range(20):
            await take(connection, 1)
