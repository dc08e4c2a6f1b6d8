"""The order of writes, and which of them are not sent."""

import asyncio

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_operator.testing.connections import TREE, RecordingConnection, write, write_all
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import EventSpec, TreeKey, Verb
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.writer import PENDING_WRITES_WAIT_SECONDS, Writer


async def test_an_answer_goes_into_the_view(
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]
) -> None:
    """An event has no answer; a write that others wait for has its tree reconciled again."""
    await write_all(writer, write(), write(Verb.EVENT, part="release", event=EventSpec(reason="Released", note="n")))
    assert wire.answers == [("crd", "podgroups", b"{}")]
    assert queue.seconds_until_due() is None
    await write_all(writer, write(Verb.MERGE, part="finalizers", requeue=True))
    assert len(wire.answers) == 2
    assert queue.seconds_until_due() == pytest.approx(0.25)


async def test_a_tree_is_reconciled_again_after_the_last_of_its_writes(
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]
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
    writer: Writer, wire: RecordingConnection, expectations: Expectations
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
    await write_all(writer, write())
    assert len(wire.sent) == 1
    await write_all(writer, write(body={"x": 2}))
    await write_all(writer, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 3
    expectations.forget(write().target.uid)
    await write_all(writer, write(version="2", body={"x": 2}))
    assert len(wire.sent) == 4


async def test_a_pending_write_is_replaced_by_a_later_one(writer: Writer, wire: RecordingConnection) -> None:
    """A burst becomes one request; different parts of an object are sent one after the other."""
    for number in range(10):
        writer.submit(TREE, [write(body={"x": number}), write(part="validity", body={"y": 1})])
    assert len(writer) == 2
    await writer.drain()
    assert [body[0]["status"] for _, _, body in wire.sent] == [{"x": 9}, {"y": 1}]


async def test_a_pending_write_that_is_no_longer_wanted_is_not_sent(
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]
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
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey], *, wanted: str | None, wait: float | None
) -> None:
    """The reconcile had nothing to correct yet; one that wants the same write again needs no other."""
    wire.open.clear()
    writer.submit(TREE, [write()])
    await asyncio.sleep(0.01)
    writer.submit(TREE, [write(part=wanted)] if wanted else [])
    wire.open.set()
    await writer.drain()
    assert queue.seconds_until_due() == (None if wait is None else pytest.approx(wait))


async def test_a_write_that_is_wanted_again_while_in_flight_drops_what_is_pending(
    writer: Writer, wire: RecordingConnection
) -> None:
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
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]
) -> None:
    """A different write in flight has the tree reconciled after it."""
    await write_all(writer, write())
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


async def test_what_was_created_lately_is_created_again_once_the_view_has_seen_its_end(
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]
) -> None:
    """Before, the view may not show it yet, and the tree is reconciled again a few seconds later."""
    wire.answer = b'{"metadata": {"uid": "first"}}'
    creation = write(Verb.CREATE, part="whole")
    await write_all(writer, creation)
    await write_all(writer, creation)
    assert (len(wire.sent), queue.seconds_until_due() is not None) == (1, True)
    wire.deleted.add("first")
    await write_all(writer, creation)
    assert len(wire.sent) == 2
