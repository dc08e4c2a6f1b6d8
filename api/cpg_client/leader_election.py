"""Leader election on a Lease: one replica works, and another takes over when it ends.

The rules are those of client-go:

1. **Each replica trusts its own clock alone.** Times in the record are for people. A candidate notes by its own clock
   when it first saw the record in its present state. The lease has expired when the record has not changed for its
   duration since then. Clocks may disagree about the time of day, but not much about the length of a second.
2. **The leader gives up first.** It counts from before its last successful write was sent; others count from when they
   saw the write. ``renew_deadline`` is shorter than ``lease_duration``. So the leader has stopped before another
   starts, if its work ends within the difference.
3. **Every write is conditional** on the version that was read, so of two candidates one gets a conflict.

With the defaults, another replica follows a killed leader within 12 seconds: the duration, one period by which its last
write may have been seen late, and two requests. A leader that ends cleanly empties ``holderIdentity``, and another
follows within one period. A leader that loses its lease does not compete for it again: its caches and plans are
outdated, so ``run`` raises and the process should restart.

Give the elector its own ``Connection``, so that renewals do not queue behind ten thousand binds. ``ElectionThread``
runs it on a thread. Its properties and ``check`` may be read from another one.
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
    """The lease could not be renewed in time, or another replica holds it."""


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a Lease's ``spec`` that the election uses."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True)
class ObservedRecord:
    """A record, and the version that replaces must name."""

    record: LeaseRecord
    version: str


class LeaseStore(Protocol):
    """The storage of the record. Writes of an outdated version raise an ``ApiError`` for a conflict."""

    async def read(self) -> ObservedRecord | None:
        """Return the record, or None where there is none."""

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Create the record."""

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Replace the record of this version."""


class _LeaseMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta
    spec: LeaseRecord | None = None


class ApiLeaseStore:
    """The record in a Lease object on the API server. Other fields of the Lease are kept."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._connection = connection
        self._name = name
        self._collection = LEASES.path(namespace)
        self._path = LEASES.path(namespace, name)

    async def read(self) -> ObservedRecord | None:
        """Return the record, or None where there is none."""
        try:
            return _read_lease(await self._connection.get(self._path), f"GET {self._path}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Create the Lease."""
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        body = {**kind, "metadata": {"name": self._name}, "spec": record}
        return _read_lease(await self._connection.post(self._collection, body), f"POST {self._collection}")

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Replace the record of this version."""
        body = {"metadata": {"resourceVersion": version}, "spec": record}
        return _read_lease(await self._connection.patch(self._path, body, MERGE_PATCH), f"PATCH {self._path}")


def _read_lease(body: bytes, request: str) -> ObservedRecord:
    lease = read_answer(body, _Lease, request=request, expected="a Lease")
    return ObservedRecord(lease.spec or LeaseRecord(), lease.metadata.resource_version)


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """Seconds: how long others wait, how long the leader tries to renew, and the time between attempts."""

    lease_duration: int = 10
    renew_deadline: float = 7.0
    retry_period: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry_period <= self.renew_deadline < self.lease_duration:
            raise ValueError(
                "lease settings must keep retry_period <= renew_deadline / 2 and renew_deadline < lease_duration,"
                f" but are {self.retry_period:g}, {self.renew_deadline:g} and {self.lease_duration:g} seconds"
            )


def _ignore(_: object) -> None:
    """Do nothing: the default of ``on_new_leader`` and ``on_failure``."""


class LeaderElector:
    """One candidate. Its ``identity`` must be unique: a pod's name and UID, or a host and a number.

    ``on_new_leader`` is called with the holder of the lease whenever it changes, empty for none. ``on_failure`` is
    called after each failed attempt; another attempt follows.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        settings: LeaseSettings | None = None,
        *,
        timing: Timing = REAL_TIME,
        on_new_leader: Callable[[str], None] = _ignore,
        on_failure: Callable[[Exception], None] = _ignore,
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
        self._is_record_current = False
        self._reported_holder: str | None = None
        self._leads_until = 0.0
        self._failing_since: float | None = None
        self._writing: asyncio.Task[ObservedRecord] | None = None

    @property
    def leader(self) -> str:
        """The identity of the last known holder, empty for none."""
        return self._holder()

    def failing_for(self) -> float:
        """Return the seconds for which all attempts to read or write the lease have failed; 0 if the last succeeded."""
        since = self._failing_since
        return 0.0 if since is None else self._timing.clock() - since

    def check(self) -> None:
        """Raise ``LeadershipLostError`` unless this replica leads at this moment.

        A process that was stopped resumes its tasks where they were, and the renewal need not run first. So writers
        call this before each write. A request that passed the check before the process was stopped is sent afterwards:
        at most one for each open connection.
        """
        if not self.leading or self._timing.clock() >= self._leads_until:
            raise LeadershipLostError("the lease is not ours, or was not renewed in time")

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the lease, do the work while leading, and return its result.

        When the lease is lost, the work is cancelled, and ``LeadershipLostError`` is raised once the work has ended.
        When the work ends or is cancelled, the lease is released afterwards, so that two replicas never work at once.
        """
        try:
            self._leads_until = await self._acquire() + self._settings.renew_deadline
            self.leading = True
            return await self._lead(work)
        finally:
            self.leading = False
            await self._release()

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work and renew the lease until one of them ends; both have ended on return."""
        working = asyncio.create_task(work(), name="work of the leader")
        renewing = asyncio.create_task(self._renew_until_lost(), name="renewal of the lease")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            self.leading = False
            await cancel_and_wait(working)
            work_error = None if working.cancelled() else working.exception()
            try:
                renewing.result()
            except LeadershipLostError as lost:
                raise lost from work_error
        finally:
            self.leading = False
            await cancel_and_wait(working)
            await cancel_and_wait(renewing)

    async def _acquire(self) -> float:
        """Take the lease; return when the request that took it was sent."""
        while True:
            sent = self._timing.clock()
            if await self._attempt(self._try_take, self._settings.renew_deadline / 2):
                return sent
            await self._timing.sleep(self._seconds_to_next_attempt())

    async def _renew_until_lost(self) -> NoReturn:
        """Renew the lease until that fails for too long or another replica holds it."""
        settings, clock = self._settings, self._timing.clock
        while True:
            left = self._leads_until - clock()
            await self._timing.sleep(max(0.0, min(settings.retry_period, left)))
            sent = clock()
            left = self._leads_until - sent
            if left <= 0:
                raise LeadershipLostError(f"the lease could not be renewed for {settings.renew_deadline:g} s")
            if await self._attempt(self._try_take, min(left, settings.renew_deadline / 2)):
                self._leads_until = sent + settings.renew_deadline
            elif self._observed is not None and not self._is_ours(self._observed.record):
                raise LeadershipLostError(f"{self._holder() or 'no replica'} holds the lease")

    async def _attempt(self, action: Callable[[], Coroutine[Any, Any, bool]], seconds: float) -> bool:
        """Try once within some seconds. The result of a failed write is unknown, so the next attempt reads first."""
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
            self._is_record_current = False
            return False
        self._failing_since = None
        return done

    async def _try_take(self) -> bool:
        """Write the record if the lease is ours or has expired; return whether it was written."""
        if not self._is_record_current:
            self._observe(await self._store.read())
        observed = self._observed
        if observed is None:
            await self._write(self._store.create(self._record(None)))
        elif self._may_take(observed.record):
            await self._write(self._store.replace(observed.version, self._record(observed.record)))
        else:
            return False
        self._is_record_current = True
        return True

    async def _write(self, request: Coroutine[Any, Any, ObservedRecord]) -> None:
        """Write the record. Cancellation leaves the request running, so that its result is known on release."""
        self._writing = asyncio.create_task(request, name="write of the lease")
        self._observe(await asyncio.shield(self._writing))
        self._writing = None

    async def _release(self) -> None:
        """Release the lease if it is ours. If that fails, the lease expires by itself.

        The lease may be ours without an answer: the write that took it may still be under way.
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
        if self._reported_holder != self._holder():
            self._reported_holder = self._holder()
            self._on_leader(self._reported_holder)

    def _holder(self) -> str:
        observed = self._observed
        return (observed and observed.record.holder_identity) or ""

    def _is_ours(self, record: LeaseRecord) -> bool:
        return record.holder_identity == self._identity

    def _may_take(self, record: LeaseRecord) -> bool:
        """Return whether the record is ours or has expired. A leader never takes its lease back from another."""
        if self.leading or self._is_ours(record):
            return self._is_ours(record)
        return not record.holder_identity or self._remaining(record) <= 0

    def _remaining(self, record: LeaseRecord) -> float:
        """Return for how long the holder may still lead: by the duration in its record, and by our clock."""
        duration = record.lease_duration_seconds or self._settings.lease_duration
        return self._observed_at + duration - self._timing.clock()

    def _seconds_to_next_attempt(self) -> float:
        """Return the seconds to the next attempt: one period, or less where the lease expires before."""
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
