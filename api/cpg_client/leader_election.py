"""Leader election on a Lease: of several replicas one works, and the next takes over when it ends or dies.

The rules, which are client-go's:

1. **No clock but one's own is trusted.** Times in the record are for people. A candidate notes when, by its own
   clock, it first saw the record as it is; a lease is over when it has not changed for its duration since then.
   Replicas may disagree about the time of day, but not much about how long a second is.
2. **The leader gives up first.** It counts from before its last successful write was sent, others from when they
   saw it, and ``renew_deadline`` is shorter than ``lease_duration``: it has stopped before another can start, if
   its work ends within the difference once cancelled.
3. **Every write is conditional** on the version that was read, so of two candidates one gets a conflict.

With the defaults a killed leader is followed within 12 seconds: the duration, plus the period by which its last
write may have been seen late, plus two requests. One that ends cleanly empties ``holderIdentity`` and is
followed within one period. A lost leader does not fight for its lease again: its caches and plans are from another
time, so ``run`` raises and the process had better start afresh.

Give the elector a ``Connection`` of its own: renewals that queue behind ten thousand binds are late.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from cpg_client.answers import read_answer
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.resources import LEASES
from cpg_client.timing import REAL_TIME, Timing, cancel_and_wait

T = TypeVar("T")


class LeadershipLostError(ClientError):
    """We led, and do so no more: the lease could not be renewed in time, or somebody else holds it."""


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a Lease's ``spec`` that the election is about."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True)
class ObservedRecord:
    """A record and the version by which it can be replaced."""

    record: LeaseRecord
    version: str


class LeaseStore(Protocol):
    """Where the record is kept; writes raise an ``ApiError`` of a conflict where the version is not the latest."""

    async def read(self) -> ObservedRecord | None:
        """Return the record, None where there is none."""

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Write the first record."""

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Write the next record after that version."""


class _LeaseMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta
    spec: LeaseRecord | None = None


class ApiLeaseStore:
    """A Lease object on the API server; what others wrote into it besides the record is left alone."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._connection = connection
        self._name = name
        self._collection = LEASES.path(namespace)
        self._path = LEASES.path(namespace, name)

    async def read(self) -> ObservedRecord | None:
        """Return the record, None where there is none."""
        try:
            return _read_lease(await self._connection.get(self._path), f"GET {self._path}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Write the first record."""
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        body = {**kind, "metadata": {"name": self._name}, "spec": record}
        return _read_lease(await self._connection.post(self._collection, body), f"POST {self._collection}")

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Write the next record after that version."""
        body = {"metadata": {"resourceVersion": version}, "spec": record}
        return _read_lease(await self._connection.patch(self._path, body, MERGE_PATCH), f"PATCH {self._path}")


def _read_lease(body: bytes, request: str) -> ObservedRecord:
    lease = read_answer(body, _Lease, request=request, expected="a Lease")
    return ObservedRecord(lease.spec or LeaseRecord(), lease.metadata.resource_version)


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """Seconds: how long others must wait, how long we try to renew, and how often we look or write."""

    lease_duration: int = 10
    renew_deadline: float = 7.0
    retry_period: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry_period <= self.renew_deadline < self.lease_duration:
            raise ValueError(
                "lease settings must keep retry_period <= renew_deadline / 2 and renew_deadline < lease_duration,"
                f" but are {self.retry_period:g}, {self.renew_deadline:g} and {self.lease_duration:g} seconds"
            )


def _ignore_leader(_: str) -> None:
    """Ignore who leads: what an elector does by default about telling."""


def _ignore_failure(_: Exception) -> None:
    """Ignore a failed attempt: what an elector does by default about telling."""


class LeaderElector:
    """One candidate. ``identity`` must differ from every other's: a pod's name and UID, or a host and a number.

    ``on_leader`` is told who holds the lease whenever that changes, with an empty text for nobody; ``on_failure``
    of every attempt that failed, each of which is followed by another.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        settings: LeaseSettings | None = None,
        *,
        timing: Timing = REAL_TIME,
        on_new_leader: Callable[[str], None] = _ignore_leader,
        on_failure: Callable[[Exception], None] = _ignore_failure,
    ) -> None:
        self.leading = False
        self._store = store
        self._identity = identity
        self._settings = settings or LeaseSettings()
        self._timing = timing
        self._on_leader = on_new_leader
        self._on_failure = on_failure
        self._observed: ObservedRecord | None = None
        self._observed_at = 0.0
        self._fresh = False
        self._told: str | None = None
        self._leads_until = 0.0
        self._failing_since: float | None = None
        self._writing: asyncio.Task[ObservedRecord] | None = None

    @property
    def leader(self) -> str:
        """Who holds the lease as far as we know, empty for nobody."""
        return self._holder()

    def failing_for(self, now: float) -> float:
        """Return for how many seconds no attempt to read or write the lease has worked; 0 where the last one did."""
        return 0.0 if self._failing_since is None else now - self._failing_since

    def check(self) -> None:
        """Raise ``LeadershipLostError`` unless we lead at this very moment.

        A process that was stopped and goes on finds its tasks where they stood: those that write ask here before each
        write, because nobody can say that the renewal will be the first to notice. What was let through and is not yet
        on the wire when the process is stopped is sent when it goes on: one request for each in flight, at the most.
        """
        if not self.leading or self._timing.clock() >= self._leads_until:
            raise LeadershipLostError("the lease is not ours, or was not renewed in time")

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait to lead, then do the work while leading, and return what it returns.

        When the lead is lost, the work is cancelled and ``LeadershipLostError`` raised once it has ended. When the
        work ends or is cancelled from outside, the lease is released after it, so that two never work at once.
        """
        try:
            self._leads_until = await self._acquire() + self._settings.renew_deadline
            self.leading = True
            return await self._lead(work)
        finally:
            self.leading = False
            await self._release()

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work and renew, until one of the two ends; both have ended then."""
        working = asyncio.create_task(work(), name="work of the leader")
        renewing = asyncio.create_task(self._keep(), name="renewal of the lease")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            self.leading = False
            await cancel_and_wait(working)
            trouble = None if working.cancelled() else working.exception()
            try:
                renewing.result()
            except LeadershipLostError as lost:
                raise lost from trouble
        finally:
            self.leading = False
            await cancel_and_wait(working)
            await cancel_and_wait(renewing)

    async def _acquire(self) -> float:
        """Return, once we hold the lease, when the request that got it was sent."""
        while True:
            sent = self._timing.clock()
            if await self._attempt(self._take, self._settings.renew_deadline / 2):
                return sent
            await self._timing.sleep(self._until_next_look())

    async def _keep(self) -> NoReturn:
        """Renew until that fails for too long or somebody else holds the lease."""
        settings, clock = self._settings, self._timing.clock
        while True:
            left = self._leads_until - clock()
            await self._timing.sleep(max(0.0, min(settings.retry_period, left)))
            sent = clock()
            left = self._leads_until - sent
            if left <= 0:
                raise LeadershipLostError(f"the lease could not be renewed for {settings.renew_deadline:g} s")
            if await self._attempt(self._take, min(left, settings.renew_deadline / 2)):
                self._leads_until = sent + settings.renew_deadline
            elif self._observed is not None and not self._is_ours(self._observed.record):
                raise LeadershipLostError(f"{self._holder() or 'nobody'} holds the lease")

    async def _attempt(self, action: Callable[[], Coroutine[Any, Any, bool]], seconds: float) -> bool:
        """Try once, for so long; what becomes of a write that failed is unknown, so the next one reads first."""
        try:
            done = await self._timing.within(seconds, action())
        except (ClientError, TimeoutError) as error:
            if self._writing is not None:
                await cancel_and_wait(self._writing)
            if _is_lost_race(error):
                self._writing = None
            else:
                self._on_failure(error)
                self._failing_since = self._failing_since or self._timing.clock()
            self._fresh = False
            return False
        self._failing_since = None
        return done

    async def _take(self) -> bool:
        """Write the record as ours, if it is ours or over; tell whether that was done."""
        if not self._fresh:
            self._observe(await self._store.read())
        observed = self._observed
        if observed is None:
            await self._write(self._store.create(self._record(None)))
        elif self._may_take(observed.record):
            await self._write(self._store.replace(observed.version, self._record(observed.record)))
        else:
            return False
        self._fresh = True
        return True

    async def _write(self, request: Coroutine[Any, Any, ObservedRecord]) -> None:
        """Write the record; who is told to end meanwhile leaves the request alone, to hear what became of it."""
        self._writing = asyncio.create_task(request, name="write of the lease")
        self._observe(await asyncio.shield(self._writing))
        self._writing = None

    async def _release(self) -> None:
        """Say that nobody leads, if we are the one who does; failing that, the lease runs out by itself.

        It may be ours although nobody has heard so: if the write by which we took it has not been answered.
        """
        writing, observed = self._writing, self._observed
        if writing is None and (observed is None or not self._is_ours(observed.record)):
            return

        async def clear() -> bool:
            if writing is not None:
                await asyncio.wait({writing})
            observed = await self._store.read()
            if observed is not None and self._is_ours(observed.record):
                ours = msgspec.structs.replace(observed.record, holder_identity="", lease_duration_seconds=1)
                self._observe(await self._store.replace(observed.version, ours))
            return True

        await self._attempt(clear, self._settings.retry_period)

    def _observe(self, observed: ObservedRecord | None) -> None:
        if observed is None or self._observed is None or observed.record != self._observed.record:
            self._observed_at = self._timing.clock()
        self._observed = observed
        if self._told != self._holder():
            self._told = self._holder()
            self._on_leader(self._told)

    def _holder(self) -> str:
        return (self._observed and self._observed.record.holder_identity) or ""

    def _is_ours(self, record: LeaseRecord) -> bool:
        return record.holder_identity == self._identity

    def _may_take(self, record: LeaseRecord) -> bool:
        """Tell whether the record is ours or over; who leads does not take it back from whoever had it since."""
        if self.leading or self._is_ours(record):
            return self._is_ours(record)
        return not record.holder_identity or self._remaining(record) <= 0

    def _remaining(self, record: LeaseRecord) -> float:
        """Return for how long the holder may still lead: by its own word about the duration, by our clock."""
        duration = record.lease_duration_seconds or self._settings.lease_duration
        return self._observed_at + duration - self._timing.clock()

    def _until_next_look(self) -> float:
        """Look every period, and at the very moment when the lease may be taken."""
        period = self._settings.retry_period
        if self._observed is None or self._may_take(self._observed.record):
            return period
        return min(period, self._remaining(self._observed.record))

    def _record(self, before: LeaseRecord | None) -> LeaseRecord:
        now = self._timing.timestamp()
        transitions = (before and before.lease_transitions) or 0
        ours = before is not None and self._is_ours(before)
        return LeaseRecord(
            holder_identity=self._identity,
            lease_duration_seconds=self._settings.lease_duration,
            acquire_time=before.acquire_time if ours and before else now,
            renew_time=now,
            lease_transitions=transitions if ours else transitions + 1,
        )


def _is_lost_race(error: Exception) -> bool:
    return isinstance(error, ApiError) and (error.is_conflict or error.is_already_exists)
