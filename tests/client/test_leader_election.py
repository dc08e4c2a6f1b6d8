"""Leader election when time passes and requests fail. All in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.leader_election import LeaderElector, LeadershipLostError, LeaseRecord, LeaseSettings, ObservedRecord
from cpg_client.timing import cancel_and_wait

if TYPE_CHECKING:
    from tests.client.conftest import VirtualTime


class Lease:
    """Keeps the record in memory. It can be unreachable, hang, or lose responses."""

    def __init__(self) -> None:
        self.record_now: ObservedRecord | None = None
        self.writes: list[LeaseRecord] = []
        self.hanging = False
        self.broken = False
        self.responses_to_lose = 0

    async def _reach(self) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        if self.broken:
            raise ConnectionFailedError("lease", "any", "broken")

    async def read(self) -> ObservedRecord | None:
        """Return the record."""
        await self._reach()
        return self.record_now

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Store the first record."""
        await self._reach()
        if self.record_now is not None:
            raise ApiError(409, "AlreadyExists", "")
        return self._store(record)

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Store the next record, unless another candidate was faster."""
        await self._reach()
        if self.record_now is None:
            raise ApiError(404, "NotFound", "")
        if self.record_now.version != version:
            raise ApiError(409, "Conflict", "")
        return self._store(record)

    def _store(self, record: LeaseRecord) -> ObservedRecord:
        self.writes.append(record)
        self.record_now = ObservedRecord(record, str(len(self.writes)))
        if self.responses_to_lose:
            self.responses_to_lose -= 1
            raise ConnectionFailedError("lease", "any", "response lost")
        return self.record_now

    def holder(self) -> str | None:
        """Return the holder in the record."""
        return self.record_now.record.holder_identity if self.record_now else None


class LeaseConnection:
    """One candidate's connection to the lease, which can be cut while others still have theirs."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.cut = False

    async def _reach(self) -> None:
        if self.cut:
            raise ConnectionFailedError("lease", "any", "cut")

    async def read(self) -> ObservedRecord | None:
        """Return the record."""
        await self._reach()
        return await self.lease.read()

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Store the first record."""
        await self._reach()
        return await self.lease.create(record)

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Store the next record, unless another candidate was faster."""
        await self._reach()
        return await self.lease.replace(version, record)


class Candidate:
    """A replica that records when it works."""

    def __init__(self, name: str, lease: Lease, time: "VirtualTime") -> None:
        self.began: list[float] = []
        self.ended: list[float] = []
        self.leaders: list[str] = []
        self.failures: list[Exception] = []
        self.finish = asyncio.Event()
        self.connection = LeaseConnection(lease)
        self._time = time
        self.elector = LeaderElector(
            self.connection,
            name,
            timing=time.timing,
            on_new_leader=self.leaders.append,
            on_failure=self.failures.append,
        )
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self) -> str:
        """Work until ``finish`` is set."""
        self.began.append(self._time.now)
        try:
            await self.finish.wait()
        finally:
            self.ended.append(self._time.now)
        return "done"

    async def kill(self) -> None:
        """Kill the replica: for others it just stops sending requests."""
        self.connection.cut = True
        await cancel_and_wait(self.task)


@pytest.fixture
def lease() -> Lease:
    """Return a lease without a record."""
    return Lease()


@pytest.fixture
async def one(lease: Lease, virtual: "VirtualTime") -> AsyncIterator[Candidate]:
    """Run one candidate, which leads."""
    candidate = Candidate("one", lease, virtual)
    await virtual.advance(0)
    assert candidate.began == [0]
    yield candidate
    candidate.connection.cut = True
    await end_candidate(candidate, virtual)


@pytest.fixture
async def two(one: Candidate, lease: Lease, virtual: "VirtualTime") -> AsyncIterator[Candidate]:
    """Run another candidate, which waits."""
    candidate = Candidate("two", lease, virtual)
    await virtual.advance(0)
    assert one.elector.leading
    yield candidate
    candidate.connection.cut = True
    await end_candidate(candidate, virtual)


async def end_candidate(candidate: Candidate, virtual: "VirtualTime") -> None:
    """End a candidate, however long its last request takes."""
    task = asyncio.create_task(cancel_and_wait(candidate.task))
    await virtual.advance(10)
    await task


