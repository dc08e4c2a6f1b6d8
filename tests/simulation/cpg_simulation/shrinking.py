"""Shortens a night that breaks a promise, to as few faults and actions as still break the same one."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from cpg_simulation.nights.plan import Night, Submit
from cpg_simulation.outcome import Outcome

T = TypeVar("T")
Attempt = Callable[[list[Night]], "Iterator[tuple[Night, Outcome]]"]
"""Plays some nights, and yields each with its outcome, the first one first."""


def shrink(night: Night, rule: str, attempt: Attempt) -> Night:
    """Return the shortest night that was found to break the rule."""
    while True:
        shorter = _first_that_breaks(_shorter(night), rule, attempt)
        if shorter is None:
            return night
        night = shorter


def _first_that_breaks(nights: Iterator[Night], rule: str, attempt: Attempt) -> Night | None:
    for night, outcome in attempt(list(nights)):
        if any(broken.rule == rule for broken in outcome.broken):
            return night
    return None


def _shorter(night: Night) -> Iterator[Night]:
    """Yield nights that lack a part, the largest parts first."""
    for faults in _without_parts(night.faults):
        yield replace(night, faults=faults)
    for actions in _without_parts(night.actions):
        yield replace(night, actions=actions)
    for place, action in enumerate(night.actions):
        if isinstance(action, Submit) and action.shuffled:
            yield replace(night, actions=_replaced(night.actions, place, replace(action, shuffled=False)))
    for place, fault in enumerate(night.faults):
        if fault.seconds > 0.5:
            yield replace(
                night, faults=_replaced(night.faults, place, replace(fault, seconds=round(fault.seconds / 2, 1)))
            )
    if len(night.nodes) > 1:
        for nodes in _without_parts(night.nodes):
            names = {node.name for node in nodes}
            if nodes and all(not fault.target.startswith("node-") or fault.target in names for fault in night.faults):
                yield replace(night, nodes=nodes)


def _without_parts(found: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield a sequence without its halves, quarters, and so on, down to single elements."""
    size = len(found)
    while size:
        for begin in range(0, len(found), size):
            yield found[:begin] + found[begin + size :]
        size //= 2


def _replaced(found: Sequence[T], place: int, new: T) -> tuple[T, ...]:
    return (*found[:place], new, *found[place + 1 :])
