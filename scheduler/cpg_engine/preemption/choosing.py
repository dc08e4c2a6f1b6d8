"""Who goes for a tree: as few and as unimportant as its goal allows."""

from collections.abc import Sequence

from msgspec.structs import replace

from cpg_engine.preemption.candidates import PotentialVictim
from cpg_engine.preemption.case import NOBODY, Attempt, Case, Comparison
from cpg_engine.preemption.domains import cheapest_domain
from cpg_engine.preemption.narrowing import narrowed, smallest
from cpg_engine.preemption.settling import reprieved, settled


def cheapest(case: Case, some: Sequence[PotentialVictim]) -> Comparison:
    """Return the cheapest attempt that reaches the goal, which is reached if all go, the most important first."""
    ways = (_cheapest(case, lowest) for marked in _markings(case, some) for lowest in _lowest(case, marked))
    found: list[Comparison] = []
    for comparison in ways:
        found.append(comparison)
        if case.trials.tired():
            break
    return min(found, key=lambda comparison: case.cost(comparison.best.gone))


def _markings(case: Case, some: Sequence[PotentialVictim]) -> list[list[PotentialVictim]]:
    """Return the candidates, marked by whether a budget forbids them to go, in the ways in which that can be seen.

    A budget that allows some of its pods to go says nothing of which. Those who matter least are taken to be allowed;
    or everybody is who would be if he went alone.
    """
    units = [found.unit for found in some]
    least_first = case.allowances.violated(units[::-1])[::-1]
    alone = case.allowances.never_allowed(units)
    ways = [least_first] if least_first == alone else [least_first, alone]
    return [
        [replace(found, is_covered=True) if names else found for found, names in zip(some, way, strict=True)]
        for way in ways
    ]


def _cheapest(case: Case, lowest: Attempt) -> Comparison:
    """Return the cheapest attempt in which only those go who do in another one."""
    key = case.needs.unit.nodes[0].required
    found = None if key is None else cheapest_domain(case, lowest.gone, key)
    if found is not None:
        return replace(found, best=_confirmed(case, found.best))
    attempts = [narrowed(case, lowest.gone) or lowest]
    if any(found.is_covered for found in lowest.gone) and not case.trials.tired():
        # The order of nodes is an estimate; where budgets are violated it is worth to look twice.
        attempts.append(lowest)
    best = min((settled(case, attempt) for attempt in attempts), key=lambda attempt: case.cost(attempt.gone))
    return Comparison(best, len(attempts))


def _lowest(case: Case, some: Sequence[PotentialVictim]) -> list[Attempt]:
    """Return the attempts in which all go up to the lowest level that is enough.

    That is the lowest priority of those whom no budget covers. Where not even all of them are enough, it is the lowest
    of the others; what is the lowest of the former then is another attempt, since it may take more of the latter.
    """
    free = sorted({found.unit.priority for found in some if not found.is_covered})
    covered = sorted({found.unit.priority for found in some if found.is_covered})
    found = _up_to(case, some, [(priority, NOBODY) for priority in free])
    if found is not None:
        return [found]
    most = free[-1] if free else NOBODY
    found = _up_to(case, some, [(most, priority) for priority in covered])
    assert found is not None  # noqa: S101 - the last level is everybody, and that is enough
    least = max(one.unit.priority for one in found.gone if one.is_covered)
    above = [(priority, least) for priority in (least, *free) if least <= priority < most]
    lower = _up_to(case, some, above)
    return [found] if lower is None else [found, lower]


def _up_to(case: Case, some: Sequence[PotentialVictim], levels: Sequence[tuple[int, int]]) -> Attempt | None:
    """Return the attempt for the first of some levels at which the goal is reached; each includes those before it.

    A level is a priority for those whom no budget covers, and one for the others.
    """

    def attempt(number: int) -> Attempt | None:
        gone = [found for found in some if found.unit.priority <= levels[number - 1][found.is_covered]]
        seats = case.trials.seats(gone)
        return Attempt(gone, seats) if case.reaches(seats) else None

    return smallest(attempt, 1, len(levels), tired=case.trials.tired)


def _confirmed(case: Case, attempt: Attempt) -> Attempt:
    """Return the attempt in a domain, reprieved, as the search makes it when it is free to choose another one.

    Should it then choose one that holds fewer, which a unit's pods elsewhere may have opened, the domain stands.
    """
    seats = case.trials.seats(attempt.gone)
    return settled(case, Attempt(attempt.gone, seats)) if case.reaches(seats) else reprieved(case, attempt)
