"""The requests that become of writes, and the events after them."""

import asyncio

from msgspec.structs import replace

from cpg_client.resources import PODS
from cpg_operator.testing.connections import EVENTS, GROUP, TREE, RecordingConnection, api_error, write, write_all
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import EventSpec, TreeKey, Verb, Write
from cpg_operator.writing.writer import Writer


async def test_each_verb_sends_its_request(writer: Writer, wire: RecordingConnection) -> None:
    """With the UID, and with the version where the write must not overwrite anything newer."""
    await write_all(writer, write(unchanged=True, manager="m"))
    ((_, path, (body, params)),) = wire.sent
    assert path == f"{GROUP}/status"
    assert body["metadata"] == {"uid": "uid-default-a", "resourceVersion": "1"}
    assert params == {"fieldManager": "m", "force": "true"}
    await write_all(writer, write(Verb.MERGE, part="priority", body={"spec": {"priority": 1}}))
    await write_all(writer, write(Verb.CREATE, part="create"))
    await write_all(writer, replace(write(Verb.DELETE, part="release"), resource=PODS))
    await write_all(writer, write(Verb.EVENT, part="release", event=EventSpec(reason="Released", note="n")))
    assert wire.paths()[1:] == [
        f"PATCH {GROUP}",
        "POST /apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups",
        "DELETE /api/v1/namespaces/default/pods/a",
        f"POST {EVENTS}",
    ]
    await write_all(writer, write(Verb.MERGE_STATUS, part="health", body={"domain": None}, unchanged=True))
    assert wire.paths()[-1] == f"PATCH {GROUP}/status"
    assert wire.sent[-1][2][0]["status"] == {"domain": None}
    assert wire.sent[1][2][0] == {"spec": {"priority": 1}, "metadata": {"uid": "uid-default-a"}}
    assert wire.sent[3][2]["preconditions"] == {"uid": "uid-default-a"}


def release(version: str, note: str) -> Write:
    """Return the event about one release, as one reconcile words it."""
    return write(
        Verb.EVENT, part="release", version=version, body={"since": 1.0}, event=EventSpec(reason="Released", note=note)
    )


async def test_one_occasion_gets_one_event(writer: Writer, wire: RecordingConnection) -> None:
    """Other words and other writes to the object do not repeat it, also while it is in flight."""
    wire.open.clear()
    writer.submit(TREE, [release("1", "deleting 9 pods")])
    await asyncio.sleep(0)
    writer.submit(TREE, [release("2", "deleting 5 pods")])
    wire.open.set()
    await writer.drain()
    await write_all(writer, release("3", "deleting 1 pods"))
    assert [body["note"] for _, _, body in wire.sent] == ["deleting 9 pods"]
    await write_all(writer, replace(release("4", "again"), body={"since": 2.0}))
    assert len(wire.sent) == 2


async def test_events_of_one_cause_have_one_name(writer: Writer, wire: RecordingConnection) -> None:
    """The API server has the event already, and it is left as it is."""
    wire.errors[EVENTS] = api_error(409, "AlreadyExists")
    for number, note in enumerate(("no room", "less room")):
        event = EventSpec(reason="Unschedulable", note=note, cause="Unschedulable", only_new=True)
        await write_all(writer, write(Verb.EVENT, part="placement", body={"number": number}, event=event))
    assert wire.paths() == [f"POST {EVENTS}"] * 2
    assert len({body["metadata"]["name"] for _, _, body in wire.sent}) == 1


async def test_an_event_follows_its_write(writer: Writer, wire: RecordingConnection, queue: WorkQueue[TreeKey]) -> None:
    """An event that cannot be recorded fails nothing."""
    await write_all(writer, write(event=EventSpec(reason="Invalid", note="why", warning=True)))
    assert wire.paths() == [f"PATCH {GROUP}/status", f"POST {EVENTS}"]
    event = wire.sent[1][2]
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Invalid", "why")
    wire.errors[EVENTS] = api_error(403)
    await write_all(writer, write(version="2", event=EventSpec(reason="Valid", note="why")))
    assert queue.seconds_until_due() is None
