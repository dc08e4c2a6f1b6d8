"""Conditions and events: what the scheduler says about pods and groups, once, and again only when it changes.

Writing is behind deciding, and behind binding:

1. **A report replaces the one about the same object that has not been sent yet**, so a burst of attempts is one write.
   While one is being sent, the next about the same object waits: on two connections, the newer could arrive first.
2. **What was said is remembered until the watch shows it**; from then on, what the object shows is what counts. So the
   memory is small, and a condition that somebody has wiped out is written again at the next attempt. That a group has
   been placed is remembered until the group is gone: it is final, whatever is seen, or was decided before.
3. **Groups go before pods**, and while binds are under way most writers pause: ten thousand pods that fit nowhere must
   not hold up a gang that fits.
4. **An event is about a cause**, and not about a number: while a thousand members arrive, or nodes come and go, there
   is one event, and of conditions that differ in numbers alone the last is written every few seconds. So it is where
   one of the last few causes comes back: who lets them alternate has what is said of ten thousand pods written as
   seldom.
5. **A pod that is nominated is told in the same write**, and nothing more as long as its plan goes on: while thousands
   leave for a gang, each of its pods would be told anew with each of them.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition, set_condition, truncate_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    DISRUPTION_TARGET,
    EVENT_FAILED_SCHEDULING,
    EVENT_OVER_COMMITTED,
    EVENT_SCHEDULED,
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_SCHEDULED,
    REASON_PREEMPTION,
    REASON_RESCHEDULED,
    REASON_SCHEDULED,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import Event, apply_status, record_event, set_pod_status
from cpg_client.resources import NODES, PODS, Resource

MANAGER = "cpg-scheduler"
EVICTION_MANAGER = "cpg-scheduler-eviction"
"""Owns what is said about evicted groups, apart from what is sent each time that a group is reported on."""
WORKERS = 16
STEADY = 2
"""Writers that go on while binds are under way."""
RETRY = 5.0
"""Seconds after which a report that failed is sent again."""
SETTLE = 5.0
"""Seconds for which words are gathered that are about the same cause as those before."""
CAUSES = 4
"""How many causes are remembered of each object."""

Send: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Said(Struct, frozen=True):
    """What was said about an object last."""

    status: str
    reason: str
    message: str
    generation: int = 0
    """Of a group: which generation of it was looked at."""

    def same_words(self, other: "Said | None") -> bool:
        """Tell whether another says the same, of whatever generation."""
        return other is not None and replace(other, generation=self.generation) == self


class _Write(Struct, frozen=True, eq=False):
    """Something to be sent; what ``settles`` can wait for newer words."""

    send: Send
    urgency: int
    settles: bool = False


async def _at_once() -> None:
    """Wait for nothing: what a reporter does by default before it writes."""


class StatusWriter:
    """Says things about pods and groups."""

    def __init__(
        self,
        connection: Connection,
        known: Callable[[Group], tuple[Group, Resource] | None],
        *,
        now: Callable[[], str],
        instance: str,
        log: FilteringBoundLogger,
        calm: Callable[[], Awaitable[object]] = _at_once,
        retry: float = RETRY,
        settle: float = SETTLE,
    ) -> None:
        """Say nothing yet; ``calm`` returns when nothing more important is being written.

        ``known`` returns a group as it is by now and where it is written, or None where it is gone.
        """
        self._connection = connection
        self._known = known
        self._now = now
        self._instance = instance
        self._log = log
        self._calm = calm
        self._retry = retry
        self._settle = settle
        self.waits: Callable[[Pod, str], bool] = lambda *_: True
        """Asked before a pod is told for this reason why it has no node: it may have been given one meanwhile."""
        self.later: Callable[[Callable[[], Awaitable[None]]], None] = lambda _: None
        """Called with what can wait until all that matters has been done."""
        self._said: dict[str, Said] = {}
        self._final: set[str] = set()
        """The groups, by UID, that have been placed."""
        self._told: dict[str, tuple[str, ...]] = {}
        """Of which causes there have been events, by UID, the last one last."""
        self._carried: dict[str, tuple[Said, str]] = {}
        """What is said of pods together with their nomination, by UID, and its cause."""
        self._queue: asyncio.PriorityQueue[tuple[int, int, str]] = asyncio.PriorityQueue()
        self._turns = itertools.count()
        self._due: dict[str, _Write] = {}
        self._settling: set[str] = set()
        """About whom there is something due that is not in the queue yet."""
        self._sending: set[str] = set()
        self._failed: dict[str, _Write] = {}
        """What is to be sent again, unless something newer is said before."""

    def pod(self, pod: Pod, reason: str, message: str, *, cause: str = "") -> None:
        """Say why a pod has no node; the cause is what counts as news, the message itself where there is none."""
        uid, said = pod.metadata.uid, Said("False", reason, message)
        self._carried.pop(uid, None)
        before = self._said.get(uid) or shown_by(pod)
        if before == said:
            return
        self._said[uid] = said
        settles = self._settles(uid, said, before, cause)
        self._put(uid, _Write(lambda: self._write_pod(pod, said, cause), urgency=1, settles=settles))

    def nominated(self, pod: Pod, reason: str, message: str, *, cause: str = "") -> None:
        """Say why a pod has no node as soon as it is nominated, and not at all if it has been."""
        if self._is_busy(pod.metadata.uid):
            self.pod(pod, reason, message, cause=cause)  # what is about to be written is outdated
        else:
            self._carried[pod.metadata.uid] = Said("False", reason, message), cause

    async def nominate(self, pod: Pod, node: str) -> None:
        """Nominate a pod, and say what there is to say with it."""
        uid = pod.metadata.uid
        carried = self._carried.get(uid)
        conditions = () if carried is None else (self._condition(carried[0]),)
        await set_pod_status(self._connection, pod.metadata, *conditions, nominated_node=node)
        if carried is not None and self._carried.pop(uid, None) is not None:
            self._said[uid] = carried[0]
            self.later(lambda: self._record(PODS, pod.metadata, *carried))

    def group(self, group: Group, *, scheduled: bool, reason: str, message: str, cause: str = "") -> None:
        """Say whether the minimum of a group is placed; once it is, that is never taken back."""
        known, uid = self._known(group), group.metadata.uid
        if known is None:
            return  # it is gone
        words = ("True", REASON_SCHEDULED, "") if scheduled else ("False", reason, message)
        said = Said(*words, group.metadata.generation)
        is_final, before = self._is_final(known[0]), self._said.get(uid) or shown_by(known[0])
        if before == said or (is_final and (not scheduled or said.same_words(before))):
            return
        if scheduled:
            self._final.add(uid)
        self._said[uid] = said
        if said.same_words(before):
            self._told.setdefault(uid, (_event_of(said, cause),))
        settles = self._settles(uid, said, before, cause)
        self._put(uid, _Write(lambda: self._write_group(group, said, cause), urgency=0, settles=settles))

    def recovered(self, group: Group, still: Callable[[], bool]) -> None:
        """Take back that a group is going as a whole: it has its minimum again, and still has when that is written."""
        self._put(f"recovered {group.metadata.uid}", _Write(lambda: self._write_recovered(group, still), urgency=0))

    def node(self, name: str, message: str) -> None:
        """Say something about a node, in an event alone: its status is its kubelet's."""
        event = self._event(EVENT_OVER_COMMITTED, "Warning", message)
        target = ObjectMeta(name=name, uid=name)  # as kubelets name it
        write = _Write(lambda: record_event(self._connection, NODES, target, event, counted=True), urgency=0)
        self._put(f"node {name}", write)

    def saw(self, shown: Pod | Group) -> None:
        """Take note of what the watch shows: what it shows need not be remembered."""
        uid = shown.metadata.uid
        if isinstance(shown, Pod) and shown.spec.node_name:
            self._told.pop(uid, None)
        said = self._said.get(uid)
        if said is not None and uid not in self._due and said == shown_by(shown):
            del self._said[uid]

    def forget(self, uid: str) -> None:
        """Drop what was said about an object that is gone."""
        for memory in (self._said, self._told, self._failed):
            memory.pop(uid, None)
        self._final.discard(uid)
        self._carried.pop(uid, None)

    async def run(self) -> None:
        """Send what there is to say until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(_at_once if number < STEADY else self._calm))

    async def drained(self) -> None:
        """Wait until everything has been sent."""
        await self._queue.join()

    def _is_final(self, group: Group) -> bool:
        """Tell whether a group says that it was placed, or has said so."""
        shown = shown_by(group)
        if shown is not None and shown.status == "True":
            self._final.add(group.metadata.uid)
        return group.metadata.uid in self._final

    def _settles(self, uid: str, said: Said, before: Said | None, cause: str) -> bool:
        """Tell whether what is said is no news, and only in other words than before."""
        if before is None or _event_of(said, cause) not in self._told.get(uid, ()):
            return False
        return replace(before, message=said.message) == said

    def _put(self, key: str, write: _Write) -> None:
        was_due, self._due[key] = key in self._due, write
        self._failed.pop(key, None)
        if key not in self._sending and (not was_due or key in self._settling):
            self._line_up(key)

    def _line_up(self, key: str) -> None:
        """Put what is due about an object into the queue, or let it settle."""
        write = self._due[key]
        if not write.settles:
            self._settling.discard(key)
            self._queue.put_nowait((write.urgency, next(self._turns), key))
        elif key not in self._settling:
            self._settling.add(key)
            asyncio.get_running_loop().call_later(self._settle, self._settled, key)

    def _settled(self, key: str) -> None:
        if key in self._settling:
            self._due[key] = replace(self._due[key], settles=False)
            self._line_up(key)

    def _is_busy(self, uid: str) -> bool:
        return uid in self._due or uid in self._sending

    async def _work(self, calm: Callable[[], Awaitable[object]]) -> None:
        while True:
            await calm()
            _, _, key = await self._queue.get()
            write = self._due.pop(key)
            self._sending.add(key)
            try:
                await write.send()
            except ClientError as error:
                self._not_written(key, write, error)
            finally:
                self._sending.remove(key)
                if key in self._due:
                    self._line_up(key)
                self._queue.task_done()

    def _not_written(self, key: str, write: _Write, error: ClientError) -> None:
        """Have a report that failed sent again after a while, unless nobody is left to say it of."""
        if isinstance(error, ApiError) and error.is_not_found:
            self.forget(key)
            return
        self._log.warning("report failed", uid=key, error=str(error), retry_in=self._retry)
        if key not in self._due:
            self._failed[key] = write
            asyncio.get_running_loop().call_later(self._retry, self._again, key, write)

    def _again(self, key: str, write: _Write) -> None:
        """Send a failed report once more, unless something newer was said, or nobody is left to say it of."""
        if self._failed.get(key) is write:
            self._put(key, write)

    async def _write_pod(self, pod: Pod, said: Said, cause: str) -> None:
        if not self.waits(pod, said.reason):
            if self._said.get(pod.metadata.uid) is said:
                del self._said[pod.metadata.uid]
            return
        await set_pod_status(self._connection, pod.metadata, self._condition(said))
        await self._record(PODS, pod.metadata, said, cause)

    def _condition(self, said: Said) -> PodCondition:
        return PodCondition(
            type=POD_SCHEDULED,
            status=said.status,
            reason=said.reason,
            message=said.message,
            last_transition_time=self._now(),
        )

    async def _record(self, resource: Resource, target: ObjectMeta, said: Said, cause: str) -> None:
        """Write the event about what was said, unless the last one was about the same cause."""
        before, told = self._told.get(target.uid, ()), _event_of(said, cause)
        if before[-1:] == (told,):
            return
        if said.status == "True":
            event = self._event(EVENT_SCHEDULED, "Normal", "its minimum has been placed")
        else:
            event = self._event(EVENT_FAILED_SCHEDULING, "Warning", said.message, cause)
        await record_event(self._connection, resource, target, event, counted=True)
        self._told[target.uid] = (*(one for one in before if one != told), told)[-CAUSES:]

    async def _write_group(self, group: Group, said: Said, cause: str) -> None:
        known = self._known(group)
        if known is None or (said.status != "True" and self._is_final(known[0])):
            return
        group, resource = known
        condition = Condition(
            type=_condition_type(group),
            status=said.status,
            reason=said.reason,
            message=said.message,
            observed_generation=said.generation,
        )
        conditions, _ = set_condition(group.status.conditions or (), condition, self._now())
        ours = find_condition(conditions, condition.type)
        # An empty message is left out when encoded, and what is left out keeps the words that stood there before.
        status = {"conditions": [msgspec.to_builtins(ours) | {"message": truncate_condition(condition).message}]}
        await apply_status(self._connection, resource, group.metadata, status=status, manager=MANAGER)
        await self._record(resource, group.metadata, said, cause)

    async def _write_recovered(self, group: Group, still: Callable[[], bool]) -> None:
        known = self._known(group)
        if known is None or not still():
            return
        group, resource = known
        condition = Condition(
            type=DISRUPTION_TARGET,
            status="False",
            reason=REASON_RESCHEDULED,
            message="its minimum has been placed again",
            observed_generation=group.metadata.generation,
            last_transition_time=self._now(),
        )
        status = {"conditions": [condition]}
        await apply_status(self._connection, resource, group.metadata, status=status, manager=EVICTION_MANAGER)

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


def _event_of(said: Said, cause: str) -> str:
    """Return what makes one event about an object another than the last."""
    return f"{said.reason}: {cause or said.message}"


def _condition_type(group: Group) -> str:
    return POD_GROUP_INITIALLY_SCHEDULED if isinstance(group, PodGroup) else COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED


def shown_by(thing: Pod | Group) -> Said | None:
    """Return what the condition of a pod or group says already."""
    if isinstance(thing, Pod):
        found = next((one for one in thing.status.conditions or () if one.type == POD_SCHEDULED), None)
        return Said(found.status, found.reason, found.message) if found else None
    existing = find_condition(thing.status.conditions, _condition_type(thing))
    if existing is None:
        return None
    return Said(existing.status, existing.reason, existing.message, existing.observed_generation or 0)


def is_disrupted(thing: Pod | Group) -> bool:
    """Tell whether a pod or group says that it is evicted for somebody."""
    found = find_condition(thing.status.conditions or (), DISRUPTION_TARGET)
    return found is not None and (found.status, found.reason) == ("True", REASON_PREEMPTION)
