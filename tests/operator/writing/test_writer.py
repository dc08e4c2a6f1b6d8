"""The one door: what goes over the wire, in which order, and what becomes of what fails."""

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
from cpg_operator.metrics import Facts, Metrics
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import EventSpec, TreeKey, Verb, Write
from cpg_operator.writing.retries import FIRST_RETRY, PartFailure
from cpg_operator.writing.writer import CONFLICT_WAIT, STIRRED_WAIT, Writer

TREE = TreeKey("crd", GroupKey("PodGroup", "default", "a"))
GROUP = "/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups/a"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class Wire:
    """A connection that records requests, and fails as it is told to."""

    timing = Timing(wall=lambda: 0.0)

    def __init__(self) -> None:
        """Let everything through."""
        self.sent: list[tuple[str, str, Any]] = []
        self.errors: dict[str, Exception] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.heard: list[tuple[str, str, bytes]] = []
        self.missing: list[tuple[str, str, str]] = []
        self.stirs = False
        self.answer = b"{}"

    def answered(self, flavour: str, write: Write, answer: bytes) -> bool:
        """Note what a view would be told; say whether it wants another look."""
        self.heard.append((flavour, write.resource.plural, answer))
        return self.stirs

    def missed(self, flavour: str, resource: Resource, target: ObjectMeta) -> None:
        """Note what a view would be told not to be there."""
        self.missing.append((flavour, resource.plural, target.uid))

    async def patch(self, path: str, body: object, *_: object, params: object = None) -> bytes:
        """Take a patch."""
        return await self._take("PATCH", path, (body, params))

    async def post(self, path: str, body: object) -> bytes:
        """Take a new object."""
        return await self._take("POST", path, body)

    async def delete(self, path: str, body: object) -> bytes:
        """Take the end of an object."""
        return await self._take("DELETE", path, body)

    async def _take(self, method: str, path: str, body: object) -> bytes:
        self.sent.append((method, path, body))
        await self.open.wait()
        if path in self.errors:
            raise self.errors[path]
        return self.answer

    def paths(self) -> list[str]:
        """Return what was sent, in few words."""
        return [f"{method} {path}" for method, path, _ in self.sent]


@pytest.fixture
def wire() -> Wire:
    """Return a connection."""
    return Wire()


@pytest.fixture
def dirty() -> WorkQueue[TreeKey]:
    """Return a queue at a time that stands still."""
    return WorkQueue(lambda: 0.0, quiet=0.25, longest=1.0)


@pytest.fixture
def metrics() -> Metrics:
    """Return counters."""
    return Metrics()


@pytest.fixture
async def door(wire: Wire, dirty: WorkQueue[TreeKey], metrics: Metrics) -> AsyncIterator[Writer]:
    """Return a door that works."""
    found = Writer(
        cast("Connection", wire),
        dirty,
        instance="test",
        metrics=metrics,
        answered=wire.answered,
        missed=wire.missed,
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
    """Return what the API server answers."""
    return ApiError(status, "Reason", "message", request="PATCH")


async def test_each_verb_has_its_request(door: Writer, wire: Wire) -> None:
    """With the UID, and the version where it matters."""
    await done(door, write(unchanged=True, manager="m"))
    ((_, path, (body, params)),) = wire.sent
    assert path == f"{GROUP}/status"
    assert body["metadata"] == {"uid": "uid-default-a", "resourceVersion": "1"}
    assert params == {"fieldManager": "m", "force": "true"}
    await done(door, write(Verb.MERGE, part="priority", body={"spec": {"priority": 1}}))
    await done(door, write(Verb.CREATE, part="create"))
    await done(door, replace(write(Verb.DELETE, part="release"), resource=PODS))
    await done(door, write(Verb.TELL, part="told", word=EventSpec(reason="Released", note="n")))
    assert wire.paths()[1:] == [
        f"PATCH {GROUP}",
        "POST /apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups",
        "DELETE /api/v1/namespaces/default/pods/a",
        f"POST {EVENTS}",
    ]
    await done(door, write(Verb.MERGE_STATUS, part="health", body={"domain": None}, unchanged=True))
    assert wire.paths()[-1] == f"PATCH {GROUP}/status"
    assert wire.sent[-1][2][0]["status"] == {"domain": None}
    assert wire.sent[1][2][0] == {"spec": {"priority": 1}, "metadata": {"uid": "uid-default-a"}}
    assert wire.sent[3][2]["preconditions"] == {"uid": "uid-default-a"}


async def done(door: Writer, *writes: Write) -> None:
    """Have writes done."""
    door.want(TREE, writes)
    await door.drained()


def release(version: str, note: str) -> Write:
    """Return the event about one release, as one look words it."""
    return write(
        Verb.TELL, part="told", version=version, body={"since": 1.0}, word=EventSpec(reason="Released", note=note)
    )


async def test_an_event_about_the_same_is_told_once(door: Writer, wire: Wire) -> None:
    """In whatever words, and however often its object is written meanwhile, also while it is being told."""
    wire.open.clear()
    door.want(TREE, [release("1", "deleting 9 pods")])
    await asyncio.sleep(0)
    door.want(TREE, [release("2", "deleting 5 pods")])
    wire.open.set()
    await door.drained()
    await done(door, release("3", "deleting 1 pods"))
    assert [body["note"] for _, _, body in wire.sent] == ["deleting 9 pods"]
    await done(door, replace(release("4", "again"), body={"since": 2.0}))
    assert len(wire.sent) == 2


async def test_what_is_answered_is_news(door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]) -> None:
    """Of what changes an object; and what has waited for a write has its tree looked at again."""
    await done(door, write(), write(Verb.TELL, part="told", word=EventSpec(reason="Released", note="n")))
    assert wire.heard == [("crd", "podgroups", b"{}")]
    assert dirty.wait() is None
    await done(door, write(Verb.MERGE, part="finalizers", again=True))
    assert len(wire.heard) == 2
    assert dirty.wait() == pytest.approx(0.25)


