"""What would let a unit be placed: changes that the engine has checked, the cheapest first.

A candidate is a change that its owner, or an administrator, can make. It is made in the cache, the engine decides, and
the change is undone. Only those that fit are shown, and only a few. Checks end with a time limit, so a large cluster
gets fewer answers and no late one.
"""

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from cpg_cli.analysis.assessment import Assessment
from cpg_cli.analysis.candidates.case import Case, Counterfactual, OutOfTimeError
from cpg_cli.analysis.candidates.groups import (
    missing_group,
    missing_members,
    smaller_minimum,
    wider_topology,
    without_topology,
)
from cpg_cli.analysis.candidates.nodes import more_nodes, uncordoned_nodes
from cpg_cli.analysis.candidates.pods import mended_pods, tolerated_taints, without_constraints, without_gates
from cpg_cli.analysis.candidates.priority import higher_priority
from cpg_cli.cluster.offline_scheduler import OfflineScheduler

MAX_SHOWN = 5
MAX_SECONDS = 1.5
CANDIDATES: tuple[Callable[[Case], Iterator[Counterfactual]], ...] = (
    without_gates,
    mended_pods,
    missing_members,
    missing_group,
    smaller_minimum,
    uncordoned_nodes,
    tolerated_taints,
    wider_topology,
    without_constraints,
    more_nodes,
    higher_priority,
    without_topology,
)
"""What can be changed, the cheapest first."""


class Counterfactuals(Struct, frozen=True):
    """The changes that fit, and how many kinds of changes there was no time to check."""

    found: tuple[Counterfactual, ...] = ()
    unchecked: int = 0


def counterfactuals(
    scheduler: OfflineScheduler,
    assessment: Assessment,
    *,
    seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Counterfactuals:
    """Return the changes after which a unit would be placed."""
    case = Case(scheduler, assessment, deadline=clock() + seconds, clock=clock)
    found: list[Counterfactual] = []
    for number, candidates in enumerate(CANDIDATES):
        try:
            for one in candidates(case):
                found.append(one)
                if len(found) == MAX_SHOWN:
                    return Counterfactuals(tuple(found))
        except OutOfTimeError:
            return Counterfactuals(tuple(found), len(CANDIDATES) - number)
    return Counterfactuals(tuple(found))
