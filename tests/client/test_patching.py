"""Writes on the wire."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import ObjectMeta
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError
from cpg_client.patching import (
    Event,
    apply_status,
    bind,
    delete_pod,
    merge,
    merge_status,
    record_event,
    set_pod_status,
    touch_pod,
)
from cpg_client.resources import CPG_POD_GROUPS, NODES, PODS

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, VirtualTime

POD = ObjectMeta(name="web", namespace="ns", uid="u-1", resource_version="7")
STATUS_OF_POD = "/api/v1/namespaces/ns/pods/web/status"
GROUP = "/apis/scheduling.cpg.dev/v1alpha3/namespaces/ns/podgroups/web/status"
EVENT = Event(
    type="Warning", reason="FailedScheduling", action="Scheduling", note="no", controller="cpg", instance="cpg-0"
)


def sent(server: "FakeServer") -> object:
    """Return the body of the last request."""
    return msgspec.json.decode(server.seen[-1].body)


async def test_a_status_is_applied(server: "FakeServer", connection: Connection) -> None:
    """By force, with the manager's name and the object's UID."""
    server.answers("PATCH", GROUP)
    await apply_status(connection, CPG_POD_GROUPS, POD, status={"conditions": []}, manager="cpg-scheduler")
    assert sent(server) == {
        "apiVersion": "scheduling.cpg.dev/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"uid": "u-1"},
        "status": {"conditions": []},
    }
    seen = server.seen[0]
    assert seen.query == {"fieldManager": "cpg-scheduler", "force": "true"}
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"


async def test_a_status_is_applied_at_its_version(server: "FakeServer", connection: Connection) -> None:
    """With ``unchanged``, for fields that several managers write in turn."""
    server.answers("PATCH", GROUP)
    await apply_status(connection, CPG_POD_GROUPS, POD, status={}, manager="m", unchanged=True)
    assert msgspec.json.decode(server.seen[0].body)["metadata"] == {"uid": "u-1", "resourceVersion": "7"}


@pytest.mark.parametrize(("unchanged", "version"), [(False, {}), (True, {"resourceVersion": "7"})])
async def test_an_object_is_merged(
    server: "FakeServer", connection: Connection, version: dict[str, str], *, unchanged: bool
) -> None:
    """The UID is sent beside other metadata."""
    server.answers("PATCH", GROUP.removesuffix("/status"))
    body = {"metadata": {"finalizers": ["f"]}, "spec": {"priority": 1}}
    await merge(connection, CPG_POD_GROUPS, POD, body=body, unchanged=unchanged)
    assert sent(server) == {"metadata": {"finalizers": ["f"], "uid": "u-1"} | version, "spec": {"priority": 1}}
    assert server.seen[0].headers["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(("unchanged", "version"), [(False, {}), (True, {"resourceVersion": "7"})])
async def test_a_status_is_merged(
    server: "FakeServer", connection: Connection, version: dict[str, str], *, unchanged: bool
) -> None:
    """With ``unchanged`` only at its version; the new object is returned."""
    server.answers("PATCH", GROUP, {"kind": "PodGroup"})
    answer = await merge_status(connection, CPG_POD_GROUPS, POD, status={"pods": 3}, unchanged=unchanged)
    assert answer == b'{"kind":"PodGroup"}'
    assert sent(server) == {"metadata": {"uid": "u-1"} | version, "status": {"pods": 3}}
    assert server.seen[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_conditions_of_a_pod_are_merged_by_type(server: "FakeServer", connection: Connection) -> None:
    """Each is sent with all its fields; the nominated node is left alone."""
    server.answers("PATCH", STATUS_OF_POD)
    failed = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no")
    await set_pod_status(connection, POD, failed, PodCondition(type="Other", status="True"))
    expected = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"},
        {"type": "Other", "status": "True", "reason": None, "message": None},
    ]
    assert sent(server) == {"metadata": {"uid": "u-1"}, "status": {"conditions": expected}}
    assert server.seen[0].headers["Content-Type"] == "application/strategic-merge-patch+json"


async def test_another_uid_is_a_conflict(server: "FakeServer", connection: Connection) -> None:
    """The server calls it invalid; other refusals stay as they are."""
    causes = [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]
    invalid = {"kind": "Status", "reason": "Invalid", "message": "uid", "details": {"causes": causes}}
    server.answers("PATCH", STATUS_OF_POD, invalid, status=422)
    server.answers("PATCH", STATUS_OF_POD, status=422)
    with pytest.raises(ApiError, match="409 Conflict: another object has this name") as caught:
        await set_pod_status(connection, POD, nominated_node=None)
    assert caught.value.is_conflict
    with pytest.raises(ApiError, match="422"):
        await set_pod_status(connection, POD, nominated_node=None)


@pytest.mark.parametrize("node", ["n1", None])
async def test_the_nominated_node_is_set_and_cleared(
    server: "FakeServer", connection: Connection, node: str | None
) -> None:
    """None clears it, UNSET leaves it."""
    server.answers("PATCH", STATUS_OF_POD)
    await set_pod_status(connection, POD, nominated_node=node)
    assert sent(server) == {"metadata": {"uid": "u-1"}, "status": {"nominatedNodeName": node}}


@pytest.mark.parametrize("conditions", [(), (PodCondition(type="PodScheduled", status="False"),)])
async def test_a_pod_is_touched(
    server: "FakeServer", connection: Connection, conditions: tuple[PodCondition, ...]
) -> None:
    """Only the probe time of its condition changes, at its version. A missing condition is not known to be anything."""
    server.answers("PATCH", STATUS_OF_POD)
    assert await touch_pod(connection, Pod(metadata=POD, status=PodStatus(conditions=conditions)))
    body = msgspec.json.decode(server.seen[0].body)
    (condition,) = body["status"]["conditions"]
    assert body["metadata"] == {"uid": "u-1", "resourceVersion": "7"}
    assert condition.keys() - {"lastProbeTime"} == ({"type"} if conditions else {"type", "status"})


@pytest.mark.parametrize(("status", "changed"), [(409, True), (404, True), (403, False)])
async def test_a_pod_that_cannot_be_touched_may_have_changed(
    server: "FakeServer", connection: Connection, status: int, *, changed: bool
) -> None:
    """Then its watch has something to show as well."""
    server.answers("PATCH", STATUS_OF_POD, {"kind": "Status"}, status=status)
    assert await touch_pod(connection, Pod(metadata=POD)) is changed


async def test_a_pod_is_bound(server: "FakeServer", connection: Connection) -> None:
    """The binding has pod, UID and node; a refusal is raised."""
    path = "/api/v1/namespaces/ns/pods/web/binding"
    server.answers("POST", path, status=201)
    server.answers("POST", path, status=409)
    await bind(connection, POD, "n1")
    assert sent(server) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web", "namespace": "ns", "uid": "u-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    with pytest.raises(ApiError, match="409 Conflict"):
        await bind(connection, POD, "n1")


@pytest.mark.parametrize(("seconds", "more"), [(None, {}), (0, {"gracePeriodSeconds": 0})])
async def test_a_pod_is_deleted_by_uid(
    server: "FakeServer", connection: Connection, seconds: int | None, more: dict[str, int]
) -> None:
    """Another pod of the same name is safe. By default the grace period is the pod's own."""
    server.answers("DELETE", "/api/v1/namespaces/ns/pods/web")
    await delete_pod(connection, POD, grace_period_seconds=seconds)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u-1"}}
    assert sent(server) == options | more


