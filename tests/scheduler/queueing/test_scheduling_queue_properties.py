"""The queue against a slow and obvious model, under whatever may happen in whatever order.

The model keeps one flat table of roots and one of lots, looks through all of it for every answer, and has no heaps.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hint_index import HintIndex
from cpg_scheduler.queueing.hints import ANYTHING, REVIEW, FailedAttempt, RequeueHint
from cpg_scheduler.queueing.scheduling_queue import RequeueBackoff, SchedulingQueue

BACKOFF = RequeueBackoff(first=1.0, most=4.0, per_doubling=0.0)
HELP = {"none": None, "room": RequeueHint(), "anything": ANYTHING}
HOPES = st.sampled_from(["room", "room", "anything", "none"])
ENDS = st.lists(st.sampled_from(["x", "x", "x", "bind", "alone", "y"]), min_size=1, max_size=8)
NAMES = st.sampled_from("abcdef")


def anybody(hopes: HintIndex) -> list[Hashable]:
    """Return those whom any news may help."""
    return hopes.for_anything


def root(name: str) -> UnitKey:
    """Return the key of a root."""
    return UnitKey("crd", GroupKey("PodGroup", "default", name))


@dataclass
class EquivalenceClass:
    """A lot of the model."""

    place: str = "led"
    leader: str | None = None
    attempts: int = 0
    until: float = 0.0
    review: float = math.inf
    failed: int = 0
    hope: str = "none"


@dataclass
class Root:
    """A root of the model; ``lot`` stays while it is active, until it waits elsewhere."""

    order: QueueKey
    place: str = "active"
    lot: str | None = None
    refusals: int = 0
    called: str = ""
    turn: int = 0


@dataclass
class Model:
    """The queue, slowly."""

    roots: dict[str, Root] = field(default_factory=dict)
    lots: dict[str, EquivalenceClass] = field(default_factory=dict)
    insists: bool = False
    failures: int = 0
    pops: int = 0

    def lead(self, key: str, called: str = "hope") -> None:
        """Make the first of those who wait in a lot active."""
        lot = self.lots[key]
        waiting = [(found.order, name) for name, found in self.roots.items() if (found.lot, found.place) == (key, "in")]
        lot.place, lot.leader = "led", min(waiting)[1] if waiting else None
        if lot.leader is not None:
            self.roots[lot.leader].place, self.roots[lot.leader].called = "active", called
            self.roots[lot.leader].turn = self.pops

    def part(self, name: str) -> None:
        """Take a root out of its lot, and hand over where it led."""
        found = self.roots[name]
        key, found.lot = found.lot, None
        if key is None:
            return
        if not any(other.lot == key for other in self.roots.values()):
            del self.lots[key]
        elif self.lots[key].leader == name:
            if found.place == "in":
                found.place = ""
            self.lead(key)

    def wait(self, name: str, key: str) -> None:
        """Let a root wait in a lot."""
        if self.roots[name].lot != key:
            self.part(name)
        lot = self.lots.setdefault(key, EquivalenceClass())
        if lot.leader == name:
            lot.leader = None
        self.roots[name].lot, self.roots[name].place = key, "in"

    def help(self, key: str, now: float) -> None:
        """Help a lot that is parked."""
        if self.lots[key].until <= now:
            self.lead(key)
        else:
            self.lots[key].place = "backoff"

    def wake(self, now: float) -> None:
        """Let all lead whose backoff has passed."""
        for key, lot in self.lots.items():
            if lot.place == "backoff" and lot.until <= now:
                self.lead(key)

    def pop(self, now: float, *, fulfilled: bool) -> str | None:
        """Return who is next; who was called in vain parks again, and lets another go first."""
        self.wake(now)
        while (name := self.next(now)) is not None:
            found = self.roots[name]
            self.pops += 1
            found.place, found.turn = "popped", self.pops
            lot = self.lots[found.lot] if found.lot is not None else None
            if (
                lot is None
                or fulfilled
                or found.called != "hope"
                or now >= lot.review
                or lot.hope in {"none", "anything"}
            ):
                return name
            self.insists = False
            self.wait(name, found.lot or "")
            lot.place, lot.leader = "parked", None
        return None

    def next(self, now: float) -> str | None:
        """Return the first of those who are active, or else of those nothing has helped for long."""
        active = [found for found in self.roots.values() if found.place == "active"]
        fresh = min(
            (one for one in active if not one.called),
            key=lambda one: (one.order.importance, one.turn, one.order),
            default=None,
        )
        called = min((one for one in active if one.called), key=lambda one: one.order, default=None)
        self.insists = self.insists and called is not None
        if fresh is None and called is None:
            parked = [(lot.review, lot.failed, key) for key, lot in self.lots.items() if lot.place == "parked"]
            if not parked or min(parked)[0] > now:
                return None
            self.lead(min(parked)[2], "review")
            return self.next(now)
        if fresh is None or (called is not None and self.goes_first(called, fresh)):
            return called.order.key.key.name if called is not None else None
        self.insists = self.insists or (called is not None and self.takes_turns(called, fresh))
        return fresh.order.key.key.name

    def goes_first(self, called: Root, fresh: Root) -> bool:
        """Tell whether one that was called need not let another go first."""
        more = called.order.importance < fresh.order.importance
        return more or (self.insists and self.takes_turns(called, fresh))

    def takes_turns(self, called: Root, fresh: Root) -> bool:
        """Tell whether another is no more important, and younger or tried or come since one was called."""
        alike = called.order.importance == fresh.order.importance
        return alike and (called.order < fresh.order or called.turn < fresh.turn)


class Queue(RuleBasedStateMachine):
    """Do the same to both, and compare."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real, self.model = SchedulingQueue(BACKOFF), Model()

    @initialize(ends=ENDS, hope=HOPES, seconds=st.sampled_from([0.0, 0.5, 20.0]))
    def begin(self, ends: list[str], hope: str, seconds: float) -> None:
        """Begin where several wait and something has happened."""
        self.put(names=list("abcdef"), importance=0)
        self.attempt(ends=ends, hope=hope)
        self.stir(which="everybody", seconds=seconds)

    @rule(names=st.lists(NAMES, min_size=1, max_size=6), importance=st.integers(0, 2))
    def put(self, names: list[str], importance: int) -> None:
        """Change some roots."""
        for place, name in enumerate(names):
            order = QueueKey((importance + place) % 3, "", root(name))
            self.real.put(order)
            found = self.model.roots.setdefault(name, Root(order, turn=self.model.pops))
            found.order, found.place, found.called = order, "active", ""

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        """Take a root away."""
        self.real.drop(root(name))
        if name in self.model.roots:
            self.model.roots[name].place = ""
            self.model.part(name)
            del self.model.roots[name]

    @rule(ends=ENDS, hope=HOPES, fulfilled=st.booleans())
    def attempt(self, ends: list[str], hope: str, fulfilled: bool = True) -> None:  # noqa: FBT001, FBT002 - by name
        """Let the next roots be placed, share a failure, or fail."""
        for end in ends:
            name = self.popped(fulfilled=fulfilled)
            if name is None:
                return
            if end == "bind":
                self.bind(name)
            elif not self.share(name, end):
                self.fail(name, end, hope)

    def bind(self, name: str) -> None:
        """Place a root."""
        self.real.bind(root(name))
        found = self.model.roots[name]
        found.place = "binding"
        if found.lot is not None:
            self.model.lots[found.lot].attempts = 0
        self.model.part(name)

    def share(self, name: str, likes: str) -> bool:
        """Let a root share a failure if it can."""
        lot = self.model.lots.get(likes)
        shares = lot is not None and lot.place != "led"
        assert self.real.share(root(name), likes if likes != "alone" else None) == shares
        if lot is not None and shares:
            self.model.wait(name, likes)
            if lot.place == "backoff":
                self.model.lead(likes)
        return shares

    def fail(self, name: str, likes: str, hope: str) -> None:
        """Let a root fail."""
        signature = likes if likes != "alone" else None
        self.real.fail(root(name), 1, self.now, FailedAttempt(hope=HELP[hope], signature=signature))
        key = signature or f"alone {name}"
        self.model.insists = self.model.insists and not self.model.roots[name].called
        self.model.wait(name, key)
        lot = self.model.lots[key]
        self.model.failures += 1
        if lot.review != self.now + REVIEW:  # of those that are due at the same time, the first to fail is the first
            lot.review, lot.failed = self.now + REVIEW, self.model.failures
        lot.attempts += 1
        lot.place, lot.leader, lot.hope = "parked", None, hope
        lot.until = self.now + BACKOFF.delay(lot.attempts, 1)

    @rule(name=NAMES, works=st.booleans())
    def end_bind(self, name: str, works: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        """Let the binds of a root end."""
        found = self.model.roots.get(name)
        if found is None or found.place not in {"binding", "active"}:
            return
        if works:
            self.real.bound(root(name))
            if found.place == "binding":
                del self.model.roots[name]
            return
        self.real.retry(found.order, 1, self.now)
        found.refusals += 1
        if found.place != "active":
            key = f"alone {name}"
            self.model.wait(name, key)
            until = self.now + BACKOFF.delay(found.refusals, 1)
            self.model.lots[key] = EquivalenceClass(place="backoff", until=until)

    @rule(
        which=st.sampled_from(["nobody", "everybody", "anything"]),
        seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 400.0]),
    )
    def stir(self, which: str, seconds: float) -> None:
        """Let something happen at the nodes after a while."""
        self.now += seconds
        self.real.stir(self.now, None if which == "anything" else list if which == "everybody" else anybody)
        for key, lot in self.model.lots.items():
            helped = lot.hope == "anything" or (lot.hope == "room" and which == "everybody")
            if lot.place == "parked" and helped:
                self.model.help(key, self.now)

    @rule()
    def scatter(self) -> None:
        """Change what makes roots alike."""
        self.real.scatter()
        for found in self.model.roots.values():
            if found.lot is not None and not found.lot.startswith("alone"):
                if found.place == "in":
                    found.called, found.turn = "hope", self.model.pops
                found.lot, found.place = None, "active"
        self.model.lots = {key: lot for key, lot in self.model.lots.items() if key.startswith("alone")}

    @rule()
    def tell(self) -> None:
        """Tell one who shares a failure: it waits in a lot."""
        found = self.real.untold()
        assert found is None or self.model.roots[found[0].key.name].place == "in"

    @invariant()
    def they_agree(self) -> None:
        """Find everybody in the same place, and the queue awake in time."""
        places = [self.place(found) for found in self.model.roots.values()]
        assert self.real.counts() == {
            place: places.count(place) for place in ("active", "backoff", "unschedulable", "binding")
        }
        waits = [lot.until for lot in self.model.lots.values() if lot.place == "backoff"]
        reviews = [lot.review for lot in self.model.lots.values() if lot.place == "parked"]
        wake, latest = self.real.next_wake(), min([*waits, *reviews], default=math.inf)
        # It may wake for one that has been called since: then that has its turn whatever there is to hope for.
        assert wake == latest or (wake or 0.0) <= latest

    @invariant()
    def nobody_is_lost(self) -> None:
        """Find whoever waits in a lot that is parked, in backoff, or led by one who is active."""
        for found in self.model.roots.values():
            lot = self.model.lots[found.lot] if found.lot and found.place == "in" else None
            if lot is not None and lot.place == "led":
                assert lot.leader is not None
                assert self.model.roots[lot.leader].place == "active"

    def popped(self, *, fulfilled: bool) -> str | None:
        """Pop the next root of both."""
        expected = self.model.pop(self.now, fulfilled=fulfilled)
        key = self.real.pop(self.now, lambda hope, _: fulfilled or hope.anything)
        assert (key and key.key.name) == expected
        return expected

    def place(self, found: Root) -> str:
        """Return where a root counts."""
        if found.place != "in" or found.lot is None:
            return found.place
        return "backoff" if self.model.lots[found.lot].place == "backoff" else "unschedulable"


