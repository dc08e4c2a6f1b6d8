"""Sends one write to the API server, and the event that belongs to it."""

import msgspec
import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.patching import Event, apply_status, merge, merge_status, record_event
from cpg_operator.writes import MANAGER, EventSpec, Verb, Write


class Sender:
    """Turns writes into requests."""

    def __init__(self, connection: Connection, *, instance: str) -> None:
        """Send nothing yet; ``instance`` is this process in the events that it records."""
        self._connection = connection
        self._instance = instance
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def send(self, write: Write) -> bytes:
        """Send one write; return the object as it is then, or nothing where the answer has none."""
        connection, resource, target = self._connection, write.resource, write.target
        match write.verb:
            case Verb.APPLY_STATUS:
                return await apply_status(
                    connection, resource, target, status=write.body, manager=write.manager, unchanged=write.unchanged
                )
            case Verb.MERGE_STATUS:
                return await merge_status(connection, resource, target, status=write.body, unchanged=write.unchanged)
            case Verb.MERGE:
                return await merge(connection, resource, target, body=write.body, unchanged=write.unchanged)
            case Verb.CREATE:
                return await connection.post(resource.path(target.namespace or None), write.body)
            case Verb.DELETE:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": target.uid}}
                await connection.delete(resource.path(target.namespace or None, target.name), options)
            case Verb.EVENT:
                pass
        return b""

    async def record_event(self, write: Write, spec: EventSpec) -> None:
        """Record an event about a write. A failure is not retried: the object itself shows what was written."""
        event = Event(
            type="Warning" if spec.warning else "Normal",
            reason=spec.reason,
            action="Reconciling",
            note=spec.note,
            cause=spec.cause,
            controller=MANAGER,
            instance=self._instance,
        )
        try:
            await record_event(
                self._connection,
                write.resource,
                write.target,
                event,
                counted=bool(spec.cause),
                only_new=spec.only_new,
            )
        except ClientError as error:
            self._log.warning("event not recorded", object=write.target.key, reason=spec.reason, error=str(error))


class _WithMetadata(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def version_of(answer: bytes) -> str | None:
    """Return the version of the object in an answer, or None where it has no object."""
    return _metadata_of(answer).resource_version or None


def uid_of(answer: bytes) -> str:
    """Return the UID of the object in an answer; empty where it has no object."""
    return _metadata_of(answer).uid


def _metadata_of(answer: bytes) -> ObjectMeta:
    try:
        return decode(answer, _WithMetadata).metadata
    except msgspec.DecodeError:
        return ObjectMeta()
