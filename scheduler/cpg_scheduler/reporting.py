"""Conditions and events: what the scheduler says about pods and groups, once, and again only when it changes.

Writing is behind deciding, and behind binding:

1. **A report replaces the one about the same object that has not been sent yet**, so a burst of attempts is one write.
   While one is being sent, the next about the same object waits: on two connections, the newer could arrive first.
2. **What was said is remembered until the watch shows it**; from then on, what the object shows is what counts. So the
   memory is small, and a condition that somebody has wiped out is written again at the next attempt. That a group has
   been placed is remembered until the group is gone: it is final, whatever is seen, or was decided before.
3. **Groups go before pods**, and while binds are under way most writers pause: ten thousand pods that fit nowhere must
   not hold up a gang that fits.
4. **An event is about something new**: the same words about the same object are one event, counted.
5. **A pod that is nominated is told in the same write**, and nothing more as long as its plan goes on: while thousands
   leave for a gang, each of its pods would be told anew with each of them.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition, set_condition
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


class Said(Struct, frozen=True):
    """What was said about an object last."""

    status: str
    reason: str
    message: str
    generation: int = 0
    """Of a group: which generation of it was looked at."""

    def same_words(self, other: "Said | None") -> bool:
        """Tell whether another says the same, of whatever generation."""
        return other is not None and other.words == self.words

    @property
    def words(self) -> tuple[str, str, str]:
        """Return what people read."""
        return self.status, self.reason, self.message


async def _at_once() -> None:
    """Wait for nothing: what a reporter does by default before it writes."""


class Reporter:
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
        self.waits: Callable[[Pod, str], bool] = lambda *_: True
        """Asked before a pod is told for this reason why it has no node: it may have been given one meanwhile."""
        self.later: Callable[[Callable[[], Awaitable[None]]], None] = lambda _: None
        """Called with what can wait until all that matters has been done."""
        self._said: dict[str, Said] = {}
        self._final: set[str] = set()
        """The groups, by UID, that have been placed."""
        self._carried: dict[str, Said] = {}
        """What is said of pods together with their nomination, by UID."""
        self._queue: asyncio.PriorityQueue[tuple[int, int, str]] = asyncio.PriorityQueue()
        self._turns = itertools.count()
        self._due: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._sending: set[str] = set()
        self._failed: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        """What is to be sent again, unless something newer is said before."""

    def pod(self, pod: Pod, reason: str, message: str) -> None:
        """Say why a pod has no node."""
        said, shown = Said("False", reason, message), shown_by(pod)
        self._carried.pop(pod.metadata.uid, None)
        if (self._said.get(pod.metadata.uid) or shown) == said:
            return
        self._said[pod.metadata.uid] = said
        self._put(pod.metadata.uid, lambda: self._write_pod(pod, said), urgency=1)

    def nominated(self, pod: Pod, reason: str, message: str) -> None:
        """Say why a pod has no node as soon as it is nominated, and not at all if it has been."""
        if self._is_busy(pod.metadata.uid):
            self.pod(pod, reason, message)  # what is about to be written is outdated
        else:
            self._carried[pod.metadata.uid] = Said("False", reason, message)

    async def nominate(self, pod: Pod, node: str) -> None:
        """Nominate a pod, and say what there is to say with it."""
        said = self._carried.get(pod.metadata.uid)
        conditions = () if said is None else (self._condition(said),)
        await set_pod_status(self._connection, pod.metadata, *conditions, nominated_node=node)
        if said is not None and self._carried.pop(pod.metadata.uid, None) is not None:
            self._said[pod.metadata.uid] = said
            self.later(lambda: self._record_failure(pod, said))

    def group(self, group: Group, *, scheduled: bool, reason: str, message: str) -> None:
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
        is_news = not said.same_words(before)
        self._put(uid, lambda: self._write_group(group, said, is_news=is_news), urgency=0)

    def recovered(self, group: Group, still: Callable[[], bool]) -> None:
        """Take back that a group is going as a whole: it has its minimum again, and still has when that is written."""
        self._put(f"recovered {group.metadata.uid}", lambda: self._write_recovered(group, still), urgency=0)

    def node(self, name: str, message: str) -> None:
        """Say something about a node, in an event alone: its status is its kubelet's."""
        event = self._event(EVENT_OVER_COMMITTED, "Warning", message)
        target = ObjectMeta(name=name, uid=name)  # as kubelets name it
        self._put(f"node {name}", lambda: record_event(self._connection, NODES, target, event, counted=True), urgency=0)

    def saw(self, shown: Pod | Group) -> None:
        """Take note of what the watch shows: what it shows need not be remembered."""
        uid = shown.metadata.uid
        said = self._said.get(uid)
        if said is not None and uid not in self._due and said == shown_by(shown):
            del self._said[uid]

    def forget(self, uid: str) -> None:
        """Drop what was said about an object that is gone."""
        self._said.pop(uid, None)
        self._failed.pop(uid, None)
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

    def _put(self, uid: str, write: Callable[[], Coroutine[Any, Any, None]], urgency: int) -> None:
        if not self._is_busy(uid):
            self._queue.put_nowait((urgency, next(self._turns), uid))
        self._due[uid] = write
        self._failed.pop(uid, None)

    def _is_busy(self, uid: str) -> bool:
        return uid in self._due or uid in self._sending

    async def _work(self, calm: Callable[[], Awaitable[object]]) -> None:
        while True:
            await calm()
            urgency, _, uid = await self._queue.get()
            write = self._due.pop(uid)
            self._sending.add(uid)
            try:
                await write()
            except ClientError as error:
                self._not_written(uid, write, urgency, error)
            finally:
                self._sending.remove(uid)
                if uid in self._due:
                    self._queue.put_nowait((urgency, next(self._turns), uid))
                self._queue.task_done()

    def _not_written(
        self, uid: str, write: Callable[[], Coroutine[Any, Any, None]], urgency: int, error: ClientError
    ) -> None:
        """Have a report that failed sent again after a while, unless nobody is left to say it of."""
        if isinstance(error, ApiError) and error.is_not_found:
            self.forget(uid)
            return
        self._log.warning("report failed", uid=uid, error=str(error), retry_in=self._retry)
        if uid not in self._due:
            self._failed[uid] = write
            asyncio.get_running_loop().call_later(self._retry, self._again, uid, write, urgency)

    def _again(self, uid: str, write: Callable[[], Coroutine[Any, Any, None]], urgency: int) -> None:
        """Send a failed report once more, unless something newer was said, or nobody is left to say it of."""
        if self._failed.get(uid) is write:
            self._put(uid, write, urgency)

    async def _write_pod(self, pod: Pod, said: Said) -> None:
        if not self.waits(pod, said.reason):
            if self._said.get(pod.metadata.uid) is said:
                del self._said[pod.metadata.uid]
            return
        await set_pod_status(self._connection, pod.metadata, self._condition(said))
        await self._record_failure(pod, said)

    def _condition(self, said: Said) -> PodCondition:
        return PodCondition(
            type=POD_SCHEDULED,
            status=said.status,
            reason=said.reason,
            message=said.message,
            last_transition_time=self._now(),
        )

    async def _record_failure(self, pod: Pod, said: Said) -> None:
        event = self._event(EVENT_FAILED_SCHEDULING, "Warning", said.message)
        await record_event(self._connection, PODS, pod.metadata, event, counted=True)

    async def _write_group(self, group: Group, said: Said, *, is_news: bool) -> None:
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
        status = {"conditions": [msgspec.to_builtins(ours) | {"message": said.message}]}
        await apply_status(self._connection, resource, group.metadata, status=status, manager=MANAGER)
        if not is_news:
            return
        if said.status == "True":
            event = self._event(EVENT_SCHEDULED, "Normal", "its minimum has been placed")
        else:
            event = self._event(EVENT_FAILED_SCHEDULING, "Warning", said.message)
        await record_event(self._connection, resource, group.metadata, event, counted=True)

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
