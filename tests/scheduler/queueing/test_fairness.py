"""What one namespace may cost the others: the queue with a virtual clock, and attempts that take a given time."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hints import ANY_CHANGE, FailedAttempt
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue

QUIET_SECONDS = 0.008
"""What an attempt at a unit of the quiet namespace takes."""
QUIET_PER_SECOND = 10
GOLDEN_RATIO = 0.618034
SECONDS = 300.0
ROOTS = 2_000


@dataclass
class LoopModel:
    """One loop over the queue; all units of the quiet namespace are placed, and no others."""

    now: float = 0.0
    queue: SchedulingQueue = field(default_factory=lambda: SchedulingQueue(RequeueBackoff()))
    costs: dict[str, float] = field(default_factory=dict)
    """The seconds of an attempt, by namespace."""
    latencies: list[float] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    """The number of attempts of each namespace."""
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _arrivals: dict[UnitKey, float] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Let something happen at a time, or after the attempt that is running then."""
        heapq.heappush(self._events, (time, next(self._numbers), act))

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen again and again."""

        def again(time: float) -> None:
            act()
            self.at(time + seconds, lambda: again(time + seconds))

        self.at(seconds, lambda: again(seconds))

    def activate(self, namespace: str, name: str, importance: int = 0) -> None:
        """Create or change a unit."""
        self.queue.activate(QueueKey(importance, "2026", unit(namespace, name)))

    def arrive(self, time: float, name: str) -> None:
        """Create a unit of the quiet namespace at a time."""

        def create() -> None:
            self._arrivals[unit("quiet", name)] = time
            self.activate("quiet", name)

        self.at(time, create)

    def run(self, seconds: float = SECONDS) -> None:
        """Let this time pass."""
        while self.now < seconds:
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            key = self.queue.pop(self.now)
            if key is not None:
                self._attempt(key)
                continue
            times = [time for time in (self.queue.next_wake(), self._events[0][0]) if time is not None]
            self.now = max(min(times), self.now)

    def p99(self) -> float:
        """Return the 99th percentile of the time from the arrival of a quiet unit to the end of its attempt."""
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]

    def _attempt(self, key: UnitKey) -> None:
        namespace = key.key.namespace
        seconds = self.costs.get(namespace, QUIET_SECONDS)
        self.now += seconds
        self.attempts[namespace] += 1
        is_placed = namespace == "quiet"
        if is_placed:
            self.queue.start_binding(key)
            self.latencies.append(self.now - self._arrivals.pop(key))
        else:
            self.queue.add_unschedulable(key, 1, self.now, FailedAttempt(hint=ANY_CHANGE))
        self.queue.charge(key, seconds, self.now, placed=int(is_placed))
        self.queue.finish_binding(key)


def unit(namespace: str, name: str) -> UnitKey:
    """Return the key of a unit."""
    return UnitKey("crd", GroupKey("PodGroup", namespace, name))


def loop_with_arrivals() -> LoopModel:
    """Return a loop at which units of the quiet namespace arrive, and room each second that may help any unit."""
    loop = LoopModel()
    for number in range(int(SECONDS * QUIET_PER_SECOND) - QUIET_PER_SECOND):
        # The arrivals are evenly distributed and follow no rhythm with which others could coincide.
        loop.arrive((number + number * GOLDEN_RATIO % 1.0) / QUIET_PER_SECOND, f"q{number}")
    loop.every(1.0, lambda: loop.queue.move_to_active_or_backoff(loop.now))
    return loop


def change_one(loop: LoopModel, importance: int) -> None:
    """Change one unit of the hostile namespace ten times a second."""
    loop.every(0.1, lambda: loop.activate("hostile", "tree", importance))


def create_many(loop: LoopModel, importance: int) -> None:
    """Create thousands of units at once."""
    for number in range(ROOTS):
        loop.at(5.0, partial(loop.activate, "hostile", f"root{number}", importance))


def change_many(loop: LoopModel, importance: int) -> None:
    """Create thousands of units, and change a hundred of them each second."""
    create_many(loop, importance)
    names = (f"root{number % ROOTS}" for number in itertools.count())
    loop.every(0.01, lambda: loop.activate("hostile", next(names), importance))


def recreate_many(loop: LoopModel, importance: int) -> None:
    """Create thousands of units, and replace thirty each second by new ones with other names."""
    create_many(loop, importance)
    numbers = itertools.count()

    def recreate() -> None:
        number = next(numbers)
        loop.queue.remove(unit("hostile", f"root{number}"))
        loop.activate("hostile", f"root{number + ROOTS}", importance)

    loop.every(1 / 30, recreate)


@pytest.fixture(scope="module")
def p99_alone() -> float:
    """Return the p99 without another namespace."""
    loop = loop_with_arrivals()
    loop.run()
    return loop.p99()


@pytest.mark.parametrize("importance", [0, -1], ids=["equal", "higher"])
@pytest.mark.parametrize("seconds", [0.004, 0.02, 0.06, 0.3, 1.0])
@pytest.mark.parametrize("attack", [change_one, create_many, change_many, recreate_many])
def test_the_p99_of_others_at_most_doubles(
    attack: Callable[[LoopModel, int], None], seconds: float, importance: int, p99_alone: float
) -> None:
    """Whatever one namespace does, what its attempts cost, and what its priority is."""
    loop = loop_with_arrivals()
    loop.costs["hostile"] = seconds
    attack(loop, importance)
    loop.run()
    assert loop.p99() <= 2 * p99_alone
    assert len(loop.latencies) == int(SECONDS * QUIET_PER_SECOND) - QUIET_PER_SECOND
    assert loop.attempts["hostile"]


def test_all_units_are_attempted_although_they_wait_for_their_share() -> None:
    """None starves, and without other namespaces none waits for a share."""
    loop = LoopModel()
    loop.costs["hostile"] = 0.02
    loop.arrive(0.0, "q")
    for number in range(100):
        loop.at(1.0, partial(loop.activate, "hostile", f"root{number}"))
    loop.every(10.0, lambda: None)
    loop.run(200.0)
    assert 10 < loop.attempts["hostile"] < 60
    loop.run(400.0)
    assert loop.attempts["hostile"] >= 100
