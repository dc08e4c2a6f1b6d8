"""The rule about the identity of objects: writes to pods, and final conditions of groups."""

import pytest

from cpg_simulation.checks.history import POD_GROUPS, History

OTHER_OBJECT = "Writes hit what they are about"


@pytest.mark.parametrize("replaced", [True, False])
def test_a_bind_hits_no_later_pod_of_the_same_name(replaced: bool) -> None:  # noqa: FBT001 - a parameter
    """A user replaces the pod while the bind is under way."""
    history = pod_that_is_known()
    request = history.send_bind("a")
    if replaced:
        history.remove("pods", "a")
        history.pod("a")
    history.arrive(request, "a", "n")
    assert history.broken() == ([OTHER_OBJECT] if replaced else [])


@pytest.mark.parametrize("shown", [True, False])
def test_a_pod_is_evicted_only_by_a_scheduler_that_was_shown_it(shown: bool) -> None:  # noqa: FBT001
    """Until the watch shows the new pod, a decision can only be about the old one."""
    history = pod_that_is_known()
    history.pod("preemptor", priority=10)
    history.remove("pods", "a")
    history.pod("a", node="n")
    if shown:
        history.checks.received("scheduler-0", "pods", history.revision, history.now)
    history.mark("a", "preemptor")
    assert history.broken() == ([] if shown else [OTHER_OBJECT])


@pytest.mark.parametrize(
    ("status", "shown", "broken"), [("True", False, True), ("True", True, False), ("False", False, False)]
)
def test_no_new_group_says_that_an_earlier_one_was_placed(status: str, shown: bool, broken: bool) -> None:  # noqa: FBT001
    """Nothing takes back that a group was placed; any other condition is corrected."""
    history = History()
    history.group("gang")
    history.checks.received("scheduler-0", POD_GROUPS, history.revision, history.now)
    history.remove(POD_GROUPS, "gang")
    history.group("gang")
    if shown:
        history.checks.received("scheduler-0", POD_GROUPS, history.revision, history.now)
    condition = {"type": "PodGroupInitiallyScheduled", "status": status, "reason": "Scheduled"}
    history.status(POD_GROUPS, "gang", "scheduler-0", conditions=[condition])
    assert history.broken() == ([OTHER_OBJECT] if broken else [])


def pod_that_is_known() -> History:
    """Return a history with a pod that the scheduler has received."""
    history = History()
    history.node("n")
    history.pod("a")
    history.checks.received("scheduler-0", "pods", history.revision, history.now)
    return history
