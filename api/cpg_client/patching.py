"""The writes of the shells: each a small function that says what it does.

Who changes an object gets the answer, the object as it is then, in case a view wants to know it before the watch tells.

All of them are safe against acting on a namesake: where the server offers it, the UID goes with the request, and
an object that was deleted and made anew in the meantime is answered by a conflict.

**Which patch.** A status that two shells write (groups: the scheduler's attempts, the operator's counts) is
*applied*: each is a field manager, owns what it sends, and neither wipes the other's conditions out. The price is that
a manager must send all that it owns each time. A status with one writer is *merged*, which the server does
at half the cost. A pod's conditions have many writers and a merge key, hence the strategic merge.

**Which events.** ``events.k8s.io/v1``, as kube-scheduler writes: it has fields for who acted and how, where core/v1
wants them put into words, and the same object is read through both.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from cpg_api.core.pod import PodCondition
from cpg_api.meta import ObjectMeta
from cpg_client.answers import read_answer
from cpg_client.connection import APPLY_YAML, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Connection, Params
from cpg_client.errors import ApiError
from cpg_client.resources import BINDING, EVENTS, PODS, STATUS, Resource

_MAX_NOTE_BYTES = 1024
_ELLIPSIS = "…"


async def apply_status(
    connection: Connection,
    resource: Resource,
    target: ObjectMeta,
    *,
    status: object,
    manager: str,
    unchanged: bool = False,
) -> bytes:
    """Own these fields of a status, and no others; fields owned before and not sent now are given up.

    By force, because a conflict here would mean that one name is used by two writers, and not that somebody has
    to decide. With ``unchanged`` only if nobody has written the object since the state that ``target`` is from: for
    a field that several managers write in turn.
    """
    version = {"resourceVersion": target.resource_version} if unchanged else {}
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _identity(target) | version,
        "status": status,
    }
    params = {"fieldManager": manager, "force": "true"}
    return await _patch_guarded(connection, _path(resource, target, STATUS), body, APPLY_YAML, params)


async def merge_status(
    connection: Connection, resource: Resource, target: ObjectMeta, *, status: object, unchanged: bool = False
) -> bytes:
    """Change these fields of a status; lists are replaced whole, and what is null is taken away, whoever wrote it.

    With ``unchanged`` only if nobody has written the object since the state that ``target`` is from: who replaces
    a list must have seen it.
    """
    version = {"resourceVersion": target.resource_version} if unchanged else {}
    body = {"metadata": _identity(target) | version, "status": status}
    return await _patch_guarded(connection, _path(resource, target, STATUS), body, MERGE_PATCH)


async def merge(
    connection: Connection, resource: Resource, target: ObjectMeta, *, body: Mapping[str, Any], unchanged: bool = False
) -> bytes:
    """Change these fields of an object other than its status; with ``unchanged`` as in ``merge_status``."""
    version = {"resourceVersion": target.resource_version} if unchanged else {}
    metadata = {**body.get("metadata", {}), **_identity(target), **version}
    return await _patch_guarded(connection, _path(resource, target), {**body, "metadata": metadata}, MERGE_PATCH)


async def set_pod_status(
    connection: Connection,
    pod: ObjectMeta,
    *conditions: PodCondition,
    nominated_node: str | UnsetType | None = UNSET,
) -> None:
    """Set conditions of a pod, by type, and its nominated node: ``None`` clears it, nothing leaves it."""
    status: dict[str, Any] = {}
    if conditions:
        status["conditions"] = [_spell_out(condition) for condition in conditions]
    if nominated_node is not UNSET:
        status["nominatedNodeName"] = nominated_node
    body = {"metadata": _identity(pod), "status": status}
    await _patch_guarded(connection, _path(PODS, pod, STATUS), body, STRATEGIC_MERGE_PATCH)


async def bind(connection: Connection, pod: ObjectMeta, node: str) -> None:
    """Bind a pod to a node; a conflict says that it is bound, being deleted, or another pod by now."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace} | _identity(pod),
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await connection.post(_path(PODS, pod, BINDING), body)


