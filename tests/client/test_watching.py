"""Watches, with everything that a server may send."""

import asyncio
import itertools
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError, UnreadableAnswerError
from cpg_client.timing import Timing
from cpg_client.watch_health import MAX_SECONDS_TO_RESUME
from cpg_client.watching import LineSplitter, WatchEvent, WatchHooks, WatchSettings, read_event, watch

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}


def line(kind: str, version: int, **content: object) -> bytes:
    """Build a line of a watch."""
    made = {"metadata": {"resourceVersion": str(version)}, **content}
    return msgspec.json.encode({"type": kind, "object": made}) + b"\n"


def error_line(**status: object) -> bytes:
    """Build the line of an ERROR event."""
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


@dataclass
class RecordedHooks:
    """Records the calls of the hooks."""

    on_accepted: int = 0
    failures: list[tuple[ClientError, float]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def hooks(self) -> WatchHooks:
        """Return the hooks."""
        return WatchHooks(on_accepted=self.accept, on_failed=lambda *failure: self.failures.append(failure))

    def accept(self) -> None:
        """Count an accepted stream."""
        self.on_accepted += 1
        self.begun.set()


async def take(
    connection: Connection, count: int, hooks: RecordedHooks | None = None, **more: object
) -> list[WatchEvent]:
    """Watch /x from version 1 until so many events have arrived."""
    found: list[WatchEvent] = []
    called = (hooks or RecordedHooks()).hooks
    async with aclosing(watch(connection, "/x", "1", hooks=called, **more)) as events:  # type: ignore[arg-type]
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


@given(st.lists(st.binary(max_size=20).map(lambda one: one.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_joined_from_any_chunks(lines: list[bytes], data: st.DataObject) -> None:
    """For every split the lines are complete and in order, without empty ones; the rest is kept."""
    whole = b"".join(one + b"\n" for one in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    edges = [0, *cuts, len(whole)]
    reader = LineSplitter()
    pieces = [whole[start:end] for start, end in itertools.pairwise(edges)]
    assert [one for piece in pieces for one in reader.feed(piece)] == [one for one in lines if one]
    assert reader.feed(b"\n") == [b"rest"]


def test_an_endless_line_is_an_error() -> None:
    """It would fill the memory."""
    reader = LineSplitter(longest=10)
    assert reader.feed(b"1234567890") == []
    with pytest.raises(UnreadableAnswerError, match="longer than 10 bytes"):
        reader.feed(b"1")


def test_an_event_keeps_its_object_as_bytes() -> None:
    """Only type and version are read."""
    event = read_event(b'{"type":"ADDED","object":{"metadata": {"resourceVersion":"7"}, "n":1e400}}')
    assert (event.type, event.resource_version) == ("ADDED", "7")
    assert bytes(event.object) == b'{"metadata": {"resourceVersion":"7"}, "n":1e400}'


def test_deep_nesting_in_an_event_is_cut() -> None:
    """Any user with write access can nest an object by the thousand."""
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
def test_a_malformed_line_is_an_error(garbage: bytes) -> None:
    """It quotes the beginning of the line."""
    with pytest.raises(UnreadableAnswerError, match="WATCH /x: not a watch event: ") as caught:
        read_event(garbage, "WATCH /x")
    assert repr(garbage.decode(errors="replace"))[1:10] in str(caught.value)


def test_an_error_event_raises_an_api_error() -> None:
    """With the status in the event."""
    with pytest.raises(ApiError, match="WATCH /x: 410 Expired: too old") as caught:
        read_event(error_line(**GONE), "WATCH /x")
    assert caught.value.is_gone
    with pytest.raises(ApiError, match="500 InternalServerError"):
        read_event(error_line(kind="Status"))


async def test_events_are_yielded_as_they_arrive(server: "FakeServer", connection: Connection) -> None:
    """The request has a version, bookmarks, a time-out and selectors."""
    server.streams("/x", line("ADDED", 2, n=1), line("BOOKMARK", 5), end="hold")
    hooks = RecordedHooks()
    events = await take(
        connection, 2, hooks, params={"labelSelector": "a=b"}, settings=WatchSettings(timeout_seconds=7)
    )
    assert [(event.type, event.resource_version) for event in events] == [("ADDED", "2"), ("BOOKMARK", "5")]
    assert hooks.on_accepted == 1
    assert server.seen[0].query == {
        "labelSelector": "a=b",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "7",
    }


async def test_a_watch_resumes_after_the_last_event(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """A stream that ended in order is followed by the next at once, after the last event or bookmark."""
    server.streams("/x", line("ADDED", 2), line("MODIFIED", 3))
    server.streams("/x", line("BOOKMARK", 9))
    server.streams("/x", line("DELETED", 10))
    assert [event.resource_version for event in await take(connection, 4)] == ["2", "3", "9", "10"]
    assert [seen.query["resourceVersion"] for seen in server.seen] == ["1", "3", "9"]
    assert fake_sleep.seconds == []


async def test_a_cut_line_is_requested_again(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """The unfinished line of a broken connection is dropped."""
    server.streams("/x", line("ADDED", 2), line("ADDED", 3)[:-9], end="cut")
    server.streams("/x", line("ADDED", 3), end="hold")
    hooks = RecordedHooks()
    events = await take(connection, 2, hooks)
    assert [event.resource_version for event in events] == ["2", "3"]
    ((error, wait),) = hooks.failures
    assert isinstance(error, ConnectionFailedError)
    assert fake_sleep.seconds == [wait] == [0.25]


async def test_a_last_line_without_a_newline_is_dropped(server: "FakeServer", connection: Connection) -> None:
    """Even if its JSON is complete."""
    server.streams("/x", line("ADDED", 2), line("ADDED", 3)[:-1])
    server.streams("/x", line("ADDED", 3))
    assert [event.resource_version for event in await take(connection, 2)] == ["2", "3"]


async def test_large_objects_arrive_whole(server: "FakeServer", connection: Connection) -> None:
    """Objects of megabytes arrive in hundreds of chunks."""
    big = line("ADDED", 2, data="x" * 5_000_000)
    pieces = [big[at : at + 70_000] for at in range(0, len(big), 70_000)]
    server.streams("/x", *pieces, line("ADDED", 3), end="hold")
    first, second = await take(connection, 2)
    assert len(first.object) == len(big) - len(b'{"type":"ADDED","object":}\n')
    assert second.resource_version == "3"


@pytest.mark.parametrize("status", [429, 503])
async def test_throttling_is_retried(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep", status: int
) -> None:
    """Retry-After counts where it is longer, and waits grow until an event arrives."""
    server.answers("GET", "/x", status=status, headers={"Retry-After": "7"})
    server.answers("GET", "/x", status=status)
    server.answers("GET", "/x", status=status)
    server.streams("/x", line("ADDED", 2), end="cut")
    server.streams("/x", line("ADDED", 3), end="hold")
    assert [event.resource_version for event in await take(connection, 2)] == ["2", "3"]
    assert fake_sleep.seconds == [7, 0.5, 1, 0.25]


async def test_throttling_in_an_error_event_is_retried(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """As before the stream."""
    too_many = error_line(kind="Status", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 3})
    server.streams("/x", too_many)
    server.streams("/x", line("ADDED", 2))
    assert len(await take(connection, 1)) == 1
    assert fake_sleep.seconds == [3]


async def test_a_stream_that_ends_at_once_is_a_failure(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """Such a server is not asked a thousand times a second."""
    for _ in range(6):
        server.streams("/x")
    server.streams("/x", line("ADDED", 2))
    hooks = RecordedHooks()
    await take(connection, 1, hooks)
    assert fake_sleep.seconds == [0.25, 0.5, 1, 2, 4, 5]
    assert "WATCH /x: closed at once" in str(hooks.failures[0][0])


@pytest.mark.parametrize("failures", [2, 3])
async def test_a_watch_does_not_resume_after_an_outage(server: "FakeServer", failures: int) -> None:
    """The server may have another history after some seconds, so a list is needed. An outage ends with an answer."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def break_off(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    for version in (2, 3):
        server.streams("/x", line("ADDED", version), end="cut")
        for _ in range(failures):
            server.handles("GET", "/x", break_off)
    server.streams("/x", line("ADDED", 4), end="hold")
    async with Connection(Endpoint(server=server.url), timing=Timing(sleep=sleep, elapsed=lambda: now)) as connection:
        if failures == 2:
            assert len(await take(connection, 3)) == 3
            return
        with pytest.raises(ConnectionFailedError):
            await take(connection, 2)
    assert now == 0.25 + 0.5 + 1


@pytest.mark.parametrize("pause", [2.7, 2.8])
async def test_a_watch_does_not_resume_after_an_outage_in_a_pause(
    server: "FakeServer", monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """The process was suspended while the connection was lost, and the outage may have begun with that."""
    for version in (2, 3):
        server.streams("/x", line("ADDED", version), end="cut")
    async with Connection(Endpoint(server=server.url), timing=Timing(elapsed=lambda: 9.0)) as connection:
        monkeypatch.setattr(connection.pauses, "recent", lambda: pause)
        if pause + 0.25 < MAX_SECONDS_TO_RESUME:
            assert len(await take(connection, 2)) == 2
            return
        with pytest.raises(ConnectionFailedError):
            await take(connection, 2)


async def test_a_watch_does_not_resume_after_a_suspension_in_its_back_off(server: "FakeServer") -> None:
    """The outage went on meanwhile."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + MAX_SECONDS_TO_RESUME

    server.streams("/x", line("ADDED", 2), end="cut")
    async with Connection(Endpoint(server=server.url), timing=Timing(sleep=sleep, elapsed=lambda: now)) as connection:
        with pytest.raises(ConnectionFailedError):
            await take(connection, 2)


async def test_a_quiet_stream_is_no_failure(server: "FakeServer", fake_sleep: "FakeSleep") -> None:
    """It ends in order after its time, even without an event."""
    server.streams("/x")
    server.streams("/x", line("ADDED", 2))
    seconds = iter(range(0, 1000, 60))
    timing = Timing(sleep=fake_sleep, clock=lambda: next(seconds))
    async with Connection(Endpoint(server=server.url), timing=timing) as connection:
        assert len(await take(connection, 1)) == 1
    assert fake_sleep.seconds == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 500, 504])
async def test_refusals_that_need_a_list_are_raised(server: "FakeServer", connection: Connection, status: int) -> None:
    """As an answer or as an event."""
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


async def test_malformed_data_ends_the_watch(server: "FakeServer", connection: Connection) -> None:
    """It may have been an event, and only a list shows its content."""
    server.streams("/x", line("ADDED", 2), b"garbage\n", line("ADDED", 3))
    with pytest.raises(UnreadableAnswerError, match="not a watch event"):
        await take(connection, 2)


async def test_a_silent_server_is_lost(server: "FakeServer", connection: Connection) -> None:
    """After its time-out the watch resumes over another connection."""
    server.streams("/x", line("ADDED", 2), end="hold")
    server.streams("/x", line("ADDED", 3), end="hold")
    hooks = RecordedHooks()
    settings = WatchSettings(timeout_seconds=0, grace=0.1)
    assert [event.resource_version for event in await take(connection, 2, hooks, settings=settings)] == ["2", "3"]
    assert "no data for 0.1 s" in str(hooks.failures[0][0])


async def test_cancellation_ends_a_watch_at_once(server: "FakeServer", connection: Connection) -> None:
    """Also in the middle of silence."""
    server.streams("/x", end="hold")
    hooks = RecordedHooks()
    watching = asyncio.create_task(take(connection, 1, hooks))
    await hooks.begun.wait()
    watching.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await watching


async def test_closing_releases_the_connection(server: "FakeServer") -> None:
    """A thousand abandoned watches do not use up the sockets."""
    server.streams("/x", line("ADDED", 2), end="hold")
    settings = ConnectionSettings(limit=3, total_timeout=5)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        for _ in range(20):
            await take(connection, 1)