async def test_a_tree_is_looked_at_again_after_the_last_of_its_writes(
    door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]
) -> None:
    """Once, however many of them have brought news; but not after a second, should one of them hang."""
    wire.stirs = True
    wire.open.clear()
    door.want(TREE, [write(part=part) for part in ("health", "validity")])
    door.want(TREE, [write(), write(part="validity", version="2")])
    door._stir(TREE)
    assert dirty.wait() == pytest.approx(STIRRED_WAIT)
    wire.open.set()
    await door.drained()
    assert dirty.wait() == pytest.approx(0.25)
    assert not door._due_of


async def test_what_was_written_is_not_written_again_until_there_is_news(door: Writer, wire: Wire) -> None:
    """Nor while it is being written; a newer state or another body is another write."""
    wire.open.clear()
    door.want(TREE, [write()])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    door.want(TREE, [write()])
    assert len(door) == 0
    wire.open.set()
    await door.drained()
    await done(door, write())
    assert len(wire.sent) == 1
    await done(door, write(body={"x": 2}))
    await done(door, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 3
    door.forget(write().target.uid)
    await done(door, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 4


async def test_of_two_writes_that_wait_the_later_is_sent(door: Writer, wire: Wire) -> None:
    """A burst becomes one request; different parts of an object go one after the other."""
    for number in range(10):
        door.want(TREE, [write(body={"x": number}), write(part="validity", body={"y": 1})])
    assert len(door) == 2
    await door.drained()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 9}, {"y": 1}]


async def test_what_is_no_longer_wanted_is_not_sent(door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]) -> None:
    """Of this tree alone; the place may be written again, and a tree that has handed on its part has nothing to end."""
    other = TreeKey("crd", GroupKey("PodGroup", "default", "b"))
    door.want(other, [write(part="validity")])
    door.want(TREE, [write()])
    door.want(TREE, [])
    assert len(door) == 1
    door._stir(other)
    door.want(TREE, [write(part="validity", version="2")])
    assert dirty.wait() == pytest.approx(0.25)
    door.want(TREE, [write(version="3"), write(part="validity", version="2")])
    await door.drained()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 1}] * 2
    assert not door._due_of


@pytest.mark.parametrize(("wanted", "wait"), [("health", None), (None, 0.25), ("validity", 0.25)])
async def test_what_turns_out_wrong_while_it_is_sent_has_its_tree_looked_at_again(
    door: Writer, wire: Wire, dirty: WorkQueue[TreeKey], *, wanted: str | None, wait: float | None
) -> None:
    """The look had nothing to set right yet; one that wants the very same again has nothing to look for."""
    wire.open.clear()
    door.want(TREE, [write()])
    await asyncio.sleep(0.01)
    door.want(TREE, [write(part=wanted)] if wanted else [])
    wire.open.set()
    await door.drained()
    assert dirty.wait() == (None if wait is None else pytest.approx(wait))


async def test_of_what_is_wanted_once_more_while_it_is_sent_nothing_else_follows(door: Writer, wire: Wire) -> None:
    """One, another, and the first again: what waited is wrong by then."""
    wire.open.clear()
    door.want(TREE, [write()])
    await asyncio.sleep(0.01)
    door.want(TREE, [write(body={"x": 2})])
    door.want(TREE, [write()])
    wire.open.set()
    await door.drained()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 1}]


