"""The shares of namespaces: what the attempts of one namespace may take of the loop while others use it as well.

An attempt cannot be interrupted, so a unit that arrives meanwhile waits for its end. That leaves the p99 of other
namespaces as it is only if such attempts take less than one per cent of the time. So, whatever their priority:

1. **Costly attempts** of a pool take ``COSTLY_SHARE`` of the time, beside a burst of ``BURST_SECONDS``. Only the time
   beyond what an attempt may take for the pods that it places counts, so large gangs that fit cost nothing.
2. **Cheap attempts in vain** of a pool take a quarter of the time, once they have lately taken
   ``MAX_SECONDS_IN_VAIN``. So a crowd of higher priority that fits nowhere leaves the rest to others.

A *pool* is a part of a namespace: its single pods, its trees, or the units whose last attempt was costly and in vain.
So hopeless units do not hold up new ones of their own namespace. Units that wait for the share of their pool are
released one by one, the most important first. A share belongs to the name of a namespace: units that are deleted and
recreated use the same one, and so does a namespace.
"""

import heapq
from collections.abc import Mapping
from math import exp2
from typing import NamedTuple

from cpg_scheduler.keys import UnitKey
from cpg_scheduler.queueing.active_queue import QueueEntry, Rank
from cpg_scheduler.queueing.attempt_costs import HALF_LIFE_SECONDS, MAX_NAMESPACES, MAX_SECONDS_WITHOUT_REST
from cpg_scheduler.queueing.places import ACTIVE, BACKOFF
from cpg_scheduler.queueing.policy import MAX_SECONDS_UNSCHEDULABLE

COSTLY_SHARE = 1 / 500
"""The share of a pool; a namespace has three, which leaves a margin to one per cent."""
BURST_SECONDS = 0.1
"""What costly attempts at new units may take beyond the share, so that few of them do not hold up other new units."""
MAX_SECONDS_PER_PLACED_POD = 0.02
"""What an attempt may take for each pod that it places; the usual is a tenth of it."""
MAX_SECONDS_IN_VAIN = 1.0
REST_PER_CHEAP_COST = 3.0
SECONDS_PRESENT = 300.0
"""For how long a namespace counts as using the loop after an attempt at one of its units."""
SINGLE_PODS, TREES, RETRIES = "pods", "trees", "retries"


class SharePool(NamedTuple):
    """Units that use one share."""

    namespace: str
    kind: str


def pool_of(unit: QueueEntry) -> SharePool:
    """Return the pool of a unit."""
    kind = TREES if unit.queue_key.unit.flavour else SINGLE_PODS
    return SharePool(unit.namespace, RETRIES if unit.is_costly else kind)


class _Account:
    """What a pool has used of its share."""

    __slots__ = ("costly", "in_vain", "since", "until")

    def __init__(self, now: float) -> None:
        self.costly = 0.0
        """Seconds of costly attempts beyond the share."""
        self.in_vain = 0.0
        """Seconds of attempts in vain, forgotten by half every ten seconds."""
        self.since = now
        self.until = now

    def charge(self, seconds: float, now: float, *, placed: int, burst: float) -> None:
        """Add the cost of an attempt; ``burst`` is what costly attempts may take beyond the share."""
        passed, self.since = now - self.since, now
        self.costly = max(self.costly - passed * COSTLY_SHARE, 0.0) + excess(seconds, placed)
        wait = max(self.costly - burst, 0.0) / COSTLY_SHARE
        if not placed:
            self.in_vain = self.in_vain * exp2(-passed / HALF_LIFE_SECONDS) + seconds
            wait = max(wait, REST_PER_CHEAP_COST * seconds if self.in_vain > MAX_SECONDS_IN_VAIN else 0.0)
        self.until = now + min(wait, MAX_SECONDS_UNSCHEDULABLE)


def rest_beside_others(seconds: float) -> float:
    """Return for how long a unit rests after an attempt in vain if other namespaces use the loop as well."""
    return min(excess(seconds, 0) / COSTLY_SHARE, MAX_SECONDS_UNSCHEDULABLE)


