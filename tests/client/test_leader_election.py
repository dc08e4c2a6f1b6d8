"""Who leads, when time passes and things go wrong. All in virtual time."""

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


class Shelf:
    """Keeps the record in memory, can be out of reach, and delays a write."""

    def __init__(self) -> None:
        self.kept: ObservedRecord | None = None
        self.writes: list[LeaseRecord] = []
        self.hanging = False
        self.broken = False
        self.answers_lost = 0

    async def _reach(self) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        if self.broken:
            raise ConnectionFailedError("shelf", "any", "broken")

    async def read(self) -> ObservedRecord | None:
        """Return what is kept."""
        await self._reach()
        return self.kept

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Keep the first record."""
        await self._reach()
        if self.kept is not None:
            raise ApiError(409, "AlreadyExists", "")
        return self._keep(record)

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Keep another record, if nobody was faster."""
        await self._reach()
        if self.kept is None:
            raise ApiError(404, "NotFound", "")
        if self.kept.version != version:
            raise ApiError(409, "Conflict", "")
        return self._keep(record)

    def _keep(self, record: LeaseRecord) -> ObservedRecord:
        self.writes.append(record)
        self.kept = ObservedRecord(record, str(len(self.writes)))
        if self.answers_lost:
            self.answers_lost -= 1
            raise ConnectionFailedError("shelf", "any", "answer lost")
        return self.kept

    def holder(self) -> str | None:
        """Return whose name is in the record."""
        return self.kept.record.holder_identity if self.kept else None


class Reach:
    """One candidate's way to the shelf, which can be cut while others reach it."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.cut = False

    async def _reach(self) -> None:
        if self.cut:
            raise ConnectionFailedError("shelf", "any", "cut")

    async def read(self) -> ObservedRecord | None:
        """Return what is kept."""
        await self._reach()
        return await self.shelf.read()

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Keep the first record."""
        await self._reach()
        return await self.shelf.create(record)

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Keep another record, if nobody was faster."""
        await self._reach()
        return await self.shelf.replace(version, record)


class Candidate:
    """A replica: works while it leads, and remembers when."""

    def __init__(self, name: str, shelf: Shelf, time: "VirtualTime") -> None:
        self.began: list[float] = []
        self.stopping: list[float] = []
        self.leaders: list[str] = []
        self.failures: list[Exception] = []
        self.finish = asyncio.Event()
        self.reach = Reach(shelf)
        self._time = time
        self.elector = LeaderElector(
            self.reach,
            name,
            timing=time.timing,
            on_new_leader=self.leaders.append,
            on_failure=self.failures.append,
        )
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self) -> str:
        """Work until told to finish."""
        self.began.append(self._time.now)
        try:
            await self.finish.wait()
        finally:
            self.stopping.append(self._time.now)
        return "done"

    async def kill(self) -> None:
        """Die without a word: as far as others can tell, the process is gone."""
        self.reach.cut = True
        await cancel_and_wait(self.task)


@pytest.fixture
def shelf() -> Shelf:
    """Give an empty shelf."""
    return Shelf()


@pytest.fixture
async def one(shelf: Shelf, virtual: "VirtualTime") -> AsyncIterator[Candidate]:
    """Let one candidate run, and lead."""
    made = Candidate("one", shelf, virtual)
    await virtual.advance(0)
    assert made.began == [0]
    yield made
    made.reach.cut = True
    await ending(made, virtual)


@pytest.fixture
async def two(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> AsyncIterator[Candidate]:
    """Let another one wait behind it."""
    made = Candidate("two", shelf, virtual)
    await virtual.advance(0)
    assert one.elector.leading
    yield made
    made.reach.cut = True
    await ending(made, virtual)


async def ending(candidate: Candidate, virtual: "VirtualTime") -> None:
    """End a candidate, however long its last request takes."""
    task = asyncio.create_task(cancel_and_wait(candidate.task))
    await virtual.advance(10)
    await task


async def test_the_first_leads_and_renews(one: Candidate, two: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """While it is well, it writes every period and nobody else leads; each is told once who leads."""
    await virtual.advance(60)
    assert one.elector.leading
    assert (one.began, one.stopping, two.began) == ([0], [], [])
    assert (one.leaders, two.leaders) == (["", "one"], ["one"])
    assert len(shelf.writes) == 41
    first, *_, last = shelf.writes
    assert first == LeaseRecord("one", 10, "2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:00.000000Z", 1)
    assert last == msgspec.structs.replace(first, renew_time="2027-01-15T08:01:00.000000Z")


async def test_a_clean_end_hands_over_within_a_period(
    one: Candidate, two: Candidate, shelf: Shelf, virtual: "VirtualTime"
) -> None:
    """The work's result comes back, the name is taken out of the record, and the next leads at its next look."""
    await virtual.advance(20)
    one.finish.set()
    await virtual.advance(1.5)
    assert await one.task == "done"
    assert not one.elector.leading
    assert two.began == [21]
    assert "" in [record.holder_identity for record in shelf.writes]
    assert shelf.writes[-1].lease_transitions == 2


