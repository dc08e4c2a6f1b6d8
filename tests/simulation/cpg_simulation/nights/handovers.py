"""Adds to some nights what leaders meet rarely: a stop that is shorter than the lease, or an end between evictions."""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from cpg_simulation.nights.plan import LEADER, Action, Fault, Night, Submit

SHARE_OF_STOPS, SHARE_OF_ENDS = 0.06, 0.12
SECONDS_OF_STOP = (3.3, 5.0)
"""Long enough to make the stores old, and short enough to keep the lease."""
SECONDS_OF_END = 15.0
"""Until after the next leader has taken over."""
SECONDS_OF_LAG = 20.0
"""So late is a watch at most that the next leader may not have been shown the last binds of the one before."""


def with_handover(night: Night) -> Night:
    """Return a night with one of both, if its seed says so; all else remains as it is."""
    random = Random(f"handovers {night.seed}")  # noqa: S311 - a plan, not a secret
    chance = random.random()
    if chance < SHARE_OF_STOPS:
        return _with_faults(night, _stop(random, random.choice(night.actions).at))
    if chance < SHARE_OF_STOPS + SHARE_OF_ENDS:
        night = replace(night, actions=tuple(map(_of_units, night.actions)))
        preempting = [action.at for action in night.actions if _may_preempt(action)] or [night.actions[-1].at]
        return _with_faults(night, _end_between_evictions(random, random.choice(preempting)))
    return night


def _with_faults(night: Night, faults: Iterator[Fault]) -> Night:
    """Return a night with further faults. They come last, because faults draw random numbers by their place."""
    found = tuple(faults)
    return replace(night, faults=(*night.faults, *found), seconds=max(night.seconds, *(fault.end for fault in found)))


def _stop(random: Random, at: float) -> Iterator[Fault]:
    """Yield a stop of the leader while users act, after which some of its watches show that bit by bit."""
    seconds = random.uniform(*SECONDS_OF_STOP)
    yield Fault(
        kind=random.choice(("stop", "suspend")), at=max(0.5, at - random.random()), seconds=seconds, target=LEADER
    )
    yield Fault(kind="lag-watches", at=at, seconds=seconds + 5.0, target=LEADER, amount=random.choice((0.5, 2.0, 5.0)))


def _end_between_evictions(random: Random, at: float) -> Iterator[Fault]:
    """Yield the end of the leader, and of controllers beside it, when a part of the deletions of a unit has arrived.

    New pods would show the next leader that others are gone.
    """
    both = Fault(kind="kill", at=at, seconds=SECONDS_OF_END, target=LEADER, trigger="deletions")
    yield replace(both, kind="lose-request", requests="deletions", share=0.5)
    yield replace(both, delay=random.choice((0.003, 0.02, 0.2)))
    yield replace(both, kind="stop-controllers", target="")
    if random.random() < 0.5:
        for standby in ("scheduler-0", "scheduler-1"):
            yield replace(both, kind="lag-watches", target=standby, amount=SECONDS_OF_LAG)


def _may_preempt(action: Action) -> bool:
    """Return whether a tree is submitted that has a higher priority than others, and preempts."""
    return isinstance(action, Submit) and action.tree.priority == "high" and not action.tree.never_preempts


def _of_units(action: Action) -> Action:
    """Return a submission of a tree that is evicted as a whole."""
    if not isinstance(action, Submit):
        return action
    groups = tuple(replace(group, is_unit=True, gang=group.pods or group.gang or 1) for group in action.tree.groups)
    return replace(action, tree=replace(action.tree, groups=groups))
