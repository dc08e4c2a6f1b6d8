"""The search for devices without shortcuts, as upstream does it, and random problems that have many ties for it."""

from random import Random

from msgspec import Struct

from cpg_engine.devices.constraints import can_add
from cpg_engine.devices.shapes import Alternative, ClaimShape, Constraint, DeviceShape
from cpg_engine.devices.values import (
    UNIQUE,
    UNKNOWN,
    Amounts,
    DeviceView,
    Pick,
    PoolState,
    PoolView,
    add_amounts,
    fits_capacity,
)


class SearchProblem(Struct, frozen=True):
    """The input of a search."""

    shape: DeviceShape
    views: tuple[PoolView, ...]
    states: tuple[PoolState, ...]


class EndedByError(Exception):
    """Upstream ends with an error."""


class EndedByLimitError(Exception):
    """The search takes too long for a test."""


class TooManyResultsError(Exception):
    """A claim would have too many results."""


class PlainSearch:
    """Tries every combination, in upstream's order."""

    def __init__(self, problem: SearchProblem, max_results: int, max_steps: int = 3000) -> None:
        """Start with what is taken."""
        self.shape, self.views, self.states = problem.shape, problem.views, problem.states
        self.max_results = max_results
        self.steps_left = max_steps
        self.picks: list[tuple[int, Pick]] = []
        self.charged: list[bool] = []

    def run(self) -> tuple[Pick, ...] | None:
        """Return the picks of the first solution."""
        for index, asked in enumerate(self.shape.alternatives):
            if not asked.count:
                devices = [one for view in self.views for one in view.devices if index in dict(one.failing)]
                if devices or not all(view.usable for view in self.views):
                    raise EndedByError
        try:
            found = self.claim(0)
        except TooManyResultsError as error:
            raise EndedByError from error
        return tuple(pick for _, pick in self.picks) if found else None

    def claim(self, claim: int) -> bool:
        """Allocate the claims from this one on."""
        return claim == len(self.shape.claims) or self.request(claim, 0)

    def request(self, claim: int, request: int) -> bool:
        """Allocate the requests of a claim from this one on, and all claims after it."""
        requests = self.shape.claims[claim].requests
        if request == len(requests):
            try:
                return self.claim(claim + 1)
            except TooManyResultsError:
                return False
        too_many = 0
        for alternative in requests[request]:
            try:
                if self.device(claim, request, alternative, ()):
                    return True
            except TooManyResultsError:
                too_many += 1
        if too_many == len(requests[request]):
            raise TooManyResultsError
        return False

    def device(self, claim: int, request: int, alternative: int, chosen: tuple[int, ...]) -> bool:
        """Allocate the next device of an alternative."""
        candidates = self.candidates(alternative)
        takes_all = not self.shape.alternatives[alternative].count
        count = len(candidates) if takes_all else self.shape.alternatives[alternative].count
        if not count:
            return False
        if len(chosen) == count:
            return self.request(claim, request + 1)
        if count - len(chosen) > self.max_results - sum(owner == claim for owner, _ in self.picks):
            raise TooManyResultsError
        start = chosen[-1] + 1 if chosen else 0
        for place in [start] if takes_all else range(start, len(candidates)):
            if self.take(claim, alternative, *candidates[place]):
                try:
                    if self.device(claim, request, alternative, (*chosen, place)):
                        return True
                except TooManyResultsError:
                    self.give_back()
                    raise
                self.give_back()
        return False

    def candidates(self, alternative: int) -> list[tuple[int, DeviceView]]:
        """Return the devices that match an alternative, with their pools."""
        takes_all = not self.shape.alternatives[alternative].count
        return [
            (pool, device)
            for pool, view in enumerate(self.views)
            for device in view.devices
            if alternative in (*device.accepted, *dict(device.failing), *(device.blocked if takes_all else ()))
        ]

    def is_in_use(self, claim: int, alternative: int, pool: int, device: DeviceView) -> bool:
        """Return whether the device cannot be taken as a whole."""
        owners = [owner for owner, pick in self.picks if (pick.pool, pick.position) == (pool, device.position)]
        if self.shape.alternatives[alternative].is_admin:
            return not device.is_shareable and claim in owners
        is_shared = device.position in dict(self.states[pool].consumed) and not device.is_shareable
        return bool(self.states[pool].taken >> device.position & 1 or is_shared or (owners and not device.is_shareable))

    def take(self, claim: int, alternative: int, pool: int, device: DeviceView) -> bool:
        """Take a device if all rules allow it."""
        if self.is_in_use(claim, alternative, pool, device):
            return False
        if alternative in dict(device.failing):
            raise EndedByError
        self.steps_left -= 1
        if self.steps_left < 0:
            raise EndedByLimitError
        consumed = self.consumed(pool, device)
        is_charged = bool(device.counters) and not (device.is_shareable and consumed is not None)
        if (is_charged and not self.has_counters(pool, device)) or alternative in device.blocked:
            return False
        if not self.meets_constraints(alternative, device):
            return False
        if device.is_shareable:
            amounts = device.amounts[device.accepted.index(alternative)]
            if not fits_capacity(add_amounts(consumed or (), amounts), device.capacity):
                return False
        self.picks.append((claim, Pick(alternative, pool, device.position)))
        self.charged.append(is_charged)
        return True

    def consumed(self, pool: int, device: DeviceView) -> Amounts | None:
        """Return what is consumed of a device, None before its first share."""
        found = dict(self.states[pool].consumed).get(device.position)
        for _, pick in self.picks if device.is_shareable else ():
            if (pick.pool, pick.position) == (pool, device.position):
                found = add_amounts(found or (), device.amounts[device.accepted.index(pick.alternative)])
        return found

    def meets_constraints(self, alternative: int, device: DeviceView) -> bool:
        """Return whether a device can join those of its claim; end with an error if all devices are asked for."""
        for index, constraint in enumerate(one for found in self.shape.claims for one in found.constraints):
            values = [
                self.find(pick).attributes[index]
                for _, pick in self.picks
                if pick.alternative in constraint.alternatives
            ]
            if alternative in constraint.alternatives and not can_add(constraint, device.attributes[index], values):
                if self.shape.alternatives[alternative].count:
                    return False
                raise EndedByError
        return True

    def give_back(self) -> None:
        """Undo the last step."""
        self.picks.pop()
        self.charged.pop()

    def find(self, pick: Pick) -> DeviceView:
        """Return the device of a pick."""
        return next(one for one in self.views[pick.pool].devices if one.position == pick.position)

    def has_counters(self, pool: int, device: DeviceView) -> bool:
        """Return whether the counters of the pool suffice for the device."""
        left = list(self.views[pool].counters)
        state = self.states[pool]
        users = [
            one
            for one in (*self.views[pool].devices, *self.views[pool].others)
            if state.taken >> one.position & 1 or one.position in dict(state.consumed)
        ]
        users += [
            self.find(pick)
            for (_, pick), is_charged in zip(self.picks, self.charged, strict=True)
            if is_charged and pick.pool == pool
        ]
        for one in (*users, device):
            for counter, amount in one.counters:
                left[counter] -= amount
        return min(left) >= 0