async def test_a_cancelled_leader_hands_over_too(one: Candidate, two: Candidate, virtual: "VirtualTime") -> None:
    """First the work ends, then the lease is released, so that two never work at once."""
    await virtual.advance(20)
    one.task.cancel()
    await virtual.advance(1.5)
    assert one.task.cancelled()
    assert one.stopping == [20]
    assert two.began == [21]


@pytest.mark.parametrize("after", [0.0, 0.7, 1.4, 1.5, 7.3])
async def test_a_killed_leader_is_followed_in_time(
    one: Candidate, two: Candidate, virtual: "VirtualTime", after: float
) -> None:
    """Within 12 seconds, wherever between two renewals it died, and never before its lease was over."""
    await virtual.advance(30 + after)
    await one.kill()
    await virtual.advance(12)
    (began,) = two.began
    assert 8.5 <= began - (30 + after) <= 11.5
    assert two.leaders == ["one", "two"]


async def test_a_leader_cut_off_stops_before_the_next_begins(
    one: Candidate, two: Candidate, virtual: "VirtualTime"
) -> None:
    """It notices at its deadline that it cannot renew, and has stopped seconds before another may lead."""
    await virtual.advance(30)
    one.reach.cut = True
    await virtual.advance(12)
    with pytest.raises(LeadershipLostError, match="could not be renewed for 7 s"):
        await one.task
    assert one.stopping == [37]
    assert two.began == [40]
    assert all(isinstance(error, ConnectionFailedError) for error in one.failures)


async def test_a_hanging_server_ends_the_lead_in_time(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """Requests that are never answered count as failed, each after half of the deadline at most."""
    await virtual.advance(30)
    shelf.hanging = True
    await virtual.advance(7)
    assert one.stopping == [37]
    assert str(one.failures[0]) == "no answer within 3.5 s"
    await virtual.advance(2)
    with pytest.raises(LeadershipLostError):
        await one.task


async def test_a_short_trouble_changes_nothing(
    one: Candidate, two: Candidate, shelf: Shelf, virtual: "VirtualTime"
) -> None:
    """Four seconds without an API server, and a lost answer after them, cost nobody the lead."""
    await virtual.advance(30)
    shelf.broken = True
    await virtual.advance(4)
    shelf.broken = False
    shelf.answers_lost = 1
    await virtual.advance(30)
    assert (one.stopping, two.began) == ([], [])
    assert one.failures
    assert two.failures


async def test_a_stolen_lease_ends_the_lead(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """Somebody else's name in the record is believed at once, and not written over."""
    await virtual.advance(30)
    shelf._keep(LeaseRecord("thief", 10, None, None, 7))
    await virtual.advance(1.5 * 2)
    with pytest.raises(LeadershipLostError, match="thief holds the lease"):
        await one.task
    assert shelf.holder() == "thief"
    assert one.failures == []


async def test_a_lease_emptied_by_others_is_lost(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """Somebody may have led in between: the leader does not simply take it back."""
    shelf._keep(LeaseRecord("", 1, None, None, 7))
    await virtual.advance(3)
    with pytest.raises(LeadershipLostError, match="no replica holds the lease"):
        await one.task


async def test_a_deleted_lease_is_made_again(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """Who deletes the record does not end the lead."""
    await virtual.advance(30)
    shelf.kept = None
    await virtual.advance(3)
    assert shelf.holder() == "one"
    assert one.stopping == []


async def test_times_in_the_record_are_not_believed(shelf: Shelf, virtual: "VirtualTime") -> None:
    """A leader whose clock is years behind still leads for as long as its record changes, and a duration beyond."""
    shelf._keep(LeaseRecord("old", 20, "1999-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z", 3))
    waiting = Candidate("one", shelf, virtual)
    await virtual.advance(19.9)
    assert waiting.began == []
    await virtual.advance(0.2)
    assert waiting.began == [20]
    assert shelf.writes[-1].lease_transitions == 4
    await ending(waiting, virtual)


async def test_two_at_once_make_one_leader(shelf: Shelf, virtual: "VirtualTime") -> None:
    """A race for a free lease has one winner, and losing it is no failure."""
    candidates = [Candidate(str(number), shelf, virtual) for number in range(5)]
    await virtual.advance(5)
    assert [len(candidate.began) for candidate in candidates].count(1) == 1
    assert [error for candidate in candidates for error in candidate.failures] == []
    for candidate in candidates:
        await ending(candidate, virtual)


async def test_a_restarted_replica_takes_its_lease_back(shelf: Shelf, virtual: "VirtualTime") -> None:
    """Under the same name there is nobody to wait for."""
    shelf._keep(LeaseRecord("one", 10, "t", "t", 3))
    again = Candidate("one", shelf, virtual)
    await virtual.advance(0)
    assert again.began == [0]
    assert (shelf.writes[-1].acquire_time, shelf.writes[-1].lease_transitions) == ("t", 3)
    await ending(again, virtual)


async def test_a_lost_answer_while_acquiring(shelf: Shelf, virtual: "VirtualTime") -> None:
    """A write that succeeded unheard is recognised at the next look."""
    shelf.answers_lost = 1
    candidate = Candidate("one", shelf, virtual)
    await virtual.advance(1.5)
    assert candidate.began == [1.5]
    await ending(candidate, virtual)


async def test_a_failing_work_releases(shelf: Shelf, virtual: "VirtualTime") -> None:
    """Its exception comes out, and nobody waits for a lease of the dead."""

    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await LeaderElector(shelf, "one", timing=virtual.timing).run(work)
    assert shelf.holder() == ""


async def test_an_error_while_stopping_is_kept(shelf: Shelf, virtual: "VirtualTime") -> None:
    """When the lead is lost and the work fails at ending, the error of the loss has the other as its cause."""

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while stopping")

    task = asyncio.create_task(LeaderElector(shelf, "one", timing=virtual.timing).run(work))
    await virtual.advance(0)
    shelf.broken = True
    await virtual.advance(8)
    with pytest.raises(LeadershipLostError) as caught:
        await task
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_release_comes_too_late(one: Candidate, shelf: Shelf, virtual: "VirtualTime") -> None:
    """A lease that somebody else took in the meantime, or that is gone, is left alone."""
    shelf._keep(LeaseRecord("thief", 10, None, None, 7))
    one.finish.set()
    await virtual.advance(0)
    assert await one.task == "done"
    assert shelf.holder() == "thief"


@pytest.mark.parametrize(
    ("duration", "deadline", "period"), [(10, 10, 1), (10, 7, 4), (10, 7, 0)], ids=["late", "seldom", "never"]
)
def test_settings_must_leave_room(duration: int, deadline: float, period: float) -> None:
    """A leader must notice its loss before others take over, and have two attempts at least."""
    with pytest.raises(ValueError, match="lease settings must keep"):
        LeaseSettings(lease_duration=duration, renew_deadline=deadline, retry_period=period)


async def test_who_may_write_is_told_by_the_clock(one: Candidate, two: Candidate, virtual: "VirtualTime") -> None:
    """A leader that could not run for longer than its lease learns so at its next write, before any renewal fails."""
    one.elector.check()
    with pytest.raises(LeadershipLostError):
        two.elector.check()
    assert (one.elector.leader, one.elector.leading) == ("one", True)
    virtual.now += 8  # nothing else has run meanwhile
    assert one.elector.leading
    with pytest.raises(LeadershipLostError, match="not renewed in time"):
        one.elector.check()


async def test_a_server_that_cannot_be_asked_is_known(one: Candidate, virtual: "VirtualTime") -> None:
    """By how long it has been so, which ends with the first answer, whatever it says."""
    await virtual.advance(0)
    assert one.elector.failing_for(virtual.now) == 0
    one.reach.cut = True
    await virtual.advance(5)
    assert 3 < one.elector.failing_for(virtual.now) <= 5
    one.reach.cut = False
    await virtual.advance(1.5)
    assert one.elector.failing_for(virtual.now) == 0


class Slow:
    """A shelf a little way off: what was sent arrives whoever waits for it, and the answer takes its time, too."""

    def __init__(self, shelf: Shelf, time: "VirtualTime") -> None:
        self.read = shelf.read
        self._shelf = shelf
        self._time = time

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Write the first record."""
        return await asyncio.shield(asyncio.create_task(self._after(self._shelf.create(record))))

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Write another record."""
        return await asyncio.shield(asyncio.create_task(self._after(self._shelf.replace(version, record))))

    async def _after(self, write: Coroutine[Any, Any, ObservedRecord]) -> ObservedRecord:
        await self._time.timing.sleep(0.2)
        found = await write
        await self._time.timing.sleep(0.2)
        return found


@pytest.mark.parametrize("after", [0.1, 0.3], ids=["on its way", "written, unheard"])
@pytest.mark.parametrize("before", [None, LeaseRecord("", 1, None, None, 7)], ids=["first", "free"])
async def test_who_is_told_to_end_while_he_takes_the_lease_gives_it_back(
    shelf: Shelf, virtual: "VirtualTime", after: float, before: LeaseRecord | None
) -> None:
    """The request may succeed with nobody to hear of it: no work begins, and nobody has to wait for the dead."""
    if before is not None:
        shelf._keep(before)
    began = list[float]()

    async def work() -> None:
        began.append(virtual.now)

    task = asyncio.create_task(LeaderElector(Slow(shelf, virtual), "one", timing=virtual.timing).run(work))
    await virtual.advance(after)
    task.cancel()
    await virtual.advance(1.5)
    assert (task.cancelled(), began, shelf.holder()) == (True, [], "")
    assert "one" in [record.holder_identity for record in shelf.writes]


async def test_who_only_waits_asks_nothing_at_the_end(two: Candidate, virtual: "VirtualTime") -> None:
    """A replica that never wrote has nothing to give back, and ends though nobody can be reached."""
    await virtual.advance(20)
    two.reach.cut = True
    two.task.cancel()
    await virtual.advance(0)
    assert two.task.cancelled()
    assert two.failures == []
