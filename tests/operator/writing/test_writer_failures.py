"""What follows a failed write."""

import pytest
from msgspec.structs import replace

from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.testing.connections import GROUP, TREE, RecordingConnection, api_error, write, write_all
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import EventSpec, TreeKey, Verb
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import FIRST_RETRY_SECONDS, PartFailure, RetryState
from cpg_operator.writing.writer import CONFLICT_WAIT_SECONDS, Writer


@pytest.mark.parametrize(
    ("error", "result", "wait"),
    [
        (api_error(404), "gone", None),
        (api_error(409), "conflict", CONFLICT_WAIT_SECONDS),
        (api_error(403), "failure", FIRST_RETRY_SECONDS),
        (ConnectionFailedError("server", "PATCH", "lost"), "failure", FIRST_RETRY_SECONDS),
        (ValueError("a defect of ours"), "failure", FIRST_RETRY_SECONDS),
    ],
)
async def test_a_failed_write_has_its_tree_reconciled_again(
    writer: Writer,
    wire: RecordingConnection,
    queue: WorkQueue[TreeKey],
    metrics: OperatorMetrics,
    *,
    error: Exception,
    result: str,
    wait: float | None,
) -> None:
    """Soon after a conflict, later after a failure, not after a missing object; and the writer goes on."""
    wire.errors[f"{GROUP}/status"] = error
    await write_all(writer, write(event=EventSpec(reason="R", note="n")))
    assert len(wire.sent) == 1
    assert queue.seconds_until_due() == (None if wait is None else pytest.approx(wait))
    snapshot = MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)
    assert f'result="{result}",verb="apply status"}} 1.0' in metrics.page(snapshot).decode()
    del wire.errors[f"{GROUP}/status"]
    await write_all(writer, write())
    assert len(wire.sent) == 2


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ('podgroups.scheduling.cpg.dev "a" not found', [("crd", "podgroups", "uid-default-a")]),
        ("404 page not found", []),
    ],
)
async def test_a_missing_object_is_removed_from_the_view(
    writer: Writer, wire: RecordingConnection, message: str, missing: list[tuple[str, str, str]]
) -> None:
    """Its deletion may have gone unheard. A resource that is not served for a moment removes nothing."""
    wire.errors[f"{GROUP}/status"] = ApiError(404, "NotFound", message, request="PATCH")
    await write_all(writer, write())
    assert wire.missing == missing


async def test_a_failed_creation_is_remembered(
    writer: Writer, wire: RecordingConnection, retries: RetryState[TreeKey]
) -> None:
    """No object has a status that could show it; a success of another part does not end it."""
    wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"] = api_error(422)
    creation = write(Verb.CREATE, part="whole")
    await write_all(writer, creation, write())
    assert retries.failures(TREE) == {creation.object_part: PartFailure(1, "message")}
    del wire.errors["/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups"]
    await write_all(writer, creation)
    assert not retries


async def test_a_merge_that_changes_nothing_fails(
    writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey], retries: RetryState[TreeKey]
) -> None:
    """A webhook drops the field: other writes must not wait for the merge, and it is not repeated."""
    merge = write(Verb.MERGE, part="fields")
    for version, fails in (("1", True), ("2", False)):
        wire.answer = f'{{"metadata": {{"resourceVersion": "{version}"}}}}'.encode()
        await write_all(writer, merge)
        assert (merge.object_part in retries.failures(TREE)) == fails
        merge = replace(merge, body={"x": 2})
    assert len(wire.sent) == 2
    await write_all(writer, merge)
    assert (len(wire.sent), queue.seconds_until_due()) == (2, None)


async def test_a_failure_is_forgotten_once_its_write_is_not_wanted(
    writer: Writer, wire: RecordingConnection, retries: RetryState[TreeKey]
) -> None:
    """Nothing is kept of deleted trees."""
    wire.errors[GROUP] = api_error(403)
    await write_all(writer, write(Verb.MERGE, part="fields"))
    assert retries.failures(TREE)
    await write_all(writer)
    assert not retries


@pytest.mark.parametrize(("version", "fails"), [("1", True), ("2", False)])
async def test_the_version_in_a_deep_answer_is_read(
    writer: Writer, wire: RecordingConnection, retries: RetryState[TreeKey], *, version: str, fails: bool
) -> None:
    """Any user may nest a group by the thousand, and the answer to a merge is the whole group."""
    deep = b"[" * 5000 + b"]" * 5000
    merge = write(Verb.MERGE, part="fields")
    wire.answer = b'{"metadata":{"resourceVersion":"%s","managedFields":%s}}' % (version.encode(), deep)
    await write_all(writer, merge)
    assert (merge.object_part in retries.failures(TREE)) == fails


@pytest.mark.parametrize("answer", [b"<html>", b"[" * 5000, b'{"metadata": 1}'])
async def test_an_unreadable_answer_to_a_merge_is_no_failure(
    writer: Writer, wire: RecordingConnection, retries: RetryState[TreeKey], answer: bytes
) -> None:
    """The server has accepted the write; the watch brings the new state."""
    wire.answer = answer
    merge = write(Verb.MERGE, part="fields")
    await write_all(writer, merge)
    assert not retries


async def test_a_mistake_after_the_request_does_not_end_the_task(
    writer: Writer,
    wire: RecordingConnection,
    metrics: OperatorMetrics,
    retries: RetryState[TreeKey],
    expectations: Expectations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as a failure and a mistake, and the next write of the same lane is sent."""
    writer._lanes = writer._lanes[:1]
    with monkeypatch.context() as patched:
        patched.setattr(expectations, "record", lambda *_: 1 / 0)
        await write_all(writer, write())
    assert write().object_part in retries.failures(TREE)
    snapshot = MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)
    assert "cpg_operator_mistakes_total 1.0" in metrics.page(snapshot).decode()
    await write_all(writer, write(version="2"))
    assert len(wire.sent) == 2
    assert not retries
