"""The conditions and events of pods and groups: written once, and again only when they change.

1. **What was reported is remembered until the watch shows it**; from then on the object's own condition counts. So the
   memory is small, and a condition that was wiped out is written again at the next attempt. The unit of a pod or
   group that shows a reason that was not reported is attempted at once: a late request, of an earlier leader or of
   ours, has arrived after a newer one. That a group was scheduled is remembered until the group is deleted, because
   it is final.
2. **Groups come before pods**; all else about the order of writes is in ``write_queue``.
3. **An event is about a cause**, not about a number: while a thousand members arrive, or nodes come and go, there is
   one event, and conditions that differ in numbers alone are written every few seconds. The last few causes of each
   object are remembered, so a unit with alternating causes is written as seldom. That a pod or group waits for others
   is an event only if it lasts for a few seconds: while the operator makes the groups of new pods, these wait for one
   after the other.
4. **The last attempt of a group is written in the request of its condition**, and also when it has another finding:
   the operator may have written the condition, or a group that was placed once may be below its minimum again. What
   changes beside that follows with the next condition, or seldom (``attempt_refreshes``). Native groups have no field
   for it.
5. **A pod that is being nominated gets its condition in the same request**, and no other while its plan goes on:
   otherwise each eviction for a gang would rewrite the conditions of all its pods.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.conditions import find_condition, set_condition, truncate_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.attempts import AttemptFinding, LastAttempt
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    DISRUPTION_TARGET,
    EVENT_FAILED_SCHEDULING,
    EVENT_OVER_COMMITTED,
    EVENT_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_SCHEDULED,
    REASON_RESCHEDULED,
    REASON_SCHEDULED,
    REASON_WAITING_FOR_GROUP,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.patching import Event, apply_status, record_event, set_pod_status
from cpg_client.resources import CPG_GROUP, NODES, PODS, Resource
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.ports import EventSink
from cpg_scheduler.preemption.victim_condition import EVICTION_MANAGER
from cpg_scheduler.status.attempt_refreshes import AttemptRefreshes
from cpg_scheduler.status.attempts import last_attempt
from cpg_scheduler.status.messages.attempts import MINIMUM_PLACED
from cpg_scheduler.status.messages.nodes import overcommit_message
from cpg_scheduler.status.messages.preemption import RECOVERED
from cpg_scheduler.status.updates import GroupRecovered, GroupStatusUpdate, PodStatusUpdate, StatusUpdate
from cpg_scheduler.status.write_queue import QueuedWrite, Send, WriteQueue

MANAGER = "cpg-scheduler"
MAX_REMEMBERED_CAUSES = 4
"""Causes of events that are remembered of each object."""
UNDECLARED = "field not declared in schema"
"""What the API server says if its CRDs are older than this process; then the condition is applied alone."""
SECONDS_AFTER_CONFLICTS = (0.05, 0.2, 0.8)
"""How long the watch is given to show what another writer has changed in a group."""
GROUPS, PODS_AFTER_GROUPS, REFRESHES = 0, 1, 2
"""The order of writes."""


class ReportedCondition(Struct, frozen=True):
    """What a condition says."""

    status: str
    reason: str
    message: str
    generation: int = 0
    """The generation of a group that the condition is about."""
    finding: str = ""
    """What the last attempt has found for a group of ours."""

    def says_the_same_as(self, other: "ReportedCondition | None") -> bool:
        """Return whether another condition says the same, about whatever generation and after whatever attempt."""
        return other is not None and replace(other, generation=self.generation, finding=self.finding) == self


class StatusWriter:
    """Writes the conditions of pods and groups, with the events about them."""

    def __init__(
        self,
        connection: Connection,
        current: Callable[[Group], tuple[Group, Resource] | None],
        *,
        cache: ClusterCache,
        has_recovered: Callable[[UnitKey, GroupKey], bool],
        queue: WriteQueue,
        events: EventSink,
        instance: str,
    ) -> None:
        """Write nothing yet.

        ``current`` returns the present state of a group and its resource, or None if it is gone; ``has_recovered``
        returns whether a group of a unit still has its minimum again after an eviction.
        """
        self._connection = connection
        self._current = current
        self._cache = cache
        self._has_recovered = has_recovered
        self._queue = queue
        self._events = events
        self._now = connection.timing.whole_seconds
        self._instance = instance
        self._refreshes = AttemptRefreshes(connection.timing.clock)
        self._reported: dict[str, ReportedCondition] = {}
        """The conditions that the watch has not shown yet, by UID."""
        self._scheduled_groups: set[str] = set()
        """The groups, by UID, that have their final condition."""
        self._event_causes: dict[str, tuple[str, ...]] = {}
        """The causes that there have been events about, by UID, the last one last."""
        self._with_nomination: dict[str, tuple[ReportedCondition, str]] = {}
        """The conditions, with their causes, that are written when their pod is nominated, by UID."""

    def write(self, update: StatusUpdate) -> None:
        """Write an update as soon as there is time."""
        match update:
            case PodStatusUpdate():
                self._put_pod(update)
            case GroupStatusUpdate():
                self._put_group(update)
            case GroupRecovered(group=group, unit=unit):
                self._put(f"recovered {group.metadata.uid}", lambda: self._write_recovered(group, unit))
            case OvercommittedNode(name=name):
                self._put(f"node {name}", lambda: self._record_overcommit(update))

    async def nominate(self, pod: Pod, node: str) -> None:
        """Nominate a pod, and write the condition that waits for its nomination."""
        uid = pod.metadata.uid
        waiting = self._with_nomination.get(uid)
        conditions = () if waiting is None else (self._pod_condition(waiting[0]),)
        await set_pod_status(self._connection, pod.metadata, *conditions, nominated_node=node)
        if waiting is not None and self._with_nomination.pop(uid, None) is not None:
            self._reported[uid] = waiting[0]
            self._events.later(lambda: self._record(PODS, pod.metadata, *waiting))

    def on_seen(self, seen: Pod | Group) -> None:
        """Forget what was reported of an object once the watch shows it."""
        uid = seen.metadata.uid
        if isinstance(seen, Pod) and seen.spec.node_name:
            self._event_causes.pop(uid, None)
            self._queue.withdraw(_event_of(uid))
        condition = self._reported.get(uid)
        if condition is not None and not self._queue.is_due(uid) and condition == condition_of(seen):
            del self._reported[uid]

    def is_overwritten(self, old: Pod | Group, new: Pod | Group) -> bool:
        """Return whether an object shows another reason than before, and what was reported last had been shown.

        To be asked before ``on_seen``.
        """
        uid, is_shown = new.metadata.uid, None not in {condition_of(old), condition_of(new)}
        is_ours = uid in self._reported or uid in self._with_nomination
        return is_shown and not is_ours and has_another_reason(old, new)

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._reported.pop(uid, None)
        self._event_causes.pop(uid, None)
        self._scheduled_groups.discard(uid)
        self._refreshes.forget(uid)
        self._with_nomination.pop(uid, None)
        self._queue.withdraw(_event_of(uid))
        self._queue.forget(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def drained(self) -> None:
        """Wait until everything has been written."""
        await self._queue.drained()

    def _put_pod(self, update: PodStatusUpdate) -> None:
        """Queue the condition of a pod, or keep it until the pod is nominated."""
        pod, cause = update.pod, update.cause
        uid, condition = pod.metadata.uid, ReportedCondition("False", update.reason, update.message)
        if update.is_nominated and not self._queue.is_busy(uid):
            self._with_nomination[uid] = condition, cause
            return
        self._with_nomination.pop(uid, None)
        before = self._reported.get(uid) or condition_of(pod)
        if before == condition:
            return
        self._reported[uid] = condition
        settles = self._differs_in_numbers(uid, condition, before, cause)
        write = partial(self._write_pod, pod, condition, cause, while_binding=update.while_binding)
        self._put(uid, write, order=PODS_AFTER_GROUPS, settles=settles)

    def _put_group(self, update: GroupStatusUpdate) -> None:
        """Queue the condition of a group, and its attempt; that its minimum is placed is never taken back."""
        group, cause = update.group, update.cause
        known, uid = self._current(group), group.metadata.uid
        if known is None:
            return
        before = self._reported.get(uid) or condition_of(known[0])
        condition = self._group_condition(update, *known, before)
        if condition is None:
            return
        if update.scheduled:
            self._scheduled_groups.add(uid)
        is_pending, is_news = condition.finding not in {"", AttemptFinding.PLACED}, condition != before
        if not is_news and not (is_pending and self._refreshes.take(uid)):
            return
        is_written = not (self._queue.is_busy(uid) or self._queue.is_busy(_event_of(uid)))
        if is_written and condition.says_the_same_as(before):
            self._event_causes.setdefault(uid, (_event_key(condition, cause),))
        attempt = partial(last_attempt, update.attempt, key_of(group), self._now()) if condition.finding else None
        write = partial(self._write_group, group, condition, cause, attempt)
        if not is_news:
            self._put(uid, write, order=REFRESHES, settles=True)
            return
        self._reported[uid] = condition
        if is_pending:
            self._refreshes.start(uid)
        else:
            self._refreshes.forget(uid)
        self._put(uid, write, settles=self._differs_in_numbers(uid, condition, before, cause))

    def _group_condition(
        self, update: GroupStatusUpdate, group: Group, resource: Resource, before: ReportedCondition | None
    ) -> ReportedCondition | None:
        """Return what to report of a group; None if the update is about a state before its minimum was placed."""
        finding, is_final = "", self._is_final(group)
        if resource.group == CPG_GROUP:
            finding = update.attempt.finding(key_of(group)).value
        if is_final and not update.scheduled:
            return replace(before, finding=finding) if before is not None and before.status == "True" else None
        state = ("True", REASON_SCHEDULED, "") if update.scheduled else ("False", update.reason, update.message)
        # An older attempt may end last: its binds were in doubt for longer.
        newest = max(update.group.metadata.generation, before.generation if before is not None else 0)
        condition = ReportedCondition(*state, newest, finding)
        if is_final and before is not None and condition.says_the_same_as(before):
            return replace(before, finding=finding)
        return condition

    def _is_final(self, group: Group) -> bool:
        """Return whether a group has been reported as scheduled, by us or by an earlier leader."""
        seen = condition_of(group)
        if seen is not None and seen.status == "True":
            self._scheduled_groups.add(group.metadata.uid)
        return group.metadata.uid in self._scheduled_groups

    def _differs_in_numbers(
        self, uid: str, condition: ReportedCondition, before: ReportedCondition | None, cause: str
    ) -> bool:
        """Return whether a condition differs from the one before in its message alone, for a cause known before."""
        if before is None or _event_key(condition, cause) not in self._event_causes.get(uid, ()):
            return False
        return replace(before, message=condition.message) == condition

    def _put(self, key: str, send: Send, *, order: int = GROUPS, settles: bool = False) -> None:
        async def send_unless_gone() -> None:
            try:
                await send()
            except ApiError as error:
                if not error.is_not_found:
                    raise
                self.forget(key)

        self._queue.put(key, QueuedWrite(send_unless_gone, order, settles))

    async def _write_pod(self, pod: Pod, condition: ReportedCondition, cause: str, *, while_binding: bool) -> None:
        if not self._still_holds(pod, while_binding=while_binding):
            if self._reported.get(pod.metadata.uid) is condition:
                del self._reported[pod.metadata.uid]
            return
        await set_pod_status(self._connection, pod.metadata, self._pod_condition(condition))
        await self._record(PODS, pod.metadata, condition, cause)

    def _still_holds(self, pod: Pod, *, while_binding: bool) -> bool:
        """Return whether a pod still lacks its node: it may have been given one meanwhile."""
        uid, known = pod.metadata.uid, self._cache.pods.get(pod.metadata.uid)
        if known is None:
            return False
        return not known.spec.node_name or (while_binding and uid in self._cache.binds_in_flight)

    def _pod_condition(self, condition: ReportedCondition) -> PodCondition:
        return PodCondition(
            type=POD_SCHEDULED,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            last_transition_time=self._now(),
        )

    async def _write_group(
        self, group: Group, reported: ReportedCondition, cause: str, attempt: Callable[[], LastAttempt] | None
    ) -> None:
        """Apply the condition of a group and its attempt.

        That the minimum was placed is final: no other condition may replace it if the operator has written it
        meanwhile, and it must not land on a new group of this name. So a condition is applied only to the version of
        the group that is known, and a conflict waits for the watch.
        """
        for seconds in (*SECONDS_AFTER_CONFLICTS, None):
            known = self._current(group)
            if known is None or (reported.status != "True" and self._is_final(known[0])):
                return
            try:
                await self._apply_group(*known, reported, attempt)
            except ApiError as error:
                if not error.is_conflict or seconds is None:
                    raise
                await asyncio.sleep(seconds)
            else:
                await self._record(known[1], known[0].metadata, reported, cause)
                return

    async def _apply_group(
        self, group: Group, resource: Resource, reported: ReportedCondition, attempt: Callable[[], LastAttempt] | None
    ) -> None:
        seen = condition_of(group)
        condition = Condition(
            type=_condition_type(group),
            status=reported.status,
            reason=reported.reason,
            message=reported.message,
            observed_generation=max(reported.generation, seen.generation if seen is not None else 0),
        )
        conditions, _ = set_condition(group.status.conditions or (), condition, self._now())
        ours = find_condition(conditions, condition.type)
        # The encoder omits an empty message, and the API server would keep the message from before.
        status: dict[str, object] = {
            "conditions": [msgspec.to_builtins(ours) | {"message": truncate_condition(condition).message}]
        }
        shown = {} if attempt is None else {"attempt": attempt()}
        apply = partial(apply_status, self._connection, resource, group.metadata, manager=MANAGER, unchanged=True)
        try:
            await apply(status=status | shown)
        except ApiError as error:
            if not shown or UNDECLARED not in error.message:
                raise
            await apply(status=status)

    async def _write_recovered(self, group: Group, unit: UnitKey) -> None:
        known = self._current(group)
        if known is None or not self._has_recovered(unit, key_of(group)):
            return
        group, resource = known
        condition = Condition(
            type=DISRUPTION_TARGET,
            status="False",
            reason=REASON_RESCHEDULED,
            message=RECOVERED,
            observed_generation=group.metadata.generation,
            last_transition_time=self._now(),
        )
        status = {"conditions": [condition]}
        await apply_status(self._connection, resource, group.metadata, status=status, manager=EVICTION_MANAGER)

    async def _record(self, resource: Resource, target: ObjectMeta, condition: ReportedCondition, cause: str) -> None:
        """Write the event about a condition, after a while if it is about waiting for other objects."""
        key, write = _event_of(target.uid), partial(self._record_now, resource, target, condition, cause)
        if condition.reason == REASON_WAITING_FOR_GROUP:
            self._put(key, write, order=PODS_AFTER_GROUPS, settles=True)
        else:
            self._queue.withdraw(key)
            await write()

    async def _record_now(
        self, resource: Resource, target: ObjectMeta, condition: ReportedCondition, cause: str
    ) -> None:
        """Write the event about a condition, unless the last one was about the same cause."""
        causes, key = self._event_causes.get(target.uid, ()), _event_key(condition, cause)
        if causes[-1:] == (key,):
            return
        if condition.status == "True":
            event = self._event(EVENT_SCHEDULED, "Normal", MINIMUM_PLACED)
        else:
            event = self._event(EVENT_FAILED_SCHEDULING, "Warning", condition.message, cause)
        await record_event(self._connection, resource, target, event, counted=True)
        self._event_causes[target.uid] = (*(one for one in causes if one != key), key)[-MAX_REMEMBERED_CAUSES:]

    async def _record_overcommit(self, node: OvercommittedNode) -> None:
        """Write an event about a node; its status belongs to its kubelet."""
        event = self._event(EVENT_OVER_COMMITTED, "Warning", overcommit_message(node, self._cache.scheduler_name))
        target = ObjectMeta(name=node.name, uid=node.name)  # as kubelets name it
        await record_event(self._connection, NODES, target, event, counted=True)

    def _event(self, reason: str, kind: str, note: str, cause: str = "") -> Event:
        return Event(
            type="Normal" if kind == "Normal" else "Warning",
            reason=reason,
            action="Scheduling",
            note=note,
            cause=cause,
            controller=MANAGER,
            instance=self._instance,
        )


def condition_of(target: Pod | Group) -> ReportedCondition | None:
    """Return what a pod's PodScheduled or a group's InitiallyScheduled condition says, if there is one."""
    if isinstance(target, Pod):
        found = next((one for one in target.status.conditions or () if one.type == POD_SCHEDULED), None)
        return ReportedCondition(found.status, found.reason, found.message) if found else None
    existing = find_condition(target.status.conditions, _condition_type(target))
    if existing is None:
        return None
    finding = target.status.attempt.finding if target.status.attempt is not None else ""
    seen = existing.observed_generation or 0
    return ReportedCondition(existing.status, existing.reason, existing.message, seen, finding)


def has_another_reason(old: Pod | Group, new: Pod | Group) -> bool:
    """Return whether the condition of an object says something else than before, apart from its message."""
    before, after = condition_of(old), condition_of(new)
    if before is None or after is None:
        return before is not after
    return (before.status, before.reason) != (after.status, after.reason)


def _event_of(uid: str) -> str:
    """Return the key under which the event about an object is queued."""
    return f"event {uid}"


def _event_key(condition: ReportedCondition, cause: str) -> str:
    """Return what distinguishes one event about an object from the next."""
    return f"{condition.reason}: {cause or condition.message}"


def _condition_type(group: Group) -> str:
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED
