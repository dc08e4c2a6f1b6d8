"""Writes to the API server, one small function for each.

Functions that change an object return the new object, so that a cache can use it before the watch delivers it.

**Which object.** Every write names the UID, so a new object of the same name is a conflict. The API server ignores the
UID in one case: in the status of a custom resource. There a late write may land on a new object, unless it names the
version as well (``unchanged``). A write without a version must be one that its writer corrects once the watch shows it.

**Which patch.** A group's status has two writers: the scheduler (attempts) and the operator (counts). So it is
*applied*: each writer is a field manager, owns what it sends, and does not remove the other's conditions. The price is
that a manager sends everything it owns each time. A status with one writer is *merged*, which costs the server half. A
pod's conditions have many writers and a merge key, hence the strategic merge.

**Which events.** ``events.k8s.io/v1``, as in kube-scheduler: it has fields for the actor and the action, and core/v1
returns the same object.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import POD_SCHEDULED
from cpg_client.answers import read_answer
from cpg_client.connection import APPLY_YAML, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Connection, Params
from cpg_client.errors import ApiError, ClientError
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
    """Apply these fields of a status; fields applied before and not sent now are removed.

    The apply is forced: a conflict could only mean that two writers use one manager. With ``unchanged`` it succeeds
    only if the object has still the version of ``target``, for a field that several managers write in turn, or that is
    never corrected.
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
    """Merge these fields into a status. Lists are replaced whole, and null removes a field of any writer.

    With ``unchanged`` it succeeds only if the object has still the version of ``target``: a replaced list must be based
    on the current one.
    """
    version = {"resourceVersion": target.resource_version} if unchanged else {}
    body = {"metadata": _identity(target) | version, "status": status}
    return await _patch_guarded(connection, _path(resource, target, STATUS), body, MERGE_PATCH)


async def merge(
    connection: Connection, resource: Resource, target: ObjectMeta, *, body: Mapping[str, Any], unchanged: bool = False
) -> bytes:
    """Merge fields outside of the status; ``unchanged`` is as in ``merge_status``."""
    version = {"resourceVersion": target.resource_version} if unchanged else {}
    metadata = {**body.get("metadata", {}), **_identity(target), **version}
    return await _patch_guarded(connection, _path(resource, target), {**body, "metadata": metadata}, MERGE_PATCH)


async def set_pod_status(
    connection: Connection,
    pod: ObjectMeta,
    *conditions: PodCondition,
    nominated_node: str | UnsetType | None = UNSET,
) -> None:
    """Set conditions of a pod by type, and its nominated node: ``None`` clears it, UNSET leaves it."""
    status: dict[str, Any] = {}
    if conditions:
        status["conditions"] = [_spell_out(condition) for condition in conditions]
    if nominated_node is not UNSET:
        status["nominatedNodeName"] = nominated_node
    body = {"metadata": _identity(pod), "status": status}
    await _patch_guarded(connection, _path(PODS, pod, STATUS), body, STRATEGIC_MERGE_PATCH)


async def touch_pod(connection: Connection, pod: Pod) -> bool:
    """Change a pod in nothing that matters, so that watches show its version; return whether it changes or has changed.

    What changes is when its condition PodScheduled was probed last. The write succeeds only if the pod has still its
    version: a condition that is missing in ours may be there by now.
    """
    has_condition = any(one.type == POD_SCHEDULED for one in pod.status.conditions or ())
    condition = {"type": POD_SCHEDULED, "lastProbeTime": f"{connection.timing.timestamp()[:19]}Z"}
    if not has_condition:
        condition["status"] = "Unknown"
    meta = pod.metadata
    body = {
        "metadata": _identity(meta) | {"resourceVersion": meta.resource_version},
        "status": {"conditions": [condition]},
    }
    try:
        await connection.patch(_path(PODS, meta, STATUS), body, STRATEGIC_MERGE_PATCH)
    except ClientError as error:
        return isinstance(error, ApiError) and (error.is_conflict or error.is_not_found)
    return True


async def bind(connection: Connection, pod: ObjectMeta, node: str) -> None:
    """Bind a pod to a node. A conflict means that it is bound, being deleted, or replaced by another pod."""
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
    """Delete this pod, by UID; the default grace period is that of its spec.

    In a dry run the server only checks whether it would delete the pod, including admission.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    await connection.delete(_path(PODS, pod), options)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event about an object: ``reason`` is one word, ``note`` a sentence.

    ``action`` is what the ``controller`` did, ``instance`` is its replica. Counted events with the same ``cause`` are
    one event; without a cause, those with the same note.
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
    only_new: bool = False,
) -> None:
    """Create an event about an object in its namespace, or in ``default`` for a cluster-scoped object.

    ``related`` is a second object. If ``counted``, the same cause at the same object is one event with a count, for as
    long as the server keeps it; with ``only_new``, one that exists is left as it is. Events in a namespace that is
    being deleted are dropped.
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
        if not only_new:
            await _count_event(connection, EVENTS.path(namespace, name["name"]))


class _EventSeries(msgspec.Struct):
    count: int = 1


class _CountedEvent(msgspec.Struct):
    series: _EventSeries | None = None


async def _count_event(connection: Connection, path: str) -> None:
    """Increase the count of an event. Two concurrent increases may count as one, which is acceptable."""
    answer = await connection.get(path)
    before = read_answer(answer, _CountedEvent, request=f"GET {path}", expected="an event").series or _EventSeries()
    series = {"count": before.count + 1, "lastObservedTime": connection.timing.timestamp()}
    await connection.patch(path, {"series": series}, MERGE_PATCH)


def _event_digest(target: ObjectMeta, event: Event) -> str:
    parts = (target.uid, event.type, event.reason, event.action, event.cause or event.note, event.controller)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


async def _patch_guarded(
    connection: Connection, path: str, body: object, content_type: str, params: Params | None = None
) -> bytes:
    """Send a patch. The server reports another UID as an invalid change; here it is a conflict as well."""
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
    """Return the UID as a precondition, where it is known."""
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
    """Return a condition with all fields: a patch leaves missing fields as they were."""
    spelled: dict[str, Any] = msgspec.to_builtins(condition)
    return {"reason": None, "message": None, **spelled}


def _truncate_note(note: str) -> str:
    """Truncate a note to the 1 kB that the server accepts, between two characters."""
    data = note.encode()
    if len(data) <= _MAX_NOTE_BYTES:
        return note
    return data[: _MAX_NOTE_BYTES - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS
