"""Shortens a night that breaks a promise, to as few faults and actions as still break the same one."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from cpg_simulation.nights.plan import Fault, Night, Submit
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
    yield from _smaller_clusters(night)
    for place, action in enumerate(night.actions):
        for simpler in _simpler_submissions(action) if isinstance(action, Submit) else ():
            yield replace(night, actions=_replaced(night.actions, place, simpler))
    for place, fault in enumerate(night.faults):
        for milder in _simpler_faults(fault):
            yield replace(night, faults=_replaced(night.faults, place, milder))


def _smaller_clusters(night: Night) -> Iterator[Night]:
    """Yield nights with fewer programs and nodes."""
    if night.operators > 1 and all(fault.target != f"operator-{night.operators - 1}" for fault in night.faults):
        yield replace(night, operators=night.operators - 1)
    if night.competitor:
        yield replace(night, competitor=False)
    if len(night.nodes) > 1:
        for nodes in _without_parts(night.nodes):
            names = {node.name for node in nodes}
            if nodes and all(not fault.target.startswith("node-") or fault.target in names for fault in night.faults):
                yield replace(night, nodes=nodes)


def _simpler_submissions(action: Submit) -> Iterator[Submit]:
    """Yield a submission in the usual order, and those of trees that lack something."""
    tree = action.tree
    if action.shuffled:
        yield replace(action, shuffled=False)
    for traits in _without_parts(tree.traits):
        yield replace(action, tree=replace(tree, traits=traits))
    for plain in (replace(tree, budget=None), replace(tree, never_preempts=False)):
        if plain != tree:
            yield replace(action, tree=plain)


def _simpler_faults(fault: Fault) -> Iterator[Fault]:
    """Yield a fault that waits for no request, and one that is shorter."""
    if fault.trigger:
        yield replace(fault, trigger="", delay=0.0)
    if fault.seconds > 0.5:
        yield replace(fault, seconds=round(fault.seconds / 2, 1))


def _without_parts(found: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield a sequence without its halves, quarters, and so on, down to single elements."""
    size = len(found)
    while size:
        for begin in range(0, len(found), size):
            yield found[:begin] + found[begin + size :]
        size //= 2


def _replaced(found: Sequence[T], place: int, new: T) -> tuple[T, ...]:
    return (*found[:place], new, *found[place + 1 :])
