"""A slow and simple model of the scheduling queue, for tests that compare both.

It keeps one flat table of units and one of classes, searches all of it for every answer, and has no heaps.
"""

import math
from dataclasses import dataclass, field

from cpg_scheduler.keys import QueueKey


@dataclass
class ModelClass:
    """An equivalence class of the model."""

    state: str = "represented"
    representative: str | None = None
    attempts: int = 0
    backoff_until: float = 0.0
    retry_at: float = math.inf
    failed: int = 0
    hint: str = "none"


@dataclass
class ModelUnit:
    """A unit of the model; it keeps its class while it is active, until it waits in another."""

    queue_key: QueueKey
    state: str = "active"
    signature: str | None = None
    bind_failures: int = 0
    size: int = 0
    requeued_by: str = ""
    turn: int = 0


@dataclass
class QueueModel:
    """The queue, slowly."""

    units: dict[str, ModelUnit] = field(default_factory=dict)
    classes: dict[str, ModelClass] = field(default_factory=dict)
    requeued_go_first: bool = False
    failures: int = 0
    turn: int = 0

    def represent(self, signature: str, event: str = "hint") -> None:
        """Activate the first of the units that wait in a class."""
        peers = self.classes[signature]
        waiting = [
            (unit.queue_key, name)
            for name, unit in self.units.items()
            if (unit.signature, unit.state) == (signature, "waiting")
        ]
        peers.state, peers.representative = "represented", min(waiting)[1] if waiting else None
        if peers.representative is not None:
            unit = self.units[peers.representative]
            unit.state, unit.requeued_by, unit.turn = "active", event, self.turn

    def leave_class(self, name: str) -> None:
        """Remove a unit from its class; where it was the representative, the next one is."""
        unit = self.units[name]
        signature, unit.signature = unit.signature, None
        if signature is None:
            return
        if not any(other.signature == signature for other in self.units.values()):
            del self.classes[signature]
        elif self.classes[signature].representative == name:
            if unit.state == "waiting":
                unit.state = ""
            self.represent(signature)

    def wait(self, name: str, signature: str) -> None:
        """Let a unit wait in a class."""
        if self.units[name].signature != signature:
            self.leave_class(name)
        peers = self.classes.setdefault(signature, ModelClass())
        if peers.representative == name:
            peers.representative = None
        self.units[name].signature, self.units[name].state = signature, "waiting"

    def move(self, signature: str, now: float) -> None:
        """Activate an unschedulable class, at once or after its backoff."""
        if self.classes[signature].backoff_until <= now:
            self.represent(signature)
        else:
            self.classes[signature].state = "backoff"

    def end_backoffs(self, now: float) -> None:
        """Activate the classes at the end of their backoff."""
        for signature, peers in self.classes.items():
            if peers.state == "backoff" and peers.backoff_until <= now:
                self.represent(signature)

    def pop(self, now: float, *, may_help: bool) -> str | None:
        """Return the next unit; a requeued one that cannot be helped any more waits again."""
        self.end_backoffs(now)
        while (name := self.next(now)) is not None:
            unit = self.units[name]
            self.turn += 1
            unit.state, unit.turn = "popped", self.turn
            peers = self.classes[unit.signature] if unit.signature is not None else None
            is_certain = peers is None or now >= peers.retry_at or peers.hint in {"none", "any"}
            if peers is None or may_help or unit.requeued_by != "hint" or is_certain:
                return name
            self.requeued_go_first = False
            self.wait(name, unit.signature or "")
            peers.state, peers.representative = "unschedulable", None
        return None

    def next(self, now: float) -> str | None:
        """Return the first active unit, or else the representative of a class that has timed out."""
        active = [unit for unit in self.units.values() if unit.state == "active"]
        fresh = min(
            (one for one in active if not one.requeued_by),
            key=lambda one: (one.queue_key.importance, one.turn, one.queue_key),
            default=None,
        )
        requeued = min((one for one in active if one.requeued_by), key=lambda one: one.queue_key, default=None)
        self.requeued_go_first = self.requeued_go_first and requeued is not None
        if fresh is None and requeued is None:
            due = [
                (peers.retry_at, peers.failed, signature)
                for signature, peers in self.classes.items()
                if peers.state == "unschedulable"
            ]
            if not due or min(due)[0] > now:
                return None
            self.represent(min(due)[2], "timeout")
            return self.next(now)
        if fresh is None or (requeued is not None and self.goes_first(requeued, fresh)):
            return requeued.queue_key.unit.key.name if requeued is not None else None
        self.requeued_go_first = self.requeued_go_first or (requeued is not None and self.take_turns(requeued, fresh))
        return fresh.queue_key.unit.key.name

    def goes_first(self, requeued: ModelUnit, fresh: ModelUnit) -> bool:
        """Return whether a requeued unit goes before a fresh one."""
        is_more_important = requeued.queue_key.importance < fresh.queue_key.importance
        return is_more_important or (self.requeued_go_first and self.take_turns(requeued, fresh))

    def take_turns(self, requeued: ModelUnit, fresh: ModelUnit) -> bool:
        """Return whether a fresh unit is as important, and younger or had its turn since the other was requeued."""
        is_equal = requeued.queue_key.importance == fresh.queue_key.importance
        return is_equal and (requeued.queue_key < fresh.queue_key or requeued.turn < fresh.turn)