@pytest.fixture
async def timed(server: "FakeServer", virtual: "VirtualTime") -> AsyncIterator[Connection]:
    """Connect with virtual time."""
    async with Connection(Endpoint(server=server.url), timing=virtual.timing) as connection:
        yield connection


async def test_an_event_is_recorded(server: "FakeServer", timed: Connection) -> None:
    """With the object, the controller, the action and the time."""
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", status=201)
    await record_event(timed, PODS, POD, EVENT)
    assert sent(server) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "web-", "namespace": "ns"},
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "no",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "namespace": "ns",
            "uid": "u-1",
            "resourceVersion": "7",
        },
        "reportingController": "cpg",
        "reportingInstance": "cpg-0",
    }


async def test_an_event_about_a_node_is_in_the_default_namespace(server: "FakeServer", timed: Connection) -> None:
    """An unknown UID is left out."""
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/default/events", status=201)
    await record_event(timed, NODES, ObjectMeta(name="n1"), EVENT)
    regarding = {"apiVersion": "v1", "kind": "Node", "name": "n1", "namespace": "", "resourceVersion": ""}
    assert msgspec.convert(sent(server), dict[str, object])["regarding"] == regarding


async def test_events_in_a_terminating_namespace_are_dropped(server: "FakeServer", timed: Connection) -> None:
    """Other refusals are raised."""
    refusal = {"kind": "Status", "reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", refusal, status=403)
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", {"kind": "Status"}, status=403)
    await record_event(timed, PODS, POD, EVENT)
    with pytest.raises(ApiError, match="403"):
        await record_event(timed, PODS, POD, EVENT)


