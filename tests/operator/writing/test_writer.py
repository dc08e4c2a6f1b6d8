"""The writer: which requests it sends, in which order, and what follows a failure."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.resources import CPG_POD_GROUPS, PODS, Resource
from cpg_client.timing import Timing, cancel_and_wait
from cpg_engine.testing.builders import metadata
from cpg_operator.metrics import Metrics, MetricsSnapshot
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import EventSpec, TreeKey, Verb, Write
from cpg_operator.writing.creations import RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import FIRST_RETRY_SECONDS, PartFailure, RetryState
from cpg_operator.writing.sender import Sender
from cpg_operator.writing.writer import CONFLICT_WAIT_SECONDS, PENDING_WRITES_WAIT_SECONDS, Writer

TREE = TreeKey("crd", GroupKey("PodGroup", "default", "a"))
GROUP = "/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups/a"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class Wire:
    """A connection that records requests and fails as a test wants, and the view that takes their answers."""

    timing = Timing(wall=lambda: 0.0)

    def __init__(self) -> None:
        """Accept everything."""
        self.sent: list[tuple[str, str, Any]] = []
        self.errors: dict[str, Exception] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.answers: list[tuple[str, str, bytes]] = []
        self.missing: list[tuple[str, str, str]] = []
        self.has_more = False
        self.answer = b"{}"

    def take_answer(self, flavour: str, write: Write, answer: bytes) -> bool:
        """Record an answer for the view; return whether there is more in it than was written."""
        self.answers.append((flavour, write.resource.plural, answer))
        return self.has_more

    def forget_missing(self, flavour: str, resource: Resource, target: ObjectMeta) -> None:
        """Record an object that the view has to forget."""
        self.missing.append((flavour, resource.plural, target.uid))

    async def patch(self, path: str, body: object, *_: object, params: object = None) -> bytes:
        """Accept a patch."""
        return await self._take("PATCH", path, (body, params))

    async def post(self, path: str, body: object) -> bytes:
        """Accept a new object."""
        return await self._take("POST", path, body)

    async def delete(self, path: str, body: object) -> bytes:
        """Accept a deletion."""
        return await self._take("DELETE", path, body)

    async def _take(self, method: str, path: str, body: object) -> bytes:
        self.sent.append((method, path, body))
        await self.open.wait()
        if path in self.errors:
            raise self.errors[path]
        return self.answer

    def paths(self) -> list[str]:
        """Return method and path of each request."""
        return [f"{method} {path}" for method, path, _ in self.sent]


@pytest.fixture
def wire() -> Wire:
    """Return a connection."""
    return Wire()


@pytest.fixture
def queue() -> WorkQueue[TreeKey]:
    """Return a queue with a clock that stands still."""
    return WorkQueue(lambda: 0.0, quiet=0.25, longest=1.0)


@pytest.fixture
def metrics() -> Metrics:
    """Return counters."""
    return Metrics()


@pytest.fixture
def retries() -> RetryState[TreeKey]:
    """Return the failures of trees."""
    return RetryState()


@pytest.fixture
def expectations() -> Expectations:
    """Return what has been written."""
    return Expectations(Wire.timing.clock)


@pytest.fixture
async def writer(
    wire: Wire,
    queue: WorkQueue[TreeKey],
    metrics: Metrics,
    retries: RetryState[TreeKey],
    expectations: Expectations,
) -> AsyncIterator[Writer]:
    """Return a running writer."""
    found = Writer(
        Sender(cast("Connection", wire), instance="test"),
        view=cast("ClusterView", wire),
        queue=queue,
        expectations=expectations,
        creations=RecentCreations(wire.timing.clock),
        retries=retries,
        metrics=metrics,
        in_flight=4,
    )
    working = asyncio.create_task(found.run())
    yield found
    await cancel_and_wait(working)


def write(verb: Verb = Verb.APPLY_STATUS, *, version: str = "1", part: str = "health", **more: Any) -> Write:
    """Return a write to one group."""
    target = replace(metadata("a"), resource_version=version)
    return Write(verb=verb, resource=CPG_POD_GROUPS, target=target, part=part, **{"body": {"x": 1}, **more})


def refusal(status: int) -> ApiError:
    """Return an error of the API server."""
    return ApiError(status, "Reason", "message", request="PATCH")


async def test_each_verb_sends_its_request(writer: Writer, wire: Wire) -> None:
    """With the UID, and with the version where the write must not overwrite anything newer."""
    await done(writer, write(unchanged=True, manager="m"))
    ((_, path, (body, params)),) = wire.sent
    assert path == f"{GROUP}/status"
    assert body["metadata"] == {"uid": "uid-default-a", "resourceVersion": "1"}
    assert params == {"fieldManager": "m", "force": "true"}
    await done(writer, write(Verb.MERGE, part="priority", body={"spec": {"priority": 1}}))
    await done(writer, write(Verb.CREATE, part="create"))
    await done(writer, replace(write(Verb.DELETE, part="release"), resource=PODS))
    await done(writer, write(Verb.EVENT, part="release", event=EventSpec(reason="Released", note="n")))
    assert wire.paths()[1:] == [
        f"PATCH {GROUP}",
        "POST /apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups",
        "DELETE /api/v1/namespaces/default/pods/a",
        f"POST {EVENTS}",
    ]
    await done(writer, write(Verb.MERGE_STATUS, part="health", body={"domain": None}, unchanged=True))
    assert wire.paths()[-1] == f"PATCH {GROUP}/status"
    assert wire.sent[-1][2][0]["status"] == {"domain": None}
    assert wire.sent[1][2][0] == {"spec": {"priority": 1}, "metadata": {"uid": "uid-default-a"}}
    assert wire.sent[3][2]["preconditions"] == {"uid": "uid-default-a"}


async def done(writer: Writer, *writes: Write) -> None:
    """Submit writes and wait for them."""
    writer.submit(TREE, writes)
    await writer.drain()


def release(version: str, note: str) -> Write:
    """Return the event about one release, as one reconcile words it."""
    return write(
        Verb.EVENT, part="release", version=version, body={"since": 1.0}, event=EventSpec(reason="Released", note=note)
    )


async def test_one_occasion_gets_one_event(writer: Writer, wire: Wire) -> None:
    """Other words and other writes to the object do not repeat it, also while it is in flight."""
    wire.open.clear()
    writer.submit(TREE, [release("1", "deleting 9 pods")])
    await asyncio.sleep(0)
    writer.submit(TREE, [release("2", "deleting 5 pods")])
    wire.open.set()
    await writer.drain()
    await done(writer, release("3", "deleting 1 pods"))
    assert [body["note"] for _, _, body in wire.sent] == ["deleting 9 pods"]
    await done(writer, replace(release("4", "again"), body={"since": 2.0}))
    assert len(wire.sent) == 2


async def test_an_answer_goes_into_the_view(writer: Writer, wire: Wire, queue: WorkQueue[TreeKey]) -> None:
    """An event has no answer; a write that others wait for has its tree reconciled again."""
    await done(writer, write(), write(Verb.EVENT, part="release", event=EventSpec(reason="Released", note="n")))
    assert wire.answers == [("crd", "podgroups", b"{}")]
    assert queue.seconds_until_due() is None
    await done(writer, write(Verb.MERGE, part="finalizers", requeue=True))
    assert len(wire.answers) == 2
    assert queue.seconds_until_due() == pytest.approx(0.25)


async def test_a_tree_is_reconciled_again_after_the_last_of_its_writes(
    writer: Writer, wire: Wire, queue: WorkQueue[TreeKey]
) -> None:
    """Once, however many answers had more in them; but after a second at the latest, should a write hang."""
    wire.has_more = True
    wire.open.clear()
    writer.submit(TREE, [write(part=part) for part in ("health", "validity")])
    writer.submit(TREE, [write(), write(part="validity", version="2")])
    writer._requeue(TREE)
    assert queue.seconds_until_due() == pytest.approx(PENDING_WRITES_WAIT_SECONDS)
    wire.open.set()
    await writer.drain()
    assert queue.seconds_until_due() == pytest.approx(0.25)
    assert not writer._pending_of


async def test_a_write_is_not_repeated_for_the_same_version(
    writer: Writer, wire: Wire, expectations: Expectations
) -> None:
    """Nor while it is in flight; a newer version or another body is another write."""
    wire.open.clear()
    writer.submit(TREE, [write()])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.submit(TREE, [write()])
    assert len(writer) == 0
    wire.open.set()
    await writer.drain()
    await done(writer, write())
    assert len(wire.sent) == 1
    await done(writer, write(body={"x": 2}))
    await done(writer, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 3
    expectations.forget(write().target.uid)
    await done(writer, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 4


async def test_a_pending_write_is_replaced_by_a_later_one(writer: Writer, wire: Wire) -> None:
    """A burst becomes one request; different parts of an object are sent one after the other."""
    for number in range(10):
        writer.submit(TREE, [write(body={"x": number}), write(part="validity", body={"y": 1})])
    assert len(writer) == 2
    await writer.drain()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 9}, {"y": 1}]


async def test_a_pending_write_that_is_no_longer_wanted_is_not_sent(
    writer: Writer, wire: Wire, queue: WorkQueue[TreeKey]
) -> None:
    """This concerns one tree alone; another tree may take over a part of an object."""
    other = TreeKey("crd", GroupKey("PodGroup", "default", "b"))
    writer.submit(other, [write(part="validity")])
    writer.submit(TREE, [write()])
    writer.submit(TREE, [])
    assert len(writer) == 1
    writer._requeue(other)
    writer.submit(TREE, [write(part="validity", version="2")])
    assert queue.seconds_until_due() == pytest.approx(0.25)
    writer.submit(TREE, [write(version="3"), write(part="validity", version="2")])
    await writer.drain()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 1}] * 2
    assert not writer._pending_of


@pytest.mark.parametrize(("wanted", "wait"), [("health", None), (None, 0.25), ("validity", 0.25)])
async def test_a_write_in_flight_that_is_no_longer_wanted_has_its_tree_reconciled_again(
    writer: Writer, wire: Wire, queue: WorkQueue[TreeKey], *, wanted: str | None, wait: float | None
) -> None:
    """The reconcile had nothing to correct yet; one that wants the same write again needs no other."""
    wire.open.clear()
    writer.submit(TREE, [write()])
    await asyncio.sleep(0.01)
    writer.submit(TREE, [write(part=wanted)] if wanted else [])
    wire.open.set()
    await writer.drain()
    assert queue.seconds_until_due() == (None if wait is None else pytest.approx(wait))


async def test_a_write_that_is_wanted_again_while_in_flight_drops_what_is_pending(writer: Writer, wire: Wire) -> None:
    """One write, another, and the first again: the second is outdated by then."""
    wire.open.clear()
    writer.submit(TREE, [write()])
    await asyncio.sleep(0.01)
    writer.submit(TREE, [write(body={"x": 2})])
    writer.submit(TREE, [write()])
    wire.open.set()
    await writer.drain()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 1}]


async def test_a_write_that_is_met_already_drops_what_is_pending(
    writer: Writer, wire: Wire, queue: WorkQueue[TreeKey]
) -> None:
    """A different write in flight has the tree reconciled after it."""
    await done(writer, write())
    writer.submit(TREE, [write(body={"x": 2})])
    writer.submit(TREE, [write()])
    await writer.drain()
    assert len(wire.sent) == 1
    wire.open.clear()
    writer.submit(TREE, [write(body={"x": 2})])
    await asyncio.sleep(0.01)
    writer.submit(TREE, [write()])
    wire.open.set()
    await writer.drain()
    assert queue.seconds_until_due() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("error", "result", "wait"),
    [
        (refusal(404), "gone", None),
        (refusal(409), "conflict", CONFLICT_WAIT_SECONDS),
        (refusal(403), "failure", FIRST_RETRY_SECONDS),
        (ConnectionFailedError("server", "PATCH", "lost"), "failure", FIRST_RETRY_SECONDS),
        (ValueError("a defect of ours"), "failure", FIRST_RETRY_SECONDS),
    ],
)
async def test_a_failed_write_has_its_tree_reconciled_again(
    writer: Writer,
    wire: Wire,
    queue: WorkQueue[TreeKey],
    metrics: Metrics,
    *,
    error: Exception,
    result: str,
    wait: float | None,
) -> None:
    """Soon after a conflict, later after a failure, not after a missing object; and the writer goes on."""
    wire.errors[f"{GROUP}/status"] = error
    await done(writer, write(event=EventSpec(reason="R", note="n")))
    assert len(wire.sent) == 1
    assert queue.seconds_until_due() == (None if wait is None else pytest.approx(wait))
    snapshot = MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)
    assert f'result="{result}",verb="apply status"}} 1.0' in metrics.page(snapshot).decode()
    del wire.errors[f"{GROUP}/status"]
    await done(writer, write())
    assert len(wire.sent) == 2


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ('podgroups.scheduling.cpg.dev "a" not found', [("crd", "podgroups", "uid-default-a")]),
        ("404 page not found", []),
    ],
)
async def test_a_missing_object_is_removed_from_the_view(
    writer: Writer, wire: Wire, message: str, missing: list[tuple[str, str, str]]
) -> None:
    """Its deletion may have gone unheard. A resource that is not served for a moment removes nothing."""
    wire.errors[f"{GROUP}/status"] = ApiError(404, "NotFound", message, request="PATCH")
    await done(writer, write())
    assert wire.missing == missing


async def test_a_failed_creation_is_remembered(writer: Writer, wire: Wire, retries: RetryState[TreeKey]) -> None:
    """No object has a status that could show it; a success of another part does not end it."""
    wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"] = refusal(422)
    creation = write(Verb.CREATE, part="whole")
    await done(writer, creation, write())
    assert retries.failures(TREE) == {creation.object_part: PartFailure(1, "message")}
    del wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"]
    await done(writer, creation)
    assert not retries


async def test_a_merge_that_changes_nothing_fails(
    writer: Writer, wire: Wire, queue: WorkQueue[TreeKey], retries: RetryState[TreeKey]
) -> None:
    """A webhook drops the field: other writes must not wait for the merge, and it is not repeated."""
    merge = write(Verb.MERGE, part="fields")
    for version, fails in (("1", True), ("2", False)):
        wire.answer = f'{{"metadata": {{"resourceVersion": "{version}"}}}}'.encode()
        await done(writer, merge)
        assert (merge.object_part in retries.failures(TREE)) == fails
        merge = replace(merge, body={"x": 2})
    assert len(wire.sent) == 2
    await done(writer, merge)
    assert (len(wire.sent), queue.seconds_until_due()) == (2, None)


async def test_a_failure_is_forgotten_once_its_write_is_not_wanted(
    writer: Writer, wire: Wire, retries: RetryState[TreeKey]
) -> None:
    """Nothing is kept of deleted trees."""
    wire.errors[GROUP] = refusal(403)
    await done(writer, write(Verb.MERGE, part="fields"))
    assert retries.failures(TREE)
    await done(writer)
    assert not retries


async def test_an_event_follows_its_write(writer: Writer, wire: Wire, queue: WorkQueue[TreeKey]) -> None:
    """An event that cannot be recorded fails nothing."""
    await done(writer, write(event=EventSpec(reason="Invalid", note="why", warning=True)))
    assert wire.paths() == [f"PATCH {GROUP}/status", f"POST {EVENTS}"]
    event = wire.sent[1][2]
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Invalid", "why")
    wire.errors[EVENTS] = refusal(403)
    await done(writer, write(version="2", event=EventSpec(reason="Valid", note="why")))
    assert queue.seconds_until_due() is None


@pytest.mark.parametrize(("version", "fails"), [("1", True), ("2", False)])
async def test_the_version_in_a_deep_answer_is_read(
    writer: Writer, wire: Wire, retries: RetryState[TreeKey], *, version: str, fails: bool
) -> None:
    """Any user may nest a group by the thousand, and the answer to a merge is the whole group."""
    deep = b"[" * 5000 + b"]" * 5000
    merge = write(Verb.MERGE, part="fields")
    wire.answer = b'{"metadata":{"resourceVersion":"%s","managedFields":%s}}' % (version.encode(), deep)
    await done(writer, merge)
    assert (merge.object_part in retries.failures(TREE)) == fails


@pytest.mark.parametrize("answer", [b"<html>", b"[" * 5000, b'{"metadata": 1}'])
async def test_an_unreadable_answer_to_a_merge_is_no_failure(
    writer: Writer, wire: Wire, retries: RetryState[TreeKey], answer: bytes
) -> None:
    """The server has accepted the write; the watch brings the new state."""
    wire.answer = answer
    merge = write(Verb.MERGE, part="fields")
    await done(writer, merge)
    assert not retries


async def test_a_mistake_after_the_request_does_not_end_the_task(
    writer: Writer,
    wire: Wire,
    metrics: Metrics,
    retries: RetryState[TreeKey],
    expectations: Expectations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as a failure and a mistake, and the next write of the same lane is sent."""
    writer._lanes = writer._lanes[:1]
    with monkeypatch.context() as patched:
        patched.setattr(expectations, "record", lambda *_: 1 / 0)
        await done(writer, write())
    assert write().object_part in retries.failures(TREE)
    snapshot = MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)
    assert "cpg_operator_mistakes_total 1.0" in metrics.page(snapshot).decode()
    await done(writer, write(version="2"))
    assert len(wire.sent) == 2
    assert not retries
