"""Messages about pods that are not bound to the node that they were given."""

import pytest

from cpg_scheduler.binding.batch import BindInDoubt, BindProblem, BindRefused, PreBindFailed, PreBindPending
from cpg_scheduler.status.messages.binding import bind_problem_text


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (
            PreBindFailed("volumes", "no volume for it"),
            ("Unschedulable", "volumes: no volume for it", "no volume for it"),
        ),
        (
            PreBindPending("volumes", ("claim a", "claim b", "claim c")),
            ("WaitingForVolumes", "waiting for claim a and 2 more to be bound", ""),
        ),
        (
            PreBindPending("devices", ("claim a",)),
            ("WaitingForDevices", "waiting for claim a to be ready", ""),
        ),
        (
            BindRefused("default/p", 1, "n1", "forbidden"),
            ("SchedulerError", "Pod default/p (and 1 more) cannot be bound to node n1: forbidden", "forbidden"),
        ),
        (
            BindInDoubt("n1", "timeout"),
            ("BindInDoubt", "the outcome of the bind to node n1 is unknown: timeout", "timeout"),
        ),
    ],
)
def test_each_problem_of_a_bind_has_a_reason_a_message_and_a_cause(
    problem: BindProblem, expected: tuple[str, str, str]
) -> None:
    """Without a cause the message is the cause."""
    assert bind_problem_text(problem) == expected
