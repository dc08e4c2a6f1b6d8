"""The scheduling queue against a slow and simple model, under any sequence of operations."""

import math
from collections.abc import Hashable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hint_index import HintIndex
from cpg_scheduler.queueing.hints import ANY_CHANGE, FailedAttempt, RequeueHint
from cpg_scheduler.queueing.policy import MAX_SECONDS_UNSCHEDULABLE, RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.testing.queue_model import ModelClass, ModelUnit, QueueModel

BACKOFF = RequeueBackoff(first=1.0, most=4.0, per_doubling=0.0)
HINTS = {"none": None, "room": RequeueHint(), "any": ANY_CHANGE}
HINT_NAMES = st.sampled_from(["room", "room", "any", "none"])
RESULTS = st.lists(st.sampled_from(["x", "x", "x", "placed", "alone", "y"]), min_size=1, max_size=8)
"""Each attempt is placed, or fails with a signature of its own (alone) or a shared one."""
NAMES = st.sampled_from("abcdef")


def any_change(hints: HintIndex) -> list[Hashable]:
    """Return the classes that any change may help."""
    return hints.for_any_change


def unit_key(name: str) -> UnitKey:
    """Return the key of a unit."""
    return UnitKey("crd", GroupKey("PodGroup", "default", name))


class QueueMachine(RuleBasedStateMachine):
    """Do the same to the queue and to the model, and compare."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real, self.model = SchedulingQueue(BACKOFF), QueueModel()

    @initialize(results=RESULTS, hint=HINT_NAMES, seconds=st.sampled_from([0.0, 0.5, 20.0]))
    def begin(self, results: list[str], hint: str, seconds: float) -> None:
        """Begin with several attempts and a change of the cluster."""
        self.activate(names=list("abcdef"), importance=0)
        self.attempt(results=results, hint=hint)
        self.change_cluster(helps="all", seconds=seconds)

    @rule(names=st.lists(NAMES, min_size=1, max_size=6), importance=st.integers(0, 2))
    def activate(self, names: list[str], importance: int) -> None:
        """Change some units."""
        for position, name in enumerate(names):
            queue_key = QueueKey((importance + position) % 3, "", unit_key(name))
            self.real.activate(queue_key)
            unit = self.model.units.setdefault(name, ModelUnit(queue_key, turn=self.model.turn))
            unit.queue_key, unit.state, unit.requeued_by = queue_key, "active", ""

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        """Remove a unit."""
        self.real.remove(unit_key(name))
        if name in self.model.units:
            self.model.units[name].state = ""
            self.model.leave_class(name)
            del self.model.units[name]

    @rule(results=RESULTS, hint=HINT_NAMES, size=st.integers(1, 3), may_help=st.booleans())
    def attempt(self, results: list[str], hint: str, size: int = 1, may_help: bool = True) -> None:  # noqa: FBT001, FBT002 - by name
        """Place the next units, or let them join a class or fail."""
        for result in results:
            name = self.pop(may_help=may_help)
            if name is None:
                return
            if result == "placed":
                self.place(name)
            elif not self.join(name, result):
                self.fail(name, result, hint, size)

    def place(self, name: str) -> None:
        """Place a unit."""
        self.real.start_binding(unit_key(name))
        unit = self.model.units[name]
        unit.state = "binding"
        if unit.signature is not None:
            self.model.classes[unit.signature].attempts = 0
        self.model.leave_class(name)

    def join(self, name: str, signature: str) -> bool:
        """Let a unit join equivalent ones, if there are any."""
        peers = self.model.classes.get(signature)
        joins = peers is not None and peers.state != "represented"
        assert self.real.join_equivalent(unit_key(name), signature if signature != "alone" else None) == joins
        if peers is not None and joins:
            self.model.wait(name, signature)
            if peers.state == "backoff":
                self.model.represent(signature)
        return joins

    def fail(self, name: str, result: str, hint: str, size: int) -> None:
        """Let a unit fail."""
        signature = result if result != "alone" else None
        failure = FailedAttempt(hint=HINTS[hint], signature=signature)
        self.real.add_unschedulable(unit_key(name), size, self.now, failure)
        key = signature or f"alone {name}"
        self.model.requeued_go_first = self.model.requeued_go_first and not self.model.units[name].requeued_by
        self.model.wait(name, key)
        peers = self.model.classes[key]
        self.model.failures += 1
        retry_at = self.now + MAX_SECONDS_UNSCHEDULABLE
        if peers.retry_at != retry_at:  # of several classes that are due, the first to fail goes first
            peers.retry_at, peers.failed = retry_at, self.model.failures
        unit = self.model.units[name]
        has_grown, unit.size = not unit.requeued_by and size > unit.size, size
        peers.attempts = 0 if hint == "none" else peers.attempts if has_grown and peers.attempts else peers.attempts + 1
        peers.state, peers.representative, peers.hint = "unschedulable", None, hint
        peers.backoff_until = self.now + (BACKOFF.delay(peers.attempts, 1) if hint != "none" else 0.0)

    @rule(name=NAMES, works=st.booleans())
    def end_bind(self, name: str, works: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        """Let the binds of a unit end."""
        unit = self.model.units.get(name)
        if unit is None or unit.state not in {"binding", "active"}:
            return
        if works:
            self.real.finish_binding(unit_key(name))
            if unit.state == "binding":
                del self.model.units[name]
            return
        self.real.retry_after_backoff(unit.queue_key, 1, self.now)
        unit.bind_failures += 1
        if unit.state != "active":
            key = f"alone {name}"
            self.model.wait(name, key)
            until = self.now + BACKOFF.delay(unit.bind_failures, 1)
            self.model.classes[key] = ModelClass(state="backoff", backoff_until=until)

    @rule(helps=st.sampled_from(["none", "all", "any"]), seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 400.0]))
    def change_cluster(self, helps: str, seconds: float) -> None:
        """Change the cluster after a while, so that all hints match, or those for any change."""
        self.now += seconds
        helped = {"any": None, "all": list, "none": any_change}[helps]
        self.real.move_to_active_or_backoff(self.now, helped)
        for signature, peers in self.model.classes.items():
            matches = peers.hint == "any" or (peers.hint == "room" and helps == "all")
            if peers.state == "unschedulable" and matches:
                self.model.move(signature, self.now)

    @rule()
    def dissolve_classes(self) -> None:
        """Change what makes units equivalent."""
        self.real.dissolve_classes()
        for unit in self.model.units.values():
            if unit.signature is not None and not unit.signature.startswith("alone"):
                if unit.state == "waiting":
                    unit.requeued_by, unit.turn = "hint", self.model.turn
                unit.signature, unit.state = None, "active"
        self.model.classes = {key: peers for key, peers in self.model.classes.items() if key.startswith("alone")}

    @rule()
    def report(self) -> None:
        """Report a unit that has joined a class: it waits there."""
        found = self.real.next_unreported()
        assert found is None or self.model.units[found[0].key.name].state == "waiting"

    @invariant()
    def all_units_are_in_the_same_place(self) -> None:
        """Compare the places, and the time at which the queue wakes."""
        places = [self.place_of(unit) for unit in self.model.units.values()]
        assert self.real.counts() == {
            place: places.count(place) for place in ("active", "backoff", "unschedulable", "binding")
        }
        backoffs = [peers.backoff_until for peers in self.model.classes.values() if peers.state == "backoff"]
        timeouts = [peers.retry_at for peers in self.model.classes.values() if peers.state == "unschedulable"]
        wake, latest = self.real.next_wake(), min([*backoffs, *timeouts], default=math.inf)
        # It may wake early, for a class that has a representative by now.
        assert wake == latest or (wake or 0.0) <= latest

    @invariant()
    def every_represented_class_has_an_active_unit(self) -> None:
        """Find that no unit waits for a representative that is not there."""
        for unit in self.model.units.values():
            is_waiting = unit.signature and unit.state == "waiting"
            peers = self.model.classes[unit.signature] if unit.signature and is_waiting else None
            if peers is not None and peers.state == "represented":
                assert peers.representative is not None
                assert self.model.units[peers.representative].state == "active"

    def pop(self, *, may_help: bool) -> str | None:
        """Pop the next unit of both."""
        expected = self.model.pop(self.now, may_help=may_help)
        key = self.real.pop(self.now, lambda hint, _: may_help or hint.any_change)
        assert (key and key.key.name) == expected
        return expected

    def place_of(self, unit: ModelUnit) -> str:
        """Return the place of a unit of the model."""
        if unit.state == "waiting":
            is_in_backoff = self.model.classes[unit.signature or ""].state == "backoff"
            return "backoff" if is_in_backoff else "unschedulable"
        return unit.state


QueueMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=30)


class TestQueue(QueueMachine.TestCase):  # type: ignore[misc, valid-type]
    """Under any sequence of operations, the queue does what the model does."""


@given(
    ages=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    changes=st.lists(st.sampled_from(["none", "none", "changed", "created again"]), min_size=6, max_size=6),
    requeued=st.booleans(),
)
def test_units_that_change_before_every_attempt_do_not_starve_others(
    ages: list[int], changes: list[str], *, requeued: bool
) -> None:
    """Each unit has its turn, whatever its age, fresh or requeued; one that is created again begins anew."""
    queue, attempted = SchedulingQueue(BACKOFF), list[str]()
    keys = {name: QueueKey(0, str(age), unit_key(name)) for name, age in zip("abcdef", ages, strict=False)}

    def attempt() -> None:
        unit = queue.pop(9.0 if attempted else 0.0)
        assert unit is not None
        queue.add_unschedulable(unit, 1, 0.0, FailedAttempt(hint=RequeueHint()))
        attempted.append(unit.key.name)

    for key in keys.values():
        queue.activate(key)
    if requeued:
        while len(attempted) < len(keys):
            attempt()
        queue.move_to_active_or_backoff(9.0, list)
        attempted.clear()
    for _ in range(2 * len(keys) + 1):
        for key, change in zip(keys.values(), changes, strict=False):
            if change == "created again":
                queue.remove(key.unit)
            if change != "none":
                queue.activate(key)
        if queue.counts()["active"]:
            attempt()
    lasting = {name for name, change in zip(keys, changes, strict=False) if change != "created again"}
    assert lasting <= set(attempted)
