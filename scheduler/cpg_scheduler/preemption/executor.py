"""The evictor: what a plan says is done, in an order that somebody who finds it half done can tell what it was.

1. The server is asked, without doing it, whether it would delete the pods of units that go whole: half a unit must
   never be left behind.
2. The preemptor's pods are nominated. The plan is looked at once more. Up to here nobody has been touched, and it can
   be dropped without a trace.
3. Unit by unit, many at a time, the first of each namespace ahead of the others, because what forbids it mostly
   forbids it there: the groups that go as a whole are told, then all pods of the unit, by a condition that names the
   preemptor, and then these are deleted. So of a unit that was begun all that is left of it bears the condition.

What fails is tried again. A refusal is final: it ends the plan, units that have not been begun stay, and who has been
told for nothing is told so. A unit whose first pod goes is carried through, whatever becomes of the plan. That we lack
a right says nothing of the pod, and a server that has just begun says it to all; a server that fails at the request (a
webhook of its cannot be asked) may do so for a moment. Both are believed after a while, so that no plan waits for ever.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import DISRUPTION_TARGET, EVENT_PREEMPTED, REASON_PREEMPTION
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import Event, apply_status, delete_pod, record_event, set_pod_status
from cpg_client.resources import PODS, Resource
from cpg_client.retrying import WatchBackoff
from cpg_engine.gangs.unit import POD
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.ports import EventSink, Nominator
from cpg_scheduler.status.conditions import EVICTION_MANAGER
from cpg_scheduler.write_gate import WriteGate

CONTROLLER = "cpg-scheduler"
BACKOFF = WatchBackoff(first=0.25, longest=10.0)
AGAIN = frozenset({401, 408, 409, 429})
"""Answers that may be another the next time: who we are is looked at anew, and the server was busy or overtaken."""
FAILED = 500
"""What the server answers where it could not do what was asked, such as ask a webhook."""
UNASKABLE = 400
"""What the server answers to a dry run where a webhook has side effects."""
DOUBTS = 8
"""How often it is asked again where we lack a right, or the server fails; by the backoff, half a minute."""
STUCK = 3
"""After how many failures in a row a unit lets the next one begin."""
Act: TypeAlias = Callable[[], Awaitable[None]]


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
    """What goes together, and why: the pods of a unit, or of it what is left."""

    pods: Sequence[Pod]
    reason: str
    groups: Sequence[Group] = ()
    """The groups that go as a whole with it."""


def always(victim: Victim) -> Sequence[Pod]:
    """Let every unit begin, as it is."""
    return victim.pods


class EvictionJob(Struct, frozen=True, kw_only=True):
    """A plan to perform, for as long as it stands; ``commit`` tells at the last moment whether it is begun at all.

    ``begins`` is asked before each unit who of it is to go, or None where it is to stay; from then on it is carried
    through, whole. ``refused`` is told of a pod that the API server will not have evicted, or nominated.
    """

    preemptor: Preemptor
    victims: Sequence[Victim]
    nominations: Sequence[tuple[Pod, str]]
    stands: Callable[[], bool]
    commit: Callable[[], bool]
    refused: Callable[[Pod, ClientError], None]
    known: bool = False
    """Whether it had been begun before a restart."""
    begins: Callable[[Victim], Sequence[Pod] | None] = always


class Turn:
    """A place among the units that are under way; who has to wait for the server hands it on."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        """Have none yet."""
        self._places = places
        self._has_one = False

    async def __aenter__(self) -> Self:
        await self._places.acquire()
        self._has_one = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hand_on()

    def hand_on(self) -> None:
        """Let somebody else have the place."""
        if self._has_one:
            self._has_one = False
            self._places.release()


class Evictor:
    """Performs orders, each on a task of its own."""

    def __init__(  # noqa: PLR0913 - each by its name
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
        gate: WriteGate,
        nominator: Nominator | None = None,
        events: EventSink | None = None,
    ) -> None:
        """Evict with so many requests in flight at the most."""
        self.later = events.later if events is not None else self._put_off
        self.nominate = nominator.nominate if nominator is not None else self._nominate
        self._gate = gate
        self._connection = connection
        self._resources = resources
        self._tasks = tasks
        self._scheduler_name = scheduler_name
        self._instance = instance
        self._metrics = metrics
        self._log = log
        self._slots = asyncio.Semaphore(in_flight)
        self._under_way = asyncio.Semaphore(in_flight)
        self._running: set[asyncio.Task[None]] = set()
        self._retracting: set[asyncio.Task[None]] = set()
        self._nominating: dict[str, EvictionJob] = {}

    def start(self, order: EvictionJob) -> None:
        """Begin to perform an order; who is concerned is told by its callbacks."""
        self._nominating.update((pod.metadata.uid, order) for pod, _ in order.nominations)
        self._spawn(self._perform(order))

    def retract(self, pods: Iterable[Pod], groups: Sequence[Group] = ()) -> None:
        """Tell pods that were told to go that they stay, and groups."""
        found = tuple(pods)
        if found:
            task = self._spawn(self._retract(found, groups))
            self._retracting.add(task)
            task.add_done_callback(self._retracting.discard)

    def move(self, nominations: Iterable[tuple[Pod, str]]) -> None:
        """Nominate pods to other nodes than before, without evicting anybody."""
        for pod, node in nominations:
            self._spawn(self._try(self.nominate(pod, node), pod.metadata))

    def clear(self, pods: Iterable[Pod]) -> None:
        """Nominate these pods no more."""
        found = tuple(pods)
        if found:
            self._spawn(self._clear(found))

    def _put_off(self, write: Callable[[], Awaitable[None]]) -> None:
        self._spawn(write())

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.wait(self._running)

    def _spawn(self, work: Awaitable[object]) -> asyncio.Task[None]:
        async def run() -> None:
            with self._gate.urgent():
                await work

        task = self._tasks.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _perform(self, order: EvictionJob) -> None:
        clock = self._connection.timing.clock
        began = clock()
        worked = order.known or await self._prepare(order)
        ours = [pod for pod, _ in order.nominations if self._nominating.get(pod.metadata.uid) is order]
        for pod in ours:  # from now on, who drops the plan takes them back
            del self._nominating[pod.metadata.uid]
        worked = worked and order.commit() and await self._evict(order)
        if not worked and not order.stands():
            await self._clear(ours)
        self._metrics.preemption.executed(order.preemptor.kind, clock() - began, worked=worked)

    async def _prepare(self, order: EvictionJob) -> bool:
        """Ask whether units may go whole, then nominate; return whether the plan still stands."""
        whole = [pod for victim in order.victims if len(victim.pods) > 1 for pod in victim.pods]
        asking = [(pod, self._deletion(pod, dry_run=True)) for pod in whole]
        nominating = [(pod, self._nomination(pod, node)) for pod, node in order.nominations]
        for round_ in (asking, nominating):
            if not await self._all(self._insist(order, pod, act, order.stands) for pod, act in round_):
                return False
        return order.stands()

    def _deletion(self, pod: Pod, *, dry_run: bool = False) -> Act:
        async def act() -> None:
            try:
                await delete_pod(self._connection, pod.metadata, dry_run=dry_run)
            except ApiError as error:
                if not (dry_run and error.status == UNASKABLE):
                    raise

        return act

    def _nomination(self, pod: Pod, node: str) -> Act:
        return lambda: self.nominate(pod, node)

    async def _nominate(self, pod: Pod, node: str) -> None:
        await set_pod_status(self._connection, pod.metadata, nominated_node=node)

    async def _evict(self, order: EvictionJob) -> bool:
        """Evict the victims; return whether that worked for all."""
        if order.known:  # all have been begun
            return await self._all(self._take(order, victim) for victim in order.victims)
        firsts = {victim.pods[0].metadata.namespace: victim for victim in reversed(order.victims)}
        scouts = list(firsts.values())
        rest = [victim for victim in order.victims if firsts[victim.pods[0].metadata.namespace] is not victim]
        return await self._all(self._take(order, victim) for victim in scouts) and await self._all(
            self._take(order, victim) for victim in rest
        )

    async def _take(self, order: EvictionJob, victim: Victim) -> bool:
        """Evict a unit when its turn has come: no more are under way than requests, so that a refusal can stop many."""
        async with Turn(self._under_way) as turn:
            pods = order.begins(victim)
            if not pods:
                return pods is not None
            has_gone = order.known or len(pods) < len(victim.pods)
            return await self._go(order, replace(victim, pods=pods), turn.hand_on, has_gone=has_gone)

    async def _go(self, order: EvictionJob, victim: Victim, stuck: Callable[[], None], *, has_gone: bool) -> bool:
        """Tell all groups and pods of a unit, then delete these; from the first on, it is carried through."""
        return await self._tell(order, victim, stuck) and await self._delete(order, victim, stuck, has_gone=has_gone)

    async def _tell(self, order: EvictionJob, victim: Victim, stuck: Callable[[], None]) -> bool:
        """Tell all groups and pods of a unit that they go; return whether they still are to."""
        if self._retracting:  # or a word of before would come after
            await asyncio.wait(self._retracting)
        message = told(self._scheduler_name, order.preemptor)
        await self._mark(victim.groups, "True", message)
        untold = [pod for pod in victim.pods if not (order.known and is_told(pod, order.preemptor.uid))]
        telling = (
            self._insist(order, pod, self._telling(pod, "True", message), order.stands, stuck=stuck) for pod in untold
        )
        heard = await asyncio.gather(*telling)
        if all(heard) and order.stands():
            return True
        await self._retract(itertools.compress(untold, heard), victim.groups)
        return False

    async def _delete(self, order: EvictionJob, victim: Victim, stuck: Callable[[], None], *, has_gone: bool) -> bool:
        """Delete all pods of a unit; return whether that has worked. Once somebody of it has gone, it goes on."""
        ended: set[str] = set()

        def is_lasting() -> bool:
            return has_gone or bool(ended)

        async def delete(pod: Pod) -> bool:
            act = self._deletion(pod)
            if await self._insist(order, pod, act, lambda: True, stuck=stuck, is_lasting=is_lasting):
                ended.add(pod.metadata.uid)
            return pod.metadata.uid in ended

        gone = await asyncio.gather(*map(delete, victim.pods))
        for pod in itertools.compress(victim.pods, gone):
            self._announce(order.preemptor, pod, victim.reason)
        if not all(gone):
            staying = (pod for pod, is_gone in zip(victim.pods, gone, strict=True) if not is_gone)
            await self._retract(staying, victim.groups)
        return all(gone)

    def _telling(self, pod: Pod, status: Literal["True", "False"], message: str) -> Act:
        condition = PodCondition(
            type=DISRUPTION_TARGET,
            status=status,
            reason=REASON_PREEMPTION,
            message=message,
            last_transition_time=f"{self._connection.timing.timestamp()[:19]}Z",
        )
        return lambda: set_pod_status(self._connection, pod.metadata, condition)

    async def _retract(self, pods: Iterable[Pod], groups: Sequence[Group] = ()) -> None:
        """Tell pods and groups that they stay after all."""
        message = f"{self._scheduler_name}: not evicted after all"
        await self._mark(groups, "False", message)
        await self._all(self._try(self._telling(pod, "False", message)(), pod.metadata) for pod in pods)

    def _announce(self, preemptor: Preemptor, pod: Pod, reason: str) -> None:
        """Have an event written about a pod that was evicted."""
        event = Event(
            type="Normal",
            reason=EVENT_PREEMPTED,
            action="Preempting",
            note=f"Preempted by {preemptor.kind} {preemptor.uid}: {reason}",
            controller=CONTROLLER,
            instance=self._instance,
        )
        related = self._reference(preemptor)

        async def write() -> None:
            await self._try(record_event(self._connection, PODS, pod.metadata, event, related=related), pod.metadata)

        self.later(write)

    def _reference(self, preemptor: Preemptor) -> tuple[Resource, ObjectMeta] | None:
        """Return what an event about a victim relates to."""
        key = preemptor.key
        resource = self._resources(preemptor.group) if preemptor.group else PODS if key.kind == POD else None
        if resource is None:
            return None
        return resource, ObjectMeta(name=key.name, namespace=key.namespace, uid=preemptor.uid)

    async def _mark(self, groups: Iterable[Group], status: Literal["True", "False"], message: str) -> None:
        """Say of groups that they go as a whole, or that they stay."""
        await self._all(
            self._try(self._saying(resource, group, status, message), group.metadata)
            for group in groups
            if (resource := self._resources(group)) is not None
        )

    async def _saying(self, resource: Resource, group: Group, status: Literal["True", "False"], message: str) -> None:
        condition = Condition(
            type=DISRUPTION_TARGET,
            status=status,
            reason=REASON_PREEMPTION,
            message=message,
            observed_generation=group.metadata.generation,
            last_transition_time=f"{self._connection.timing.timestamp()[:19]}Z",
        )
        said = {"conditions": [condition]}
        await apply_status(self._connection, resource, group.metadata, status=said, manager=EVICTION_MANAGER)

    async def _clear(self, pods: Sequence[Pod]) -> None:
        await asyncio.gather(
            *(
                self._try(set_pod_status(self._connection, pod.metadata, nominated_node=None), pod.metadata)
                for pod in pods
                if pod.metadata.uid not in self._nominating  # a newer plan has
            )
        )

    async def _try(self, write: Awaitable[object], about: ObjectMeta) -> bool:
        """Send what only says something: where it fails, the log has it."""
        async with self._slots:
            try:
                await write
            except ClientError as error:
                if not (isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)):
                    self._log.warning("report failed", about=about.key, error=str(error))
        return True

    async def _all(self, works: Iterable[Awaitable[bool]]) -> bool:
        return all(await asyncio.gather(*works))

    async def _insist(
        self,
        order: EvictionJob,
        pod: Pod,
        act: Act,
        goes_on: Callable[[], bool],
        *,
        stuck: Callable[[], None] = lambda: None,
        is_lasting: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send until it works, or there is no reason to any more; return whether it is done, or the pod gone.

        It is told that it is ``stuck`` when it fails time and again. What is ``lasting`` goes on where there are doubts
        alone, though the plan has been told that it is refused.
        """
        failures = doubts = 0
        while goes_on():
            async with self._slots:
                if not goes_on():
                    return False
                error = await _outcome(act)
            if error is None:
                return True
            is_doubtful = _is_doubtful(error)
            doubts += is_doubtful
            if doubts == DOUBTS + 1 if is_doubtful else _is_final(error):
                self._log.warning("eviction refused", pod=pod.metadata.key, error=str(error))
                order.refused(pod, error)
                if not (is_doubtful and is_lasting()):
                    return False
            failures += 1
            if failures == STUCK:
                stuck()
            wait = BACKOFF.wait(failures, error)
            self._log.warning("eviction failed", pod=pod.metadata.key, error=str(error), retry_in=wait)
            await self._connection.timing.sleep(wait)
        return False


