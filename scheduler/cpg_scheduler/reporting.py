"""Conditions and events: what the scheduler says about pods and groups, once, and again only when it changes.

Writing is behind deciding: a report replaces the one about the same object that has not been sent yet, so that a
burst of attempts becomes one write. What was said last is remembered, because the watch shows a write only later.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition, set_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    REASON_SCHEDULED,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import Event, apply_status, record_event, set_pod_status
from cpg_client.resources import PODS, Resource

MANAGER = "cpg-scheduler"
WORKERS = 16
RETRY = 5.0
"""Seconds after which a report that failed is sent again."""


class Said(Struct, frozen=True):
    """What was said about an object last."""

    status: str
    reason: str
    message: str


class Reporter:
    """Says things about pods and groups."""

    def __init__(
        self,
        connection: Connection,
        resources: Callable[[Group], Resource | None],
        *,
        now: Callable[[], str],
        instance: str,
        log: FilteringBoundLogger,
        retry: float = RETRY,
    ) -> None:
        """Say nothing yet."""
        self._connection = connection
        self._resources = resources
        self._now = now
        self._instance = instance
        self._log = log
        self._retry = retry
        self._said: dict[str, Said] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._due: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}

    def pod(self, pod: Pod, reason: str, message: str) -> None:
        """Say why a pod has no node."""
        said = Said("False", reason, message)
        if (self._said.get(pod.metadata.uid) or _shown(pod)) == said:
            return
        self._said[pod.metadata.uid] = said
        self._put(pod.metadata.uid, lambda: self._write_pod(pod, said))

    def group(self, group: Group, *, scheduled: bool, reason: str, message: str) -> None:
        """Say whether the minimum of a group is placed; once it is, that is never taken back."""
        kind = _condition_type(group)
        existing = find_condition(group.status.conditions, kind)
        if existing is not None and existing.status == "True":
            return
        said = Said("True", REASON_SCHEDULED, "") if scheduled else Said("False", reason, message)
        shown = Said(existing.status, existing.reason, existing.message) if existing else None
        before = self._said.get(group.metadata.uid) or shown
        if before is not None and (before == said or before.status == "True"):
            return
        resource = self._resources(group)
        if resource is None:
            return  # it is gone
        self._said[group.metadata.uid] = said
        self._put(group.metadata.uid, lambda: self._write_group(group, resource, said))

    def forget(self, uid: str) -> None:
        """Drop what was said about an object that is gone."""
        self._said.pop(uid, None)

    async def run(self) -> None:
        """Send what there is to say until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(self._work())

    async def drained(self) -> None:
        """Wait until everything has been sent."""
        await self._queue.join()

    def _put(self, uid: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        is_new = uid not in self._due
        self._due[uid] = write
        if is_new:
            self._queue.put_nowait(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            write, said = self._due.pop(uid), self._said.get(uid)
            try:
                await write()
            except ClientError as error:
                if isinstance(error, ApiError) and error.is_not_found:
                    self.forget(uid)
                else:
                    self._log.warning("report failed", uid=uid, error=str(error), retry_in=self._retry)
                    asyncio.get_running_loop().call_later(self._retry, self._again, uid, said, write)
            finally:
                self._queue.task_done()

    def _again(self, uid: str, said: Said | None, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send a failed report once more, unless something newer was said, or nobody is left to say it of."""
        if said is not None and self._said.get(uid) == said:
            self._put(uid, write)

    async def _write_pod(self, pod: Pod, said: Said) -> None:
        condition = PodCondition(
            type="PodScheduled",
            status=said.status,
            reason=said.reason,
            message=said.message,
            last_transition_time=self._now(),
        )
        await set_pod_status(self._connection, pod.metadata, condition)
        event = self._event("FailedScheduling", "Warning", said.message)
        await record_event(self._connection, PODS, pod.metadata, event)

    async def _write_group(self, group: Group, resource: Resource, said: Said) -> None:
        condition = Condition(
            type=_condition_type(group),
            status=said.status,
            reason=said.reason,
            message=said.message,
            observed_generation=group.metadata.generation,
        )
        conditions, _ = set_condition(group.status.conditions or (), condition, self._now())
        ours = find_condition(conditions, condition.type)
        status = {"conditions": [ours]}
        await apply_status(self._connection, resource, group.metadata, status=status, manager=MANAGER)
        if said.status == "True":
            event = self._event("Scheduled", "Normal", "its minimum has been placed")
        else:
            event = self._event("FailedScheduling", "Warning", said.message)
        await record_event(self._connection, resource, group.metadata, event)

    def _event(self, reason: str, kind: str, note: str) -> Event:
        return Event(
            type="Normal" if kind == "Normal" else "Warning",
            reason=reason,
            action="Scheduling",
            note=note,
            controller=MANAGER,
            instance=self._instance,
        )


def _condition_type(group: Group) -> str:
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED


def _shown(pod: Pod) -> Said | None:
    """Return what a pod's condition says already."""
    found = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    return Said(found.status, found.reason, found.message) if found else None
