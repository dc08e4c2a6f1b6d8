"""The search for devices: first fit with backtracking, in upstream's order, so that it picks the same devices.

Upstream tries every combination. This search gives the same answer sooner:

- Devices that are equal in view and state are interchangeable. Where one failed, its equals are not tried.
- A state in which a request failed is remembered, also if the requests before it have equal devices swapped.
- A request for more devices than there are fails at once.

The generators try one request or one device each. They yield the generator of what follows, and are resumed with the
outcome only if that failed. So a long list of requests needs no deep stack.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from cpg_api.core.devices import MAX_RESULTS
from cpg_engine.devices.constraints import can_add
from cpg_engine.devices.shapes import Alternative, Constraint, DeviceShape
from cpg_engine.devices.values import Amounts, DeviceView, Pick, PoolState, PoolView, add_amounts, fits_capacity


class SearchResult(Struct, frozen=True):
    """The picks in the order of the requests, or None; ``is_cut`` if the steps did not suffice to know.

    ``problem`` is the error that ended the search, as it ends upstream's.
    """

    picks: tuple[Pick, ...] | None = None
    steps: int = 0
    is_cut: bool = False
    problem: str = ""


def search(shape: DeviceShape, views: Sequence[PoolView], states: Sequence[PoolState], max_steps: int) -> SearchResult:
    """Search devices for all claims of a shape on one node."""
    run = _Search(shape, views, states, max_steps)
    try:
        return SearchResult(picks=run.run(), steps=run.steps)
    except _SearchError as error:
        return SearchResult(steps=run.steps, problem=str(error))
    except _OutOfStepsError:
        return SearchResult(steps=run.steps, is_cut=True)


class _Failure(Enum):
    """Why something cannot be allocated: for lack of devices, or because a claim would have too many results.

    Other devices do not help against too many results, only other alternatives.
    """

    NO_DEVICES = 0
    TOO_MANY = 1


_Attempt: TypeAlias = Generator["_Attempt | None", _Failure | None, _Failure]


class _SearchError(Exception):
    """An error that ends the search."""


class _OutOfStepsError(Exception):
    """The search needs more steps than it may take."""


class _Device:
    """A device, and what is taken of it.

    ``holders`` are the claims of this search that have it as a whole. ``consumed`` is what is consumed of a device that
    is shared, None before its first share.
    """

    __slots__ = ("consumed", "holders", "is_taken", "kind", "pool", "view")

    def __init__(self, view: DeviceView, pool: int, state: PoolState, consumed: Amounts | None) -> None:
        self.view = view
        self.pool = pool
        self.consumed = consumed if view.is_shareable else None
        self.is_taken = bool(state.taken >> view.position & 1) or self.consumed != consumed
        self.holders: tuple[int, ...] = ()
        self.kind = -1

    def is_in_use(self, alternative: Alternative, claim: int) -> bool:
        """Return whether the device cannot be taken; admin access only minds its own claim."""
        return claim in self.holders if alternative.is_admin else self.is_taken or bool(self.holders)


class _Taken(NamedTuple):
    """A device that was taken, and what is needed to give it back."""

    device: _Device
    alternative: int
    claim: int
    reserves_counters: bool
    consumed: Amounts | None


class _Search:
    """The state of one search."""

    def __init__(
        self, shape: DeviceShape, views: Sequence[PoolView], states: Sequence[PoolState], max_steps: int
    ) -> None:
        self.steps = 0
        self._max_steps = max_steps
        self._shape = shape
        self._requests = [(index, one) for index, claim in enumerate(shape.claims) for one in claim.requests]
        self._constraints = _constraints_by_alternative(shape)
        self._values: list[list[object]] = [[] for claim in shape.claims for _ in claim.constraints]
        self._candidates: list[list[_Device]] = [[] for _ in shape.alternatives]
        self._counters: list[list[int]] = []
        self._failing: dict[int, str] = {}
        self._is_complete = True
        for index, (view, state) in enumerate(zip(views, states, strict=True)):
            self._add_pool(index, view, state)
        self._results = [0] * len(shape.claims)
        self._taken: list[_Taken] = []
        self._kinds: dict[object, int] = {}
        self._dead_ends: set[object] = set()

    def _add_pool(self, index: int, view: PoolView, state: PoolState) -> None:
        """Add the devices of a pool to the candidates, and subtract what they consume of its counters."""
        self._is_complete = self._is_complete and view.usable
        consumed = dict(state.consumed)
        for found in view.devices:
            device = _Device(found, index, state, consumed.get(found.position))
            for place in (*found.accepted, *found.blocked, *(place for place, _ in found.failing)):
                alternative = self._shape.alternatives[place]
                if not device.is_taken or alternative.is_admin or not alternative.count:
                    self._candidates[place].append(device)
            self._failing.update(found.failing)
        counters = list(view.counters)
        for found in (*view.devices, *view.others) if counters else ():
            if state.taken >> found.position & 1 or found.position in consumed:
                for counter, amount in found.counters:
                    counters[counter] -= amount
        self._counters.append(counters)

    def run(self) -> tuple[Pick, ...] | None:
        """Return the picks of the first solution."""
        for index, alternative in enumerate(self._shape.alternatives):
            if not alternative.count and not self._is_complete:
                raise _SearchError("all devices are requested, but a pool is incomplete or invalid")
            if not alternative.count and index in self._failing:
                raise _SearchError(self._failing[index])
        if self._is_hopeless():
            return None
        stack: list[_Attempt | None] = [self._follow(-1)]
        outcome: _Failure | None = None
        while stack:
            attempt = stack[-1]
            if attempt is None:
                return tuple(Pick(one.alternative, one.device.pool, one.device.view.position) for one in self._taken)
            try:
                stack.append(attempt.send(outcome))
                outcome = None
            except StopIteration as end:
                stack.pop()
                outcome = end.value
        return None

    def _is_hopeless(self) -> bool:
        """Return whether there are fewer devices than one request needs, or than all together need."""
        available: set[_Device] = set()
        total = 0
        for claim, alternatives in self._requests:
            needed = [one for index in alternatives if (one := self._count_needed(index, claim, available)) is not None]
            if not needed:
                return True
            total += min(needed)
        return total > len(available)

    def _count_needed(self, index: int, claim: int, available: set[_Device]) -> int | None:
        """Return how many devices an alternative needs for itself, or None if there are fewer; add those there are."""
        alternative = self._shape.alternatives[index]
        candidates = self._candidates[index]
        free = [one for one in candidates if not one.is_in_use(alternative, claim)]
        needed = alternative.count or len(candidates)
        if not free or len(free) < needed:
            return None
        available.update(free)
        return 0 if alternative.is_admin or any(one.view.is_shareable for one in free) else needed

    def _follow(self, index: int) -> _Attempt | None:
        """Return the attempt for the request after this one, None if it is the last."""
        return self._try_request(index + 1) if index + 1 < len(self._requests) else None

    def _try_request(self, index: int) -> _Attempt:
        """Try the alternatives of a request, one after the other."""
        if self._dead_ends and self._state(index) in self._dead_ends:
            return _Failure.NO_DEVICES
        is_too_many = True
        for alternative in self._requests[index][1]:
            takes_all = not self._shape.alternatives[alternative].count
            attempt = self._try_all(index, alternative) if takes_all else self._try_device(index, alternative, 0, 0)
            is_too_many = (yield attempt) is _Failure.TOO_MANY and is_too_many
        if is_too_many:
            return _Failure.TOO_MANY
        self._dead_ends.add(self._state(index))
        return _Failure.NO_DEVICES

    def _try_device(self, index: int, alternative: int, number: int, start: int) -> _Attempt:
        """Try each candidate from a place on as the next device of a request."""
        claim = self._requests[index][0]
        asked = self._shape.alternatives[alternative]
        missing = asked.count - number
        if missing > MAX_RESULTS - self._results[claim]:
            return _Failure.TOO_MANY
        candidates = self._candidates[alternative]
        last = len(candidates) if alternative in self._failing else len(candidates) - missing + 1
        failed: set[object] = set()
        for place in range(start, last):
            device = candidates[place]
            if device.is_in_use(asked, claim):
                continue
            self._require_judged(device, alternative)
            if failed and self._identity(device) in failed:
                continue
            if self._take(device, alternative, claim):
                outcome = yield (
                    self._try_device(index, alternative, number + 1, place + 1) if missing > 1 else self._follow(index)
                )
                self._give_back()
                if outcome is _Failure.TOO_MANY:
                    return outcome
            failed.add(self._identity(device))
        return _Failure.NO_DEVICES

    def _require_judged(self, device: _Device, alternative: int) -> None:
        if alternative in self._failing and (reason := dict(device.view.failing).get(alternative)) is not None:
            raise _SearchError(reason)

    def _try_all(self, index: int, alternative: int) -> _Attempt:
        """Take all devices of an alternative, or none."""
        claim = self._requests[index][0]
        asked = self._shape.alternatives[alternative]
        candidates = self._candidates[alternative]
        if len(candidates) > MAX_RESULTS - self._results[claim]:
            return _Failure.TOO_MANY
        outcome: _Failure | None = _Failure.NO_DEVICES
        before = len(self._taken)
        if candidates and all(
            not device.is_in_use(asked, claim)
            and alternative not in device.view.blocked
            and self._take(device, alternative, claim, must=True)
            for device in candidates
        ):
            outcome = yield self._follow(index)
        while len(self._taken) > before:
            self._give_back()
        return outcome or _Failure.NO_DEVICES

    def _take(self, device: _Device, alternative: int, claim: int, *, must: bool = False) -> bool:
        """Take a device, if counters, constraints and capacity allow it.

        A device that ``must`` be taken, because all are requested, ends the search if a constraint forbids it.
        """
        if self.steps >= self._max_steps:
            raise _OutOfStepsError
        self.steps += 1
        view = device.view
        reserves_counters = bool(view.counters) and device.consumed is None
        if reserves_counters and not self._has_counters(device):
            return False
        constraints = self._constraints[alternative]
        for index, constraint in constraints:
            if not can_add(constraint, view.attributes[index], self._values[index]):
                if must:
                    raise _SearchError("all devices are requested, but a constraint excludes one of them")
                return False
        consumed = device.consumed
        if view.is_shareable:
            amounts = add_amounts(consumed or (), view.amounts[view.accepted.index(alternative)])
            if not fits_capacity(amounts, view.capacity):
                return False
            device.consumed = amounts
        else:
            device.holders += (claim,)
        for index, _ in constraints:
            self._values[index].append(view.attributes[index])
        if reserves_counters:
            self._reserve(device, 1)
        self._results[claim] += 1
        self._taken.append(_Taken(device, alternative, claim, reserves_counters, consumed))
        return True

    def _give_back(self) -> None:
        """Undo the last step."""
        last = self._taken.pop()
        self._results[last.claim] -= 1
        if last.reserves_counters:
            self._reserve(last.device, -1)
        for index, _ in self._constraints[last.alternative]:
            self._values[index].pop()
        if last.device.view.is_shareable:
            last.device.consumed = last.consumed
        else:
            last.device.holders = last.device.holders[:-1]

    def _has_counters(self, device: _Device) -> bool:
        """Return whether all counters of the pool suffice with the device; upstream also asks for those of others."""
        self._reserve(device, 1)
        suffices = min(self._counters[device.pool]) >= 0
        self._reserve(device, -1)
        return suffices

    def _reserve(self, device: _Device, sign: int) -> None:
        counters = self._counters[device.pool]
        for counter, amount in device.view.counters:
            counters[counter] -= sign * amount

    def _identity(self, device: _Device) -> object:
        """Return a value that is equal for devices that are interchangeable in the present state."""
        if device.kind < 0:
            view = device.view
            key = (
                (view.accepted, view.amounts, view.blocked, view.failing),
                (view.attributes, view.capacity, view.is_shareable, device.is_taken),
                (view.counters, device.pool if view.counters else -1),
            )
            device.kind = self._kinds.setdefault(key, len(self._kinds))
        return (device.kind, device.holders, device.consumed)

    def _state(self, index: int) -> object:
        """Return a value that is equal for states in which the requests from this one on have the same outcome."""
        claim = self._requests[index][0]
        touched = Counter(self._identity(device) for device in {one.device for one in self._taken})
        first = sum(len(one.constraints) for one in self._shape.claims[:claim])
        values = tuple(
            frozenset(self._values[first + offset]) for offset in range(len(self._shape.claims[claim].constraints))
        )
        return (index, self._results[claim], frozenset(touched.items()), values)


def _constraints_by_alternative(shape: DeviceShape) -> list[list[tuple[int, Constraint]]]:
    """Return the constraints that apply to each alternative, with their index over all claims."""
    found: list[list[tuple[int, Constraint]]] = [[] for _ in shape.alternatives]
    for index, constraint in enumerate(one for claim in shape.claims for one in claim.constraints):
        for alternative in constraint.alternatives:
            found[alternative].append((index, constraint))
    return found


def after(
    shape: DeviceShape, views: Sequence[PoolView], states: Sequence[PoolState], picks: Sequence[Pick]
) -> tuple[PoolState, ...]:
    """Return the states with the picks taken; admin access takes nothing."""
    changed = list(states)
    for pick in picks:
        if shape.alternatives[pick.alternative].is_admin:
            continue
        state = changed[pick.pool]
        device = next(one for one in views[pick.pool].devices if one.position == pick.position)
        if device.is_shareable:
            changed[pick.pool] = state.with_share(
                pick.position, device.amounts[device.accepted.index(pick.alternative)]
            )
        else:
            changed[pick.pool] = state.with_taken(pick.position)
    return tuple(changed)
