"""Why a pod that was given a node is not bound to it, or not yet."""

from typing import NamedTuple

from cpg_scheduler.binding.batch import BindInDoubt, BindProblem, BindRefused, PreBindFailed, PreBindPending
from cpg_scheduler.status.reasons import (
    PRE_BIND_REASONS,
    REASON_BIND_IN_DOUBT,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
)

AWAITED_STATES = {"volumes": "bound", "devices": "ready"}
"""What the objects of a PreBind plugin are to become, by its name."""


class BindProblemText(NamedTuple):
    """Reason, message and cause of a condition."""

    reason: str
    message: str
    cause: str


def bind_problem_text(problem: BindProblem) -> BindProblemText:
    """Return why pods are not bound, in words."""
    match problem:
        case PreBindFailed():
            return BindProblemText(REASON_UNSCHEDULABLE, f"{problem.plugin}: {problem.problem}", problem.problem)
        case PreBindPending(objects=objects):
            more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
            message = f"waiting for {objects[0]}{more} to be {AWAITED_STATES[problem.plugin]}"
            return BindProblemText(PRE_BIND_REASONS[problem.plugin], message, "")
        case BindRefused():
            more = f" (and {problem.more} more)" if problem.more else ""
            message = f"Pod {problem.pod}{more} cannot be bound to node {problem.node}: {problem.answer}"
            return BindProblemText(REASON_SCHEDULER_ERROR, message, problem.answer)
        case BindInDoubt():
            message = f"the outcome of the bind to node {problem.node} is unknown: {problem.error}"
            return BindProblemText(REASON_BIND_IN_DOUBT, message, problem.error)