async def test_what_is_so_already_takes_the_place_of_what_waits(
    door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]
) -> None:
    """And of what is being sent, by another look after it."""
    await done(door, write())
    door.want(TREE, [write(body={"x": 2})])
    door.want(TREE, [write()])
    await door.drained()
    assert len(wire.sent) == 1
    wire.open.clear()
    door.want(TREE, [write(body={"x": 2})])
    await asyncio.sleep(0.01)
    door.want(TREE, [write()])
    wire.open.set()
    await door.drained()
    assert dirty.wait() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("error", "result", "wait"),
    [
        (refusal(404), "gone", None),
        (refusal(409), "conflict", CONFLICT_WAIT),
        (refusal(403), "failure", FIRST_RETRY),
        (ConnectionFailedError("server", "PATCH", "lost"), "failure", FIRST_RETRY),
        (ValueError("a mistake of ours"), "failure", FIRST_RETRY),
    ],
)
async def test_what_fails_is_looked_at_again(
    door: Writer,
    wire: Wire,
    dirty: WorkQueue[TreeKey],
    metrics: Metrics,
    *,
    error: Exception,
    result: str,
    wait: float | None,
) -> None:
    """Soon after a conflict, later after a failure, never where there is nothing left; and the door goes on."""
    wire.errors[f"{GROUP}/status"] = error
    await done(door, write(word=EventSpec(reason="R", note="n")))
    assert len(wire.sent) == 1
    assert dirty.wait() == (None if wait is None else pytest.approx(wait))
    facts = Facts(states=(), queued=0, unwritten=0, age=0.0)
    assert f'result="{result}",verb="apply status"}} 1.0' in metrics.page(facts).decode()
    del wire.errors[f"{GROUP}/status"]
    await done(door, write())
    assert len(wire.sent) == 2


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ('podgroups.scheduling.cpg.dev "a" not found', [("crd", "podgroups", "uid-default-a")]),
        ("404 page not found", []),
    ],
)
async def test_what_is_not_there_is_told(
    door: Writer, wire: Wire, message: str, missing: list[tuple[str, str, str]]
) -> None:
    """The watch may have said so long ago; but not where the whole resource is not served for a moment."""
    wire.errors[f"{GROUP}/status"] = ApiError(404, "NotFound", message, request="PATCH")
    await done(door, write())
    assert wire.missing == missing


async def test_what_could_not_be_created_is_remembered(door: Writer, wire: Wire) -> None:
    """There is no object whose status could say why; that something else works does not end it."""
    wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"] = refusal(422)
    creation = write(Verb.CREATE, part="whole")
    await done(door, creation, write())
    assert door.troubles.of(TREE) == {creation.place: PartFailure(1, "message")}
    del wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"]
    await done(door, creation)
    assert not door.troubles


async def test_a_merge_that_changes_nothing_fails(door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]) -> None:
    """Somebody takes it back, or drops the field: others must not wait for it, and it is not sent again and again."""
    merge = write(Verb.MERGE, part="fields")
    for version, fails in (("1", True), ("2", False)):
        wire.answer = f'{{"metadata": {{"resourceVersion": "{version}"}}}}'.encode()
        await done(door, merge)
        assert (merge.place in door.troubles.of(TREE)) == fails
        merge = replace(merge, body={"x": 2})
    assert len(wire.sent) == 2
    await done(door, merge)
    assert (len(wire.sent), dirty.wait()) == (2, None)


async def test_a_trouble_ends_with_the_wish(door: Writer, wire: Wire) -> None:
    """Nothing is kept of trees that are gone."""
    wire.errors[GROUP] = refusal(403)
    await done(door, write(Verb.MERGE, part="fields"))
    assert door.troubles.of(TREE)
    await done(door)
    assert not door.troubles


async def test_an_event_follows_its_write(door: Writer, wire: Wire, dirty: WorkQueue[TreeKey]) -> None:
    """One that cannot be told fails nothing."""
    await done(door, write(word=EventSpec(reason="Invalid", note="why", warning=True)))
    assert wire.paths() == [f"PATCH {GROUP}/status", f"POST {EVENTS}"]
    event = wire.sent[1][2]
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Invalid", "why")
    wire.errors[EVENTS] = refusal(403)
    await done(door, write(version="2", word=EventSpec(reason="Valid", note="why")))
    assert dirty.wait() is None


@pytest.mark.parametrize(("version", "fails"), [("1", True), ("2", False)])
async def test_the_version_in_a_deep_answer_is_read(door: Writer, wire: Wire, *, version: str, fails: bool) -> None:
    """Any user may nest a group by the thousand, and the answer to a merge is the whole group."""
    deep = b"[" * 5000 + b"]" * 5000
    merge = write(Verb.MERGE, part="fields")
    wire.answer = b'{"metadata":{"resourceVersion":"%s","managedFields":%s}}' % (version.encode(), deep)
    await done(door, merge)
    assert (merge.place in door.troubles.of(TREE)) == fails


@pytest.mark.parametrize("answer", [b"<html>", b"[" * 5000, b'{"metadata": 1}'])
async def test_an_unreadable_answer_to_a_merge_is_no_failure(door: Writer, wire: Wire, answer: bytes) -> None:
    """The server has taken the write; its new state comes through the watch."""
    wire.answer = answer
    merge = write(Verb.MERGE, part="fields")
    await done(door, merge)
    assert not door.troubles


async def test_a_mistake_after_the_request_does_not_end_the_task(
    door: Writer, wire: Wire, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as a failure and a mistake, and the next write of the same worker is sent."""
    door._lanes = door._lanes[:1]
    with monkeypatch.context() as patched:
        patched.setattr("cpg_operator.writing.writer.Expectations.note", lambda *_: 1 / 0)
        await done(door, write())
    assert write().place in door.troubles.of(TREE)
    facts = Facts(states=(), queued=0, unwritten=0, age=0.0)
    assert "cpg_operator_mistakes_total 1.0" in metrics.page(facts).decode()
    await done(door, write(version="2"))
    assert len(wire.sent) == 2
    assert not door.troubles
