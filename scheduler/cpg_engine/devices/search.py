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
    return DeviceSearch(shape, views).find(states, max_steps)


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
    is shared, None before its first share. Devices of one ``kind`` have equal views; it is found when it is needed.
    """

    __slots__ = ("bit", "consumed", "holders", "kind", "pool", "view")

    def __init__(self, view: DeviceView, pool: int) -> None:
        self.view = view
        self.pool = pool
        self.kind = -1
        self.bit = 1 << view.position
        self.consumed: Amounts | None = None
        self.holders: tuple[int, ...] = ()


class _Taken(NamedTuple):
    """A device that was taken, and what is needed to give it back."""

    device: _Device
    alternative: int
    claim: int
    reserves_counters: bool
    consumed: Amounts | None


class DeviceSearch:
    """The search on nodes with the same views, which can be repeated with other states."""

    def __init__(self, shape: DeviceShape, views: Sequence[PoolView]) -> None:
        """Sort the devices by the alternatives that they are for."""
        self._shape = shape
        self._views = views
        self._requests = [(index, one) for index, claim in enumerate(shape.claims) for one in claim.requests]
        self._constraints = _constraints_by_alternative(shape)
        self._values: list[list[object]] = [[] for claim in shape.claims for _ in claim.constraints]
        self._matching: list[list[_Device]] = [[] for _ in shape.alternatives]
        self._masks = [[0] * len(views) for _ in shape.alternatives]
        self._devices: dict[tuple[int, int], _Device] = {}
        self._failing: dict[int, str] = {}
        self._shareable: set[int] = set()
        self._kinds: dict[object, int] = {}
        for pool, view in enumerate(views):
            for found in view.devices:
                device = self._devices[pool, found.position] = _Device(found, pool)
                for alternative in (*found.accepted, *found.blocked, *(index for index, _ in found.failing)):
                    self._matching[alternative].append(device)
                    self._masks[alternative][pool] |= device.bit
                self._failing.update(found.failing)
                self._shareable.update(found.accepted if found.is_shareable else ())

    def find(self, states: Sequence[PoolState], max_steps: int) -> SearchResult:
        """Return the first solution where this is taken of the pools."""
        self._steps_left = max_steps
        self._begin(states)
        picks, problem, is_cut = None, "", False
        try:
            picks = self._run()
        except _SearchError as error:
            problem = str(error)
        except _OutOfStepsError:
            is_cut = True
        while self._taken:
            self._give_back()
        for device in self._shared:
            device.consumed = None
        return SearchResult(picks, max_steps - self._steps_left, is_cut, problem)

    def _begin(self, states: Sequence[PoolState]) -> None:
        """Note what is taken; of counters, also by devices that cannot be picked."""
        self._results = [0] * len(self._shape.claims)
        self._taken: list[_Taken] = []
        self._dead_ends: set[object] = set()
        self._candidates: dict[int, list[_Device]] = {}
        self._shared: list[_Device] = []
        self._bits = [state.taken for state in states]
        self._counters = [list(view.counters) for view in self._views]
        for pool, (view, state) in enumerate(zip(self._views, states, strict=True)):
            for position, consumed in state.consumed:
                device = self._devices.get((pool, position))
                if device is not None and device.view.is_shareable:
                    device.consumed = consumed
                    self._shared.append(device)
                else:
                    self._bits[pool] |= 1 << position
            for found in (*view.devices, *view.others) if view.counters else ():
                device = self._devices.get((pool, found.position))
                if self._bits[pool] >> found.position & 1 or (device is not None and device.consumed is not None):
                    for counter, amount in found.counters:
                        self._counters[pool][counter] -= amount

    def _run(self) -> tuple[Pick, ...] | None:
        """Return the picks of the first solution."""
        for index, alternative in enumerate(self._shape.alternatives):
            if not alternative.count and not all(view.usable for view in self._views):
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
        available = [0] * len(self._views)
        total = 0
        for _, alternatives in self._requests:
            needed = [one for index in alternatives if (one := self._count_needed(index, available)) is not None]
            if not needed:
                return True
            total += min(needed)
        return total > sum(mask.bit_count() for mask in available)

    def _count_needed(self, index: int, available: list[int]) -> int | None:
        """Return how many devices an alternative needs for itself, or None if there are fewer; add those there are."""
        alternative = self._shape.alternatives[index]
        masks = self._masks[index]
        if not alternative.is_admin:
            masks = [mask & ~taken for mask, taken in zip(masks, self._bits, strict=True)]
        needed = alternative.count or max(1, len(self._matching[index]))
        if sum(mask.bit_count() for mask in masks) < needed:
            return None
        available[:] = [known | mask for known, mask in zip(available, masks, strict=True)]
        return 0 if alternative.is_admin or index in self._shareable else needed

    def _candidates_for(self, index: int) -> list[_Device]:
        """Return the devices to try for an alternative, without those that were taken before the search."""
        found = self._candidates.get(index)
        if found is None:
            found = self._matching[index]
            alternative = self._shape.alternatives[index]
            if alternative.count and not alternative.is_admin:
                bits = self._bits
                found = [one for one in found if not bits[one.pool] & one.bit]
            self._candidates[index] = found
        return found

    def _is_in_use(self, device: _Device, alternative: Alternative, claim: int) -> bool:
        """Return whether the device cannot be taken; admin access only minds its own claim."""
        if alternative.is_admin:
            return claim in device.holders
        return bool(device.holders) or bool(self._bits[device.pool] & device.bit)

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
        candidates = self._candidates_for(alternative)
        last = len(candidates) if alternative in self._failing else len(candidates) - missing + 1
        failed: set[object] = set()
        for place in range(start, last):
            device = candidates[place]
            if self._is_in_use(device, asked, claim):
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
        candidates = self._candidates_for(alternative)
        if len(candidates) > MAX_RESULTS - self._results[claim]:
            return _Failure.TOO_MANY
        outcome: _Failure | None = _Failure.NO_DEVICES
        before = len(self._taken)
        if candidates and all(
            not self._is_in_use(device, asked, claim)
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
        if not self._steps_left:
            raise _OutOfStepsError
        self._steps_left -= 1
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
            device.kind = self._kinds.setdefault(_kind(device), len(self._kinds))
        return (device.kind, device.holders, device.consumed, self._bits[device.pool] & device.bit > 0)

    def _state(self, index: int) -> object:
        """Return a value that is equal for states in which the requests from this one on have the same outcome."""
        claim = self._requests[index][0]
        touched = Counter(self._identity(device) for device in {one.device for one in self._taken})
        first = sum(len(one.constraints) for one in self._shape.claims[:claim])
        values = tuple(
            frozenset(self._values[first + offset]) for offset in range(len(self._shape.claims[claim].constraints))
        )
        return (index, self._results[claim], frozenset(touched.items()), values)


def _kind(device: _Device) -> object:
    """Return what must be equal for two devices to be interchangeable; counters are those of the pool."""
    view = device.view
    return (
        (view.accepted, view.amounts, view.blocked, view.failing),
        (view.attributes, view.capacity, view.is_shareable),
        (view.counters, device.pool) if view.counters else None,
    )


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