def excess(seconds: float, placed: int) -> float:
    """Return by how much an attempt takes longer than one that places so many pods may."""
    return max(seconds - max(MAX_SECONDS_WITHOUT_REST, MAX_SECONDS_PER_PLACED_POD * placed), 0.0)


class NamespaceShares:
    """The accounts of the pools, and the units that wait for their share."""

    def __init__(self, units: Mapping[UnitKey, QueueEntry]) -> None:
        """Start without costs; ``units`` are all units of the scheduling queue."""
        self._units = units
        self._accounts: dict[SharePool, _Account] = {}
        self._present: dict[str, float] = {}
        """The time of the last attempt of each namespace, the latest last."""
        self._waiting: dict[SharePool, list[Rank]] = {}
        self._queued: set[UnitKey] = set()
        """The units in the heaps of waiting ones; some may be gone, or have had their attempt."""
        self._released: dict[SharePool, QueueEntry] = {}

    def charge(self, unit: QueueEntry, seconds: float, now: float, *, placed: int) -> None:
        """Add the cost of an attempt at a unit that has placed so many pods."""
        pool = pool_of(unit)
        self._present.pop(pool.namespace, None)
        self._present[pool.namespace] = now
        account = self._accounts.setdefault(pool, _Account(now))
        account.charge(seconds, now, placed=placed, burst=0.0 if pool.kind == RETRIES else BURST_SECONDS)
        if len(self._present) > MAX_NAMESPACES:
            del self._present[next(iter(self._present))]
        if len(self._accounts) > MAX_NAMESPACES:
            kept = sorted(self._accounts, key=lambda one: self._accounts[one].until)[MAX_NAMESPACES // 2 :]
            self._accounts = {one: self._accounts[one] for one in kept}

    def must_wait(self, unit: QueueEntry, now: float) -> bool:
        """Return whether a unit has to wait for the share of its pool; if so, it is released when there is some."""
        pool, key = pool_of(unit), unit.queue_key.unit
        if not self._has_to_wait(pool, now):
            return False
        if key not in self._queued:
            self._queued.add(key)
            rank = Rank(unit.queue_key.importance, 0, unit.turn, unit.queue_key)
            heapq.heappush(self._waiting.setdefault(pool, []), rank)
        return True

    def release(self, now: float) -> list[QueueEntry]:
        """Return the first waiting unit of each pool that has some share left; one at a time."""
        free = [pool for pool in self._waiting if not (self._has_to_wait(pool, now) or self._is_released(pool))]
        return [unit for pool in free if (unit := self._pop_first(pool)) is not None]

    def next_time(self) -> float | None:
        """Return when the first pool with waiting units has some share left."""
        return min((self._accounts[pool].until for pool in self._waiting if pool in self._accounts), default=None)

    def is_alone(self, namespace: str, now: float) -> bool:
        """Return whether no other namespace uses the loop, so that a namespace may have all of it."""
        others = (seen for name, seen in reversed(self._present.items()) if name != namespace)
        return next(others, -SECONDS_PRESENT) + SECONDS_PRESENT <= now

    def _has_to_wait(self, pool: SharePool, now: float) -> bool:
        """Return whether a pool has used its share."""
        account = self._accounts.get(pool)
        return account is not None and account.until > now and not self.is_alone(pool.namespace, now)

    def _is_released(self, pool: SharePool) -> bool:
        """Return whether the last unit that was released waits for its attempt."""
        unit = self._released.get(pool)
        return unit is not None and unit.state == ACTIVE

    def _pop_first(self, pool: SharePool) -> QueueEntry | None:
        heap = self._waiting[pool]
        while heap:
            key = heapq.heappop(heap).queue_key.unit
            self._queued.discard(key)
            unit = self._units.get(key)
            if unit is not None and unit.state == BACKOFF:
                self._released[pool] = unit
                return unit
        del self._waiting[pool]
        self._released.pop(pool, None)
        return None