Queue.TestCase.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


class TestQueue(Queue.TestCase):  # type: ignore[misc, valid-type]
    """Whatever happens, the queue does what the model does."""


@given(
    ages=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    changing=st.lists(st.sampled_from(["no", "no", "changed", "made anew"]), min_size=6, max_size=6),
    called=st.booleans(),
)
def test_nobody_who_changes_itself_keeps_others_from_being_tried(
    ages: list[int], changing: list[str], *, called: bool
) -> None:
    """All have their turn, whoever is older and whether they come or are called; who is made anew begins anew."""
    pending, tried = SchedulingQueue(BACKOFF), list[str]()
    orders = {name: QueueKey(0, str(age), root(name)) for name, age in zip("abcdef", ages, strict=False)}

    def attempt() -> None:
        key = pending.pop(9.0 if tried else 0.0)
        assert key is not None
        pending.fail(key, 1, 0.0, FailedAttempt(hope=RequeueHint()))
        tried.append(key.key.name)

    for order in orders.values():
        pending.put(order)
    if called:
        while len(tried) < len(orders):
            attempt()
        pending.stir(9.0, list)
        tried.clear()
    for _ in range(2 * len(orders) + 1):
        for order, change in zip(orders.values(), changing, strict=False):
            if change == "made anew":
                pending.drop(order.key)
            if change != "no":
                pending.put(order)
        if pending.counts()["active"]:
            attempt()
    assert {name for name, change in zip(orders, changing, strict=False) if change != "made anew"} <= set(tried)
