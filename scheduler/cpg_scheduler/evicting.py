"""The evictor: what a plan says is done, in an order that somebody who finds it half done can tell what it was.

1. Every victim is told, by a condition that names the preemptor.
2. The preemptor's pods are nominated. From now on whoever reads the API knows the whole plan: nobody is nominated
   unless all victims are known.
3. The plan is looked at once more. Up to here nothing was evicted, and it can be dropped without a trace but words.
4. Groups that go as a whole are told, and the victims are deleted, the first of each namespace ahead of the others:
   what forbids it mostly forbids it there. From the first on, the plan is carried through, because half a unit must
   not be left behind.

What fails is tried again for as long as the plan stands. A refusal is final, and said.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition, set_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import DISRUPTION_TARGET, EVENT_PREEMPTED, REASON_PREEMPTION
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import Event, apply_status, delete_pod, record_event, set_pod_status
from cpg_client.resources import PODS, Resource
from cpg_client.retrying import Backoff
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.reporting import EVICTION_MANAGER

CONTROLLER = "cpg-scheduler"
BACKOFF = Backoff(first=0.25, longest=10.0)


class Preemptor(Struct, frozen=True):
    """For whom others are evicted: the root, by key and UID."""

    key: GroupKey
    uid: str
    group: Group | None = None

    @property
    def kind(self) -> str:
        """Return the word for it: pod, podgroup or compositepodgroup."""
        return self.key.kind.lower()

    @property
    def name(self) -> str:
        """Return its namespace and name."""
        return f"{self.key.namespace}/{self.key.name}"


class Victim(Struct, frozen=True):
    """A pod to evict, and why."""

    pod: Pod
    reason: str


class Order(Struct, frozen=True, kw_only=True):
    """A plan to perform, for as long as it stands; ``commit`` tells at the last moment whether it is carried through.

    ``refused`` is told of a pod that the API server will not have evicted, or nominated.
    """

    preemptor: Preemptor
    victims: Sequence[Victim]
    groups: Sequence[Group]
    nominations: Sequence[tuple[Pod, str]]
    stands: Callable[[], bool]
    commit: Callable[[], bool]
    refused: Callable[[Pod, ClientError], None]
    known: bool = False
    """Whether everybody has been told already: it is taken up again after a restart."""


class Evictor:
    """Performs orders, each on a task of its own."""

    def __init__(
        self,
        connection: Connection,
        resources: Callable[[Group], Resource | None],
        tasks: asyncio.TaskGroup,
        *,
        scheduler_name: str,
        instance: str,
        metrics: Metrics,
        log: FilteringBoundLogger,
        in_flight: int,
    ) -> None:
        """Evict with so many requests in flight at the most."""
        self.later: Callable[[Callable[[], Awaitable[None]]], None] = lambda write: self._spawn(write())
        """Called with what can wait until all that matters has been done, which are the events."""
        self.nominate: Callable[[Pod, str], Awaitable[None]] = self._nominate
        """How a pod is nominated to a node: who has something to say about it may do so in the same write."""
        self._connection = connection
        self._resources = resources
        self._tasks = tasks
        self._scheduler_name = scheduler_name
        self._instance = instance
        self._metrics = metrics
        self._log = log
        self._slots = asyncio.Semaphore(in_flight)
        self._running: set[asyncio.Task[None]] = set()
        self._nominating: dict[str, Order] = {}

    def start(self, order: Order) -> None:
        """Begin to perform an order; who is concerned is told by its callbacks."""
        self._nominating.update((pod.metadata.uid, order) for pod, _ in order.nominations)
        self._spawn(self._perform(order))

    def clear(self, pods: Iterable[Pod]) -> None:
        """Nominate these pods no more."""
        found = tuple(pods)
        if found:
            self._spawn(self._clear(found))

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.wait(self._running)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = self._tasks.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _perform(self, order: Order) -> None:
        clock = self._connection.timing.clock
        began = clock()
        worked = (order.known or await self._announce(order)) and order.commit()
        if worked:
            worked = await self._evict(order)
        ours = [pod for pod, _ in order.nominations if self._nominating.get(pod.metadata.uid) is order]
        for pod in ours:
            del self._nominating[pod.metadata.uid]
        if not worked and not order.stands():
            await self._clear(ours)
        self._metrics.preemption.executed(order.preemptor.kind, clock() - began, worked=worked)

    async def _announce(self, order: Order) -> bool:
        """Tell the victims, then nominate; return whether the plan still stands."""
        message = told(self._scheduler_name, order.preemptor)

        def tell(pod: Pod) -> Callable[[], Awaitable[None]]:
            now = self._connection.timing.timestamp()
            conditions, _ = set_condition(
                pod.status.conditions,
                PodCondition(type=DISRUPTION_TARGET, status="True", reason=REASON_PREEMPTION, message=message),
                f"{now[:19]}Z",
            )
            condition = find_condition(conditions, DISRUPTION_TARGET)
            return lambda: set_pod_status(self._connection, pod.metadata, *((condition,) if condition else ()))

        def nominate(pod: Pod, node: str) -> Callable[[], Awaitable[None]]:
            return lambda: self.nominate(pod, node)

        for round_ in (
            [(victim.pod, tell(victim.pod)) for victim in order.victims],
            [(pod, nominate(pod, node)) for pod, node in order.nominations],
        ):
            if not all(await asyncio.gather(*(self._insist(order, pod, act) for pod, act in round_))):
                return False
        return order.stands()

    async def _nominate(self, pod: Pod, node: str) -> None:
        await set_pod_status(self._connection, pod.metadata, nominated_node=node)

    async def _evict(self, order: Order) -> bool:
        """Delete the victims; return whether that worked for all."""
        await asyncio.gather(*(self._mark(order, group) for group in order.groups))
        firsts = {victim.pod.metadata.namespace: victim for victim in reversed(order.victims)}
        scouts = list(firsts.values())
        rest = [victim for victim in order.victims if firsts[victim.pod.metadata.namespace] is not victim]
        for some in (scouts, rest):
            if not all(await asyncio.gather(*(self._delete(order, victim) for victim in some))):
                return False
        return True

    async def _delete(self, order: Order, victim: Victim) -> bool:
        pod, preemptor = victim.pod, order.preemptor
        if not await self._insist(order, pod, lambda: delete_pod(self._connection, pod.metadata)):
            return False
        event = Event(
            type="Normal",
            reason=EVENT_PREEMPTED,
            action="Preempting",
            note=f"Preempted by {preemptor.kind} {preemptor.uid}: {victim.reason}",
            controller=CONTROLLER,
            instance=self._instance,
        )
        related = self._reference(preemptor)
        self.later(
            lambda: self._try(record_event(self._connection, PODS, pod.metadata, event, related=related), pod.metadata)
        )
        return True

    def _reference(self, preemptor: Preemptor) -> tuple[Resource, ObjectMeta] | None:
        """Return what an event about a victim relates to."""
        resource = PODS if preemptor.group is None else self._resources(preemptor.group)
        if resource is None:
            return None
        key = preemptor.key
        return resource, ObjectMeta(name=key.name, namespace=key.namespace, uid=preemptor.uid)

    async def _mark(self, order: Order, group: Group) -> None:
        """Say of a group that goes as a whole that it does."""
        resource = self._resources(group)
        if resource is None:
            return
        condition = Condition(
            type=DISRUPTION_TARGET,
            status="True",
            reason=REASON_PREEMPTION,
            message=told(self._scheduler_name, order.preemptor),
            observed_generation=group.metadata.generation,
            last_transition_time=f"{self._connection.timing.timestamp()[:19]}Z",
        )
        status = {"conditions": [condition]}
        write = apply_status(self._connection, resource, group.metadata, status=status, manager=EVICTION_MANAGER)
        await self._try(write, group.metadata)

    async def _clear(self, pods: Sequence[Pod]) -> None:
        await asyncio.gather(
            *(
                self._try(set_pod_status(self._connection, pod.metadata, nominated_node=None), pod.metadata)
                for pod in pods
                if pod.metadata.uid not in self._nominating  # a newer plan has
            )
        )

    async def _try(self, write: Awaitable[object], about: ObjectMeta) -> None:
        """Send what only says something: where it fails, the log has it."""
        async with self._slots:
            try:
                await write
            except ClientError as error:
                if not (isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)):
                    self._log.warning("report failed", about=about.key, error=str(error))

    async def _insist(self, order: Order, pod: Pod, act: Callable[[], Awaitable[None]]) -> bool:
        """Send until it works or the plan falls; a pod that is gone is as good. Return whether to go on."""
        failures = 0
        while order.stands():
            error = await self._send(act)
            if error is None:
                return True
            if _is_final(error):
                self._log.warning("eviction refused", pod=pod.metadata.key, error=str(error))
                order.refused(pod, error)
                return False
            failures += 1
            wait = BACKOFF.wait(failures, error)
            self._log.warning("eviction failed", pod=pod.metadata.key, error=str(error), retry_in=wait)
            await self._connection.timing.sleep(wait)
        return False

    async def _send(self, act: Callable[[], Awaitable[None]]) -> ClientError | None:
        """Send once; return what went wrong."""
        async with self._slots:
            try:
                await act()
            except ApiError as error:
                return None if error.is_not_found or error.is_conflict else error
            except ClientError as error:
                return error
        return None


def told(scheduler_name: str, preemptor: Preemptor) -> str:
    """Return what a victim's condition says; its end names the preemptor beyond doubt, also after a restart."""
    return (
        f"{scheduler_name}: preempting to accommodate a higher priority {preemptor.kind} "
        f"{preemptor.name} {preemptor.uid}"
    )


def is_told(pod: Pod, preemptor_uid: str) -> bool:
    """Tell whether a pod is a victim of that preemptor."""
    found = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    return (
        found is not None
        and found.status == "True"
        and found.reason == REASON_PREEMPTION
        and found.message.endswith(f" {preemptor_uid}")
    )


def _is_final(error: ClientError) -> bool:
    """Tell whether asking again would be answered the same: the server has understood, and said no."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status not in {408, 429}