async def test_the_first_leads_and_renews(one: Candidate, two: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """It writes once per period, no other replica leads, and each is notified once of the leader."""
    await virtual.advance(60)
    assert one.elector.leading
    assert (one.began, one.ended, two.began) == ([0], [], [])
    assert (one.leaders, two.leaders) == (["", "one"], ["one"])
    assert len(lease.writes) == 41
    first, *_, last = lease.writes
    assert first == LeaseRecord("one", 10, "2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:00.000000Z", 1)
    assert last == msgspec.structs.replace(first, renew_time="2027-01-15T08:01:00.000000Z")


async def test_another_follows_a_clean_end_within_a_period(
    one: Candidate, two: Candidate, lease: Lease, virtual: "VirtualTime"
) -> None:
    """The work's result is returned, the holder is cleared, and the next replica leads at its next attempt."""
    await virtual.advance(20)
    one.finish.set()
    await virtual.advance(1.5)
    assert await one.task == "done"
    assert not one.elector.leading
    assert two.began == [21]
    assert "" in [record.holder_identity for record in lease.writes]
    assert lease.writes[-1].lease_transitions == 2


async def test_another_follows_a_cancelled_leader(one: Candidate, two: Candidate, virtual: "VirtualTime") -> None:
    """The work ends before the lease is released, so that two never work at once."""
    await virtual.advance(20)
    one.task.cancel()
    await virtual.advance(1.5)
    assert one.task.cancelled()
    assert one.ended == [20]
    assert two.began == [21]


@pytest.mark.parametrize("after", [0.0, 0.7, 1.4, 1.5, 7.3])
async def test_another_follows_a_killed_leader_in_time(
    one: Candidate, two: Candidate, virtual: "VirtualTime", after: float
) -> None:
    """Within 12 seconds, whenever it was killed between two renewals, and never before its lease has expired."""
    await virtual.advance(30 + after)
    await one.kill()
    await virtual.advance(12)
    (began,) = two.began
    assert 8.5 <= began - (30 + after) <= 11.5
    assert two.leaders == ["one", "two"]


async def test_a_disconnected_leader_stops_before_the_next_starts(
    one: Candidate, two: Candidate, virtual: "VirtualTime"
) -> None:
    """At its deadline it stops, seconds before another replica may lead."""
    await virtual.advance(30)
    one.connection.cut = True
    await virtual.advance(12)
    with pytest.raises(LeadershipLostError, match="could not be renewed for 7 s"):
        await one.task
    assert one.ended == [37]
    assert two.began == [40]
    assert all(isinstance(error, ConnectionFailedError) for error in one.failures)


async def test_a_hanging_server_ends_the_leadership(one: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """A request without a response counts as failed after half of the deadline at most."""
    await virtual.advance(30)
    lease.hanging = True
    await virtual.advance(7)
    assert one.ended == [37]
    assert str(one.failures[0]) == "no answer within 3.5 s"
    await virtual.advance(2)
    with pytest.raises(LeadershipLostError):
        await one.task


async def test_a_short_failure_keeps_the_leader(
    one: Candidate, two: Candidate, lease: Lease, virtual: "VirtualTime"
) -> None:
    """Four seconds without an API server, and a lost response after them."""
    await virtual.advance(30)
    lease.broken = True
    await virtual.advance(4)
    lease.broken = False
    lease.responses_to_lose = 1
    await virtual.advance(30)
    assert (one.ended, two.began) == ([], [])
    assert one.failures
    assert two.failures


async def test_a_lease_taken_by_another_is_lost(one: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """At once, and the record of the other is not overwritten."""
    await virtual.advance(30)
    lease._store(LeaseRecord("other", 10, None, None, 7))
    await virtual.advance(1.5 * 2)
    with pytest.raises(LeadershipLostError, match="other holds the lease"):
        await one.task
    assert lease.holder() == "other"
    assert one.failures == []


async def test_a_lease_emptied_by_others_is_lost(one: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """Another replica may have led in between, so the leader does not take it back."""
    lease._store(LeaseRecord("", 1, None, None, 7))
    await virtual.advance(3)
    with pytest.raises(LeadershipLostError, match="no replica holds the lease"):
        await one.task


async def test_a_deleted_lease_is_created_again(one: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """The leader goes on."""
    await virtual.advance(30)
    lease.record_now = None
    await virtual.advance(3)
    assert lease.holder() == "one"
    assert one.ended == []


async def test_times_in_the_record_are_ignored(lease: Lease, virtual: "VirtualTime") -> None:
    """A leader with a clock that is years behind leads as long as its record changes, and for its duration after."""
    lease._store(LeaseRecord("old", 20, "1999-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z", 3))
    waiting = Candidate("one", lease, virtual)
    await virtual.advance(19.9)
    assert waiting.began == []
    await virtual.advance(0.2)
    assert waiting.began == [20]
    assert lease.writes[-1].lease_transitions == 4
    await end_candidate(waiting, virtual)


async def test_concurrent_candidates_have_one_winner(lease: Lease, virtual: "VirtualTime") -> None:
    """Losing the race for a free lease is no failure."""
    candidates = [Candidate(str(number), lease, virtual) for number in range(5)]
    await virtual.advance(5)
    assert [len(candidate.began) for candidate in candidates].count(1) == 1
    assert [error for candidate in candidates for error in candidate.failures] == []
    for candidate in candidates:
        await end_candidate(candidate, virtual)


async def test_a_restarted_replica_takes_its_lease_back(lease: Lease, virtual: "VirtualTime") -> None:
    """A holder of the same name need not be waited for."""
    lease._store(LeaseRecord("one", 10, "t", "t", 3))
    again = Candidate("one", lease, virtual)
    await virtual.advance(0)
    assert again.began == [0]
    assert (lease.writes[-1].acquire_time, lease.writes[-1].lease_transitions) == ("t", 3)
    await end_candidate(again, virtual)


async def test_a_write_with_a_lost_response_is_found(lease: Lease, virtual: "VirtualTime") -> None:
    """The candidate reads it, and leads one period later."""
    lease.responses_to_lose = 1
    candidate = Candidate("one", lease, virtual)
    await virtual.advance(1.5)
    assert candidate.began == [1.5]
    await end_candidate(candidate, virtual)


async def test_failing_work_releases_the_lease(lease: Lease, virtual: "VirtualTime") -> None:
    """Its exception is raised, and others need not wait for the lease to expire."""

    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await LeaderElector(lease, "one", timing=virtual.timing).run(work)
    assert lease.holder() == ""


async def test_an_error_while_stopping_is_the_cause_of_the_loss(lease: Lease, virtual: "VirtualTime") -> None:
    """If the leadership is lost and the work fails while it is cancelled."""

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while stopping")

    task = asyncio.create_task(LeaderElector(lease, "one", timing=virtual.timing).run(work))
    await virtual.advance(0)
    lease.broken = True
    await virtual.advance(8)
    with pytest.raises(LeadershipLostError) as caught:
        await task
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_release_after_the_loss_does_nothing(one: Candidate, lease: Lease, virtual: "VirtualTime") -> None:
    """A lease that another replica holds, or that is gone, stays as it is."""
    lease._store(LeaseRecord("other", 10, None, None, 7))
    one.finish.set()
    await virtual.advance(0)
    assert await one.task == "done"
    assert lease.holder() == "other"


@pytest.mark.parametrize(
    ("duration", "deadline", "period"), [(10, 10, 1), (10, 7, 4), (10, 7, 0)], ids=["late", "seldom", "never"]
)
def test_lease_settings_must_be_consistent(duration: int, deadline: float, period: float) -> None:
    """The leader must stop before others take over, and needs time for two attempts."""
    with pytest.raises(ValueError, match="lease settings must keep"):
        LeaseSettings(lease_duration=duration, renew_deadline=deadline, retry_period=period)


async def test_the_write_check_uses_the_clock(one: Candidate, two: Candidate, virtual: "VirtualTime") -> None:
    """A leader that was stopped for longer than its lease fails the next check, before any renewal fails."""
    one.elector.check()
    with pytest.raises(LeadershipLostError):
        two.elector.check()
    assert (one.elector.leader, one.elector.leading) == ("one", True)
    virtual.now += 8  # no other task has run meanwhile
    assert one.elector.leading
    with pytest.raises(LeadershipLostError, match="not renewed in time"):
        one.elector.check()


async def test_an_unreachable_server_is_reported(one: Candidate, virtual: "VirtualTime") -> None:
    """By the duration of the failure, which ends with the first response of any kind."""
    await virtual.advance(0)
    assert one.elector.failing_for() == 0
    one.connection.cut = True
    await virtual.advance(5)
    assert 3 < one.elector.failing_for() <= 5
    one.connection.cut = False
    await virtual.advance(1.5)
    assert one.elector.failing_for() == 0


class SlowLease:
    """A lease with slow requests: a cancelled request still arrives."""

    def __init__(self, lease: Lease, time: "VirtualTime") -> None:
        self.read = lease.read
        self._lease = lease
        self._time = time

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Store the first record."""
        return await asyncio.shield(asyncio.create_task(self._after(self._lease.create(record))))

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Store the next record."""
        return await asyncio.shield(asyncio.create_task(self._after(self._lease.replace(version, record))))

    async def _after(self, write: Coroutine[Any, Any, ObservedRecord]) -> ObservedRecord:
        await self._time.timing.sleep(0.2)
        found = await write
        await self._time.timing.sleep(0.2)
        return found


@pytest.mark.parametrize("after", [0.1, 0.3], ids=["on its way", "written, unheard"])
@pytest.mark.parametrize("before", [None, LeaseRecord("", 1, None, None, 7)], ids=["first", "free"])
async def test_a_candidate_cancelled_while_taking_the_lease_releases_it(
    lease: Lease, virtual: "VirtualTime", after: float, before: LeaseRecord | None
) -> None:
    """The write may succeed after the cancellation. No work starts, and others need not wait for the expiry."""
    if before is not None:
        lease._store(before)
    began = list[float]()

    async def work() -> None:
        began.append(virtual.now)

    task = asyncio.create_task(LeaderElector(SlowLease(lease, virtual), "one", timing=virtual.timing).run(work))
    await virtual.advance(after)
    task.cancel()
    await virtual.advance(1.5)
    assert (task.cancelled(), began, lease.holder()) == (True, [], "")
    assert "one" in [record.holder_identity for record in lease.writes]


async def test_a_waiting_candidate_releases_nothing(two: Candidate, virtual: "VirtualTime") -> None:
    """A replica that never wrote ends without a request, also where the server is unreachable."""
    await virtual.advance(20)
    two.connection.cut = True
    two.task.cancel()
    await virtual.advance(0)
    assert two.task.cancelled()
    assert two.failures == []