def random_problem(seed: int) -> SearchProblem:
    """Return the problem of a seed: few kinds of devices, and requests that compete for them."""
    random = Random(seed)  # noqa: S311 - no secret
    alternatives: list[Alternative] = []
    admin = random.choice((0, 0, 0.4))
    claims = [_claim(random, alternatives, admin) for _ in range(random.choice((1, 1, 2, 3)))]
    constraints = sum(len(one.constraints) for one in claims)
    views = [_pool(random, alternatives, constraints) for _ in range(random.choice((1, 1, 2)))]
    states = tuple(
        PoolState(
            sum(1 << one.position for one in (*view.devices, *view.others) if random.random() < 0.15),
            tuple(
                (one.position, (("m", 1),) if one.capacity else ())
                for one in view.devices
                if random.random() < (0.3 if one.is_shareable else 0.03)
            ),
        )
        for view in views
    )
    return SearchProblem(DeviceShape(tuple(claims), tuple(alternatives)), tuple(views), states)


def _claim(random: Random, alternatives: list[Alternative], admin: float) -> ClaimShape:
    requests = []
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        first = len(alternatives)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            count = random.choice((0, 1, 1, 1, 2, 2, 3))
            alternatives.append(Alternative("c", count=count, is_admin=random.random() < admin))
        requests.append(tuple(range(first, len(alternatives))))
    every = [index for request in requests for index in request]
    constraints = tuple(
        Constraint("a", random.random() < 0.4, tuple(one for one in every if random.random() < 0.8))
        for _ in range(random.choice((0, 0, 1, 2)) if every else 0)
    )
    return ClaimShape(tuple(requests), constraints)


def _pool(random: Random, alternatives: list[Alternative], constraints: int) -> PoolView:
    if random.random() < 0.03:
        return PoolView(usable=False)
    counters = tuple(random.randint(0, 5) for _ in range(random.choice((0, 0, 1, 2))))
    kinds = [_device(random, alternatives, constraints, len(counters)) for _ in range(random.randint(1, 3))]
    devices = tuple(_placed(random.choice(kinds), position) for position in range(random.randint(1, 6)))
    others = tuple(
        DeviceView(position, counters=((0, 1),)) for position in range(8, 8 + random.randint(0, 2)) if counters
    )
    return PoolView(devices, others, counters if any(one.counters for one in devices) else ())


def _placed(kind: DeviceView, position: int) -> DeviceView:
    return DeviceView(position, *(getattr(kind, name) for name in DeviceView.__struct_fields__[1:]))


def _device(random: Random, alternatives: list[Alternative], constraints: int, counters: int) -> DeviceView:
    every = range(len(alternatives))
    accepted = tuple(index for index in every if random.random() < 0.8)
    rest = [index for index in every if index not in accepted]
    is_shareable = random.random() < 0.25
    capacity = (("m", random.randint(1, 4)),) if is_shareable and random.random() < 0.8 else ()
    values = (0, 0, 1, 1, 2, UNKNOWN, None, *(() if is_shareable else (UNIQUE,)))
    return DeviceView(
        0,
        accepted=accepted,
        amounts=tuple((("m", random.randint(1, 2)),) if capacity else () for _ in accepted) if is_shareable else (),
        blocked=tuple(index for index in rest if not alternatives[index].count and random.random() < 0.2),
        failing=tuple((index, "fails") for index in rest if alternatives[index].count and random.random() < 0.05),
        attributes=tuple(random.choice(values) for _ in range(constraints)),
        counters=tuple((index, random.randint(1, 2)) for index in range(counters) if random.random() < 0.7),
        capacity=capacity,
        is_shareable=is_shareable,
    )