async def _outcome(act: Act) -> ClientError | None:
    """Send once; return what went wrong. Who is gone, or is another pod by now, needs nothing more."""
    try:
        await act()
    except ApiError as error:
        return None if error.is_not_found or (error.is_conflict and _tells_of_another(error)) else error
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
    found = telling(pod)
    return found is not None and found.message.endswith(f" {preemptor_uid}")


def telling(pod: Pod) -> PodCondition | None:
    """Return what a pod was told if it is a victim."""
    return find_condition(pod.status.conditions, DISRUPTION_TARGET) if is_disrupted(pod) else None


def whom(scheduler_name: str, message: str) -> Preemptor | None:
    """Return the preemptor that we have told a victim of; its group may be gone, so it is without."""
    for kind in (POD, PodGroup.kind, CompositePodGroup.kind):
        beginning = told(scheduler_name, Preemptor(GroupKey(kind, "", ""), "")).removesuffix("/ ")
        place, _, uid = message.removeprefix(beginning).partition(" ")
        namespace, _, name = place.partition("/")
        if message.startswith(beginning) and name:
            return Preemptor(GroupKey(kind, namespace, name), uid)
    return None


def _tells_of_another(error: ApiError) -> bool:
    """Tell whether a conflict is about the UID: the server has no code of its own for that."""
    return "uid" in error.message.lower() or "another object has this name" in error.message


def _lacks_right(error: ClientError) -> bool:
    """Tell whether it is said of us that we must not: admission speaks of the pod, authorization of a user."""
    return isinstance(error, ApiError) and error.is_forbidden and ' is forbidden: User "' in error.message


def _is_doubtful(error: ClientError) -> bool:
    """Tell whether a no may be a yes in a moment, and may be none."""
    return _lacks_right(error) or (isinstance(error, ApiError) and error.status == FAILED)


def _is_final(error: ClientError) -> bool:
    """Tell whether asking again would be answered the same: the server knows who asks for what, and says no."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status not in AGAIN