async def delete_pod(
    connection: Connection, pod: ObjectMeta, *, grace_period_seconds: int | None = None, dry_run: bool = False
) -> None:
    """Delete this very pod, and none that took its name; without a number it gets the grace period of its spec.

    In a dry run the server only tells whether it would, admission included.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    await connection.delete(_path(PODS, pod), options)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an object, for people: ``reason`` in one word, ``note`` in a sentence.

    ``action`` is what was being done, ``controller`` who did it, ``instance`` which of its replicas. Events that are
    counted are one where their ``cause`` is, or, without one, their note.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    controller: str
    instance: str
    cause: str = ""


async def record_event(
    connection: Connection,
    resource: Resource,
    target: ObjectMeta,
    event: Event,
    *,
    related: tuple[Resource, ObjectMeta] | None = None,
    counted: bool = False,
) -> None:
    """Write an event about an object, into its namespace; one about a cluster-scoped object goes to ``default``.

    ``related`` is another object that has to do with it. Where it is ``counted``, the same cause at the same object
    is one event, whoever told of it before, for as long as the server keeps it. To a namespace that is being deleted
    nobody can tell anything any more, and nobody will ask.
    """
    namespace, start = target.namespace or "default", target.name[:200].rstrip("-.")
    name = {"name": f"{start}.{_event_digest(target, event)}"} if counted else {"generateName": f"{start}-"}
    body = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {**name, "namespace": namespace},
        "eventTime": connection.timing.timestamp(),
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": _truncate_note(event.note),
        "regarding": _reference(resource, target),
        "reportingController": event.controller,
        "reportingInstance": event.instance[:128],
    }
    if related is not None:
        body["related"] = _reference(*related)
    try:
        await connection.post(EVENTS.path(namespace), body)
    except ApiError as error:
        if error.is_namespace_ending:
            return
        if not (counted and error.is_already_exists):
            raise
        await _count_event(connection, EVENTS.path(namespace, name["name"]))


class _EventSeries(msgspec.Struct):
    count: int = 1


class _CountedEvent(msgspec.Struct):
    series: _EventSeries | None = None


async def _count_event(connection: Connection, path: str) -> None:
    """Note that an event has come once more; two who note it at once may count one, which nobody will miss."""
    answer = await connection.get(path)
    before = read_answer(answer, _CountedEvent, request=f"GET {path}", expected="an event").series or _EventSeries()
    series = {"count": before.count + 1, "lastObservedTime": connection.timing.timestamp()}
    await connection.patch(path, {"series": series}, MERGE_PATCH)


def _event_digest(target: ObjectMeta, event: Event) -> str:
    said = (target.uid, event.type, event.reason, event.action, event.cause or event.note, event.controller)
    return hashlib.blake2b("\0".join(said).encode(), digest_size=8).hexdigest()


async def _patch_guarded(
    connection: Connection, path: str, body: object, content_type: str, params: Params | None = None
) -> bytes:
    """Send a patch; another UID, which the server calls an invalid change, is a conflict here as everywhere else."""
    try:
        return await connection.patch(path, body, content_type, params=params)
    except ApiError as error:
        if any(cause.field == "metadata.uid" for cause in error.causes):
            message = f"another object has this name: {error.message}"
            raise ApiError(HTTPStatus.CONFLICT, "Conflict", message, request=error.request) from error
        raise


def _path(resource: Resource, target: ObjectMeta, subresource: str | None = None) -> str:
    return resource.path(target.namespace or None, target.name, subresource)


def _identity(target: ObjectMeta) -> dict[str, str]:
    """Return the precondition: the UID, where it is known."""
    return {"uid": target.uid} if target.uid else {}


def _reference(resource: Resource, target: ObjectMeta) -> dict[str, str]:
    reference = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": target.name,
        "namespace": target.namespace,
        "resourceVersion": target.resource_version,
    }
    return reference | _identity(target)


def _spell_out(condition: PodCondition) -> dict[str, Any]:
    """Spell a condition out: in a patch, a field left out would stay as it was."""
    spelled: dict[str, Any] = msgspec.to_builtins(condition)
    return {"reason": None, "message": None, **spelled}


def _truncate_note(note: str) -> str:
    """Cut a note to the 1 kB that the server takes, between two characters."""
    data = note.encode()
    if len(data) <= _MAX_NOTE_BYTES:
        return note
    return data[: _MAX_NOTE_BYTES - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS
