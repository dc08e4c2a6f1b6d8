"""The shares of namespaces."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.active_queue import QueueEntry
from cpg_scheduler.queueing.attempt_costs import MAX_NAMESPACES
from cpg_scheduler.queueing.namespace_shares import (
    BURST_SECONDS,
    COSTLY_SHARE,
    SECONDS_PRESENT,
    NamespaceShares,
    rest_beside_others,
)
from cpg_scheduler.queueing.places import ACTIVE, BACKOFF


class SharesFixture:
    """Shares, with units of namespaces; another namespace has had an attempt."""

    def __init__(self) -> None:
        """Start with an attempt of the other namespace."""
        self.units: dict[UnitKey, QueueEntry] = {}
        self.shares = NamespaceShares(self.units)
        self.charge(self.unit("other", "x"), 0.001)

    def unit(self, namespace: str, name: str, *, flavour: str = "crd", importance: int = 0) -> QueueEntry:
        """Return a new unit."""
        key = UnitKey(flavour, GroupKey("PodGroup", namespace, name))
        found = self.units[key] = QueueEntry(QueueKey(importance, "2026", key), len(self.units))
        found.state = BACKOFF
        return found

    def charge(self, unit: QueueEntry, seconds: float, now: float = 0.0, *, placed: int = 0) -> None:
        """Let a unit have an attempt."""
        self.shares.charge(unit, seconds, now, placed=placed)

    def released(self, now: float) -> list[str]:
        """Release units, and return their names."""
        return [unit.queue_key.unit.key.name for unit in self.shares.release(now)]


@pytest.fixture
def shared() -> SharesFixture:
    """Return the shares of two namespaces."""
    return SharesFixture()


def test_costly_attempts_use_up_the_share_and_the_burst(shared: SharesFixture) -> None:
    """Until time has passed; a cheap attempt, or one that places many pods, uses nothing."""
    unit = shared.unit("dear", "a")
    shared.charge(unit, 0.004)
    shared.charge(unit, 1.9, placed=100)
    assert not shared.shares.must_wait(unit, 0.0)
    shared.charge(unit, BURST_SECONDS + 0.11)
    end = 0.1 / COSTLY_SHARE
    assert shared.shares.must_wait(unit, end - 0.1)
    assert shared.shares.next_time() == pytest.approx(end)
    assert not shared.shares.must_wait(unit, end + 0.1)


def test_a_namespace_that_is_alone_has_all_of_the_time(shared: SharesFixture) -> None:
    """Others count for some minutes after their last attempt."""
    unit = shared.unit("dear", "a")
    shared.charge(unit, 9.0, SECONDS_PRESENT - 1.0)
    assert shared.shares.must_wait(unit, SECONDS_PRESENT - 1.0)
    assert not shared.shares.must_wait(unit, SECONDS_PRESENT + 1.0)


def test_pools_have_shares_of_their_own(shared: SharesFixture) -> None:
    """Costly trees hold up neither single pods of their namespace nor other namespaces, and retries no new trees."""
    tree, retry = shared.unit("dear", "a"), shared.unit("dear", "b")
    retry.is_costly = True
    shared.charge(retry, 9.0)
    assert shared.shares.must_wait(retry, 0.0)
    assert not shared.shares.must_wait(tree, 0.0)
    shared.charge(tree, 9.0)
    assert shared.shares.must_wait(tree, 0.0)
    assert not shared.shares.must_wait(shared.unit("dear", "p", flavour=""), 0.0)
    assert not shared.shares.must_wait(shared.unit("other", "y"), 0.0)


def test_a_recreated_unit_or_namespace_uses_the_same_share(shared: SharesFixture) -> None:
    """A share is kept by the name of the namespace."""
    shared.charge(shared.unit("dear", "a"), 9.0)
    shared.units.clear()
    assert shared.shares.must_wait(shared.unit("dear", "a"), 1.0)


def test_waiting_units_are_released_one_by_one(shared: SharesFixture) -> None:
    """The most important first; those that are gone or active are skipped."""
    units = {name: shared.unit("dear", name, importance=name != "c") for name in "abcde"}
    shared.charge(units["a"], BURST_SECONDS + 0.11)
    for unit in [*units.values(), units["a"]]:
        assert shared.shares.must_wait(unit, 0.0)
    assert shared.released(1.0) == []
    del shared.units[units["a"].queue_key.unit]
    units["b"].state = ACTIVE
    assert shared.released(99.0) == ["c"]
    units["c"].state = ACTIVE
    assert shared.released(99.0) == []
    units["c"].state = BACKOFF
    assert [shared.released(99.0) for _ in range(3)] == [["d"], ["e"], []]
    assert shared.shares.next_time() is None


def test_many_cheap_attempts_in_vain_take_a_quarter_of_the_time(shared: SharesFixture) -> None:
    """Once they have taken a second; they are forgotten."""
    unit = shared.unit("dear", "a")
    for _ in range(249):
        shared.charge(unit, 0.004)
    assert not shared.shares.must_wait(unit, 0.0)
    for _ in range(2):
        shared.charge(unit, 0.004)
    assert shared.shares.must_wait(unit, 0.011)
    assert not shared.shares.must_wait(unit, 0.013)
    shared.charge(unit, 0.004, 20.0)
    assert not shared.shares.must_wait(unit, 20.0)


def test_no_unit_waits_for_more_than_five_minutes(shared: SharesFixture) -> None:
    """However costly its attempt was."""
    unit = shared.unit("dear", "a")
    shared.charge(unit, 99.0)
    shared.charge(shared.unit("other", "y"), 0.001, 200.0)
    assert shared.shares.must_wait(unit, 299.0)
    assert not shared.shares.must_wait(unit, 301.0)
    assert rest_beside_others(99.0) == 300.0
    assert rest_beside_others(0.11) == pytest.approx(50.0)


def test_few_namespaces_are_remembered(shared: SharesFixture) -> None:
    """Of more, those that have most to wait."""
    shared.charge(shared.unit("dear", "a"), 9.0)
    for number in range(2 * MAX_NAMESPACES):
        shared.charge(shared.unit(f"n{number}", "a"), 0.001)
    assert len(shared.shares._accounts) <= MAX_NAMESPACES
    assert len(shared.shares._present) <= MAX_NAMESPACES
    assert shared.shares.must_wait(shared.unit("dear", "b"), 0.0)