async def test_long_notes_and_names_are_truncated(server: "FakeServer", timed: Connection) -> None:
    """A note has at most a kilobyte, cut between two characters."""
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", status=201)
    note, name = "ä" * 2000, "x" * 199 + "-" + "y" * 50
    event = msgspec.structs.replace(EVENT, note=note, instance="z" * 500)
    await record_event(timed, PODS, msgspec.structs.replace(POD, name=name), event)
    body = msgspec.convert(sent(server), dict[str, object])
    assert body["note"] == "ä" * 510 + "…"
    assert body["metadata"] == {"generateName": "x" * 199 + "-", "namespace": "ns"}
    assert body["reportingInstance"] == "z" * 128


async def test_repeated_events_are_counted(server: "FakeServer", timed: Connection) -> None:
    """The event has the count and the time of the last one; another note is another event."""
    events = "/apis/events.k8s.io/v1/namespaces/ns/events"
    server.answers("POST", events)
    server.answers("POST", events)
    server.answers("POST", events, {"kind": "Status", "reason": "AlreadyExists"}, status=409)
    await record_event(timed, PODS, POD, EVENT, counted=True)
    name = msgspec.json.decode(server.seen[-1].body)["metadata"]["name"]
    await record_event(timed, PODS, POD, msgspec.structs.replace(EVENT, note="else"), counted=True)
    assert msgspec.json.decode(server.seen[-1].body)["metadata"]["name"] != name
    server.answers("PATCH", f"{events}/{name}")
    for answer in ({}, {"series": {"count": 7}}):
        server.answers("GET", f"{events}/{name}", answer)
    for count in (2, 8):
        await record_event(timed, PODS, POD, EVENT, counted=True)
        assert msgspec.json.decode(server.seen[-1].body)["series"]["count"] == count
    with pytest.raises(ApiError, match="AlreadyExists"):
        await record_event(timed, PODS, POD, EVENT)


async def test_an_event_that_is_only_new_is_not_counted(server: "FakeServer", timed: Connection) -> None:
    """One that exists is left as it is."""
    exists = {"kind": "Status", "reason": "AlreadyExists"}
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", exists, status=409)
    await record_event(timed, PODS, POD, EVENT, counted=True, only_new=True)
    assert [one.method for one in server.seen] == ["POST"]


async def test_events_with_the_same_cause_are_one(server: "FakeServer", timed: Connection) -> None:
    """A changing number in the note makes no new event."""
    names = set()
    for note, cause in (("1 node is full", "full"), ("2 nodes are full", "full"), ("2 nodes are full", "")):
        server.answers("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
        event = msgspec.structs.replace(EVENT, note=note, cause=cause)
        await record_event(timed, PODS, POD, event, counted=True)
        body = msgspec.json.decode(server.seen[-1].body)
        names.add(body["metadata"]["name"])
        assert body["note"] == note
    assert len(names) == 2
