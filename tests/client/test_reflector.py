"""Reflectors: the store follows the server, whatever the server does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.core.pod import Pod
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ClientError, UnreadableAnswerError
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import PODS
from cpg_client.stores import Added, Change, Deleted, Modified, Rejection, Synced, keep_whole
from cpg_client.timing import Timing, cancel_and_wait
from cpg_client.versions import VersionsWentBackError

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep

PATH = "/api/v1/pods"
SOURCE = Source(resource=PODS, kind=Pod, project=lambda pod: pod.spec.node_name)


def pod(name: str, version: int, node: object = "") -> dict[str, object]:
    """Build a pod."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": node}}


def listing(version: int, *pods: object) -> dict[str, object]:
    """Build a list."""
    return {"metadata": {"resourceVersion": str(version)}, "items": pods}


def line(kind: str, content: object) -> bytes:
    """Build a line of a watch."""
    return msgspec.json.encode({"type": kind, "object": content}) + b"\n"


def bookmark(version: int) -> bytes:
    """Build a bookmark."""
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class RunningReflector:
    """A running reflector with its changes and failures."""

    def __init__(self, connection: Connection, source: Source[Pod, str]) -> None:
        self.changes: list[Change[str]] = []
        self.failures: list[ClientError] = []
        self.relist_at = ""
        self.reflector = Reflector(connection, source, self._changed, on_failure=self._failed)
        self._more = asyncio.Event()

    def _changed(self, change: Change[str]) -> None:
        self.changes.append(change)
        if isinstance(change, Added) and change.key == self.relist_at:
            self.reflector.relist()
        self._more.set()

    def _failed(self, error: ClientError, _: float) -> None:
        self.failures.append(error)
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the changes or failures satisfy a condition."""
        async with asyncio.timeout(30):
            while not condition():
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def reflecting(connection: Connection, source: Source[Pod, str] = SOURCE) -> AsyncIterator[RunningReflector]:
    """Run a reflector while the block runs."""
    made = RunningReflector(connection, source)
    run: Coroutine[Any, Any, None] = made.reflector.run()
    task = asyncio.create_task(run)
    try:
        yield made
    finally:
        await cancel_and_wait(task)


async def test_the_list_comes_before_the_changes(server: "FakeServer", connection: Connection) -> None:
    """First all objects, then Synced, then the changes."""
    server.answers("GET", PATH, listing(3, pod("a", 1), pod("b", 3, "n1")))
    server.streams(PATH, line("ADDED", pod("c", 4)), line("DELETED", pod("b", 5, "n1")), bookmark(9), end="hold")
    async with reflecting(connection) as it:
        assert not it.reflector.synced
        assert it.reflector.health.last_heard is None
        await it.reflector.wait_synced()
        assert it.changes == [Added("ns/a", ""), Added("ns/b", "n1"), Synced()]
        await it.until(lambda: len(it.changes) == 5)
        assert it.changes[3:] == [Added("ns/c", ""), Deleted("ns/b", "n1")]
        assert dict(it.reflector.objects) == {"ns/a": "", "ns/c": ""}
    assert server.seen[1].query["resourceVersion"] == "3"


async def test_a_source_selects_objects(server: "FakeServer", connection: Connection) -> None:
    """List and watch have its namespace and selectors."""
    path = "/api/v1/namespaces/ns/pods"
    server.answers("GET", path, listing(3))
    server.streams(path, line("ADDED", pod("c", 4)), end="hold")
    source = Source(
        resource=PODS,
        kind=Pod,
        project=lambda pod: pod.spec.node_name,
        namespace="ns",
        labels="a=b",
        fields="spec.nodeName!=",
    )
    async with reflecting(connection, source) as it:
        await it.until(lambda: len(it.changes) == 2)
    for seen in server.seen:
        assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("a=b", "spec.nodeName!=")


async def test_an_expired_version_needs_a_new_list(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """Missed changes are reported as the difference, and Synced is not repeated."""
    gone = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    server.answers("GET", PATH, listing(3, pod("a", 1), pod("b", 3)))
    server.streams(PATH, line("MODIFIED", pod("a", 4, "n1")), gone)
    server.answers("GET", PATH, listing(9, pod("a", 4, "n1"), pod("c", 8)))
    server.streams(PATH, line("MODIFIED", pod("c", 10, "n2")), end="hold")
    async with reflecting(connection) as it:
        await it.until(lambda: len(it.changes) == 7)
        assert it.changes[3:] == [
            Modified("ns/a", "", "n1"),
            Deleted("ns/b", ""),
            Added("ns/c", ""),
            Modified("ns/c", "", "n2"),
        ]
        (failure,) = it.failures
    assert isinstance(failure, ApiError)
    assert failure.is_gone
    assert fake_sleep.seconds == [0.25]
    assert server.seen[3].query["resourceVersion"] == "9"


async def test_an_unfinished_list_changes_nothing(server: "FakeServer", connection: Connection) -> None:
    """Pages before an expired token are of another snapshot and are dropped."""
    first = {"metadata": {"resourceVersion": "3", "continue": "t"}, "items": [pod("a", 1)]}
    server.answers("GET", PATH, first)
    server.answers("GET", PATH, {"kind": "Status"}, status=410)
    server.answers("GET", PATH, listing(5, pod("b", 4)))
    server.streams(PATH, end="hold")
    async with reflecting(connection) as it:
        await it.reflector.wait_synced()
        assert it.changes == [Added("ns/b", ""), Synced()]


async def test_every_failure_is_retried(server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep") -> None:
    """Refusals, malformed data, broken connections: each is reported, and the waits grow until one attempt succeeds."""
    server.answers("GET", PATH, status=403)
    server.answers("GET", PATH, b"<html>")
    server.answers("GET", PATH, b'{"metadata":{"resourceVersion":"1"},"items":7}')
    server.streams(PATH, b"[", end="cut")
    server.answers("GET", PATH, listing(3, pod("a", 1)))
    server.streams(PATH, b"garbage\n")
    server.answers("GET", PATH, listing(4, pod("a", 1)))
    server.answers("GET", PATH, status=404)
    server.answers("GET", PATH, listing(5, pod("a", 5, "n1")))
    server.streams(PATH, end="hold")
    async with reflecting(connection) as it:
        await it.until(lambda: len(it.changes) == 3)
        assert it.changes == [Added("ns/a", ""), Synced(), Modified("ns/a", "", "n1")]
        assert [type(error).__name__ for error in it.failures] == [
            "ApiError",
            "UnreadableAnswerError",
            "UnreadableAnswerError",
            "ConnectionFailedError",
            "UnreadableAnswerError",
            "ApiError",
        ]
        assert it.reflector.counts.failures == 6
    assert fake_sleep.seconds == [0.25, 0.5, 1, 2, 4, 5]


async def test_the_backoff_restarts_after_a_stable_time(server: "FakeServer", fake_sleep: "FakeSleep") -> None:
    """A failure after minutes without one gets the shortest wait."""
    server.answers("GET", PATH, status=500)
    seconds = iter(range(0, 10_000, 60))
    timing = Timing(sleep=fake_sleep, clock=lambda: next(seconds))
    async with Connection(Endpoint(server=server.url), timing=timing) as connection, reflecting(connection) as it:
        await it.until(lambda: len(it.failures) == 3)
    assert fake_sleep.seconds[:3] == [0.25, 0.25, 0.25]


async def test_health_and_counts(server: "FakeServer", fake_sleep: "FakeSleep") -> None:
    """A list, an accepted watch, events and bookmarks count as data from the server; failures do not."""
    now = [100.0]
    server.answers("GET", PATH, listing(3))
    server.streams(PATH, bookmark(4), line("ADDED", pod("a", 5)), end="cut")
    server.answers("GET", PATH, status=403)
    timing = Timing(sleep=fake_sleep, clock=lambda: now[0])
    async with Connection(Endpoint(server=server.url), timing=timing) as connection, reflecting(connection) as it:
        await it.reflector.wait_synced()
        assert it.reflector.health.last_heard == 100
        now[0] = 130
        await it.until(lambda: len(it.changes) == 2)
        assert it.reflector.health.last_heard == 130
        now[0] = 160
        await it.until(lambda: len(it.failures) >= 2)
        assert it.reflector.health.last_heard == 130
        counts = it.reflector.counts
        assert (counts.lists, counts.watches, counts.events, counts.bookmarks) == (1, 1, 1, 1)


async def test_rejected_objects_do_not_stop_others(server: "FakeServer", connection: Connection) -> None:
    """An object of the wrong shape, or nested too deeply."""
    deep = msgspec.Raw(b'{"a":' * 5000 + b"1" + b"}" * 5000)
    server.answers("GET", PATH, listing(3, pod("bad", 1, 7), pod("a", 2), pod("deep", 3) | {"deep": deep}))
    server.streams(PATH, line("ADDED", pod("worse", 4, [])), line("ADDED", pod("b", 5)), end="hold")
    async with reflecting(connection) as it:
        await it.until(lambda: len(it.changes) == 6)
        assert it.changes[1:4] == [Added("ns/a", ""), Added("ns/deep", ""), Synced()]
        rejected = [change.key for change in it.changes if isinstance(change, Rejection)]
        assert rejected == list(it.reflector.rejected) == ["ns/bad", "ns/worse"]
        assert it.failures == []


async def test_an_exception_of_a_callback_ends_the_reflector(server: "FakeServer", connection: Connection) -> None:
    """It is not retried, and all connections are released."""
    server.answers("GET", PATH, listing(3))

    def fail(change: Change[Pod]) -> None:
        raise LookupError(f"cannot handle {change}")

    reflector = Reflector(connection, Source(resource=PODS, kind=Pod, project=keep_whole), fail)
    async with asyncio.timeout(5):
        with pytest.raises(LookupError, match="cannot handle Synced"):
            await reflector.run()


async def test_a_reflector_can_list_anew(server: "FakeServer", connection: Connection) -> None:
    """The watch ends, the difference is reported, and a request during a list repeats it. That is no failure."""
    server.answers("GET", PATH, listing(3, pod("a", 1)))
    server.streams(PATH, end="hold")
    server.answers("GET", PATH, listing(4, pod("b", 4)))
    server.answers("GET", PATH, listing(5, pod("c", 5)))
    server.streams(PATH, line("ADDED", pod("d", 6)), end="hold")
    async with reflecting(connection) as it:
        await it.reflector.wait_synced()
        while not it.reflector.counts.watches:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0.001)
        it.relist_at = "ns/b"
        it.reflector.relist()
        await it.until(lambda: "ns/d" in it.reflector.objects)
        assert (list(it.reflector.objects), it.failures) == (["ns/c", "ns/d"], [])


async def test_an_object_that_is_older_than_before_ends_the_reflector(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """A restored etcd has grown past the version of the collection since. A new object of that name is no sign."""
    renewed = {"metadata": {"name": "a", "namespace": "ns", "uid": "new", "resourceVersion": "2"}}
    server.answers("GET", PATH, listing(5, pod("a", 4), pod("b", 5)))
    server.streams(PATH, line("ERROR", {"kind": "Status", "code": 410}))
    server.answers("GET", PATH, listing(8, renewed))
    server.streams(PATH, line("ADDED", pod("b", 9)), line("ERROR", {"kind": "Status", "code": 410}))
    server.answers("GET", PATH, listing(12, pod("b", 7)))
    reflector = Reflector(connection, SOURCE, lambda _: None)
    async with asyncio.timeout(5):
        with pytest.raises(VersionsWentBackError, match=f"{PATH} ns/b went back from 9 to 7"):
            await reflector.run()
    assert fake_sleep.seconds == [0.25, 0.5]


async def test_a_list_that_is_older_than_before_ends_the_reflector(
    server: "FakeServer", connection: Connection
) -> None:
    """Etcd was restored from a backup. Nothing of that list comes into the store."""
    server.answers("GET", PATH, listing(7, pod("a", 1)))
    server.streams(PATH, line("ERROR", {"kind": "Status", "code": 410}))
    server.answers("GET", PATH, listing(3))
    reflector = Reflector(connection, SOURCE, lambda _: None)
    async with asyncio.timeout(5):
        with pytest.raises(VersionsWentBackError, match="went back from 7 to 3"):
            await reflector.run()
    assert list(reflector.objects) == ["ns/a"]


async def test_failures_need_no_callback(server: "FakeServer", connection: Connection) -> None:
    """By default they are ignored."""
    server.answers("GET", PATH, status=404)
    server.answers("GET", PATH, listing(3))
    server.streams(PATH, end="hold")
    reflector = Reflector(connection, SOURCE, lambda _: None)
    task = asyncio.create_task(reflector.run())
    await reflector.wait_synced()
    await cancel_and_wait(task)
    assert reflector.counts.failures == 1


async def test_a_body_that_is_no_list_is_an_error(server: "FakeServer", connection: Connection) -> None:
    """It names the request."""
    server.answers("GET", PATH, b"\xff")
    async with reflecting(connection) as it:
        await it.until(lambda: bool(it.failures))
        assert isinstance(it.failures[0], UnreadableAnswerError)
        assert f"GET {PATH}: the answer is not a list" in str(it.failures[0])


async def test_thousands_of_events_are_fast(server: "FakeServer", connection: Connection) -> None:
    """30,000 pods of real size, each added, take at most a few seconds of CPU: measured 0.8 s with both ends."""
    labels = {f"example.com/label-{number}": "value" * 5 for number in range(12)}
    container = {"name": "main", "image": "img", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]

    def big(number: int) -> bytes:
        made = pod(f"pod-{number}", number + 10)
        made["metadata"] = {**made["metadata"], "labels": labels}  # type: ignore[dict-item]
        made["spec"] = {"containers": [{**container, "env": env}]}
        return line("ADDED", made)

    server.answers("GET", PATH, listing(3))
    server.streams(PATH, *(b"".join(map(big, range(at, at + 100))) for at in range(0, 30_000, 100)), end="hold")
    async with reflecting(connection) as it:
        began = time.process_time()
        await it.until(lambda: len(it.reflector.objects) == 30_000)
        spent = time.process_time() - began
    assert spent < 12
