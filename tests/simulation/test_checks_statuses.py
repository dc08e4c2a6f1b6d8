"""The rules about what our processes write: each with a history that breaks it and one that does not."""

import pytest

from cpg_api.scheduling.names import FINALIZER
from cpg_simulation.checks.history import COMPOSITES, POD_GROUPS, History

OWN = "Each program writes its own fields"
PLACED = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "observedGeneration": 2}
HEALTHY = {"type": "Healthy", "status": "True", "reason": "MinimumMet", "observedGeneration": 2}


def group() -> History:
    """Return a history with a group of generation 3."""
    history = History()
    history.group("gang")
    history.meta(POD_GROUPS, "gang", "user", generation=3)
    return history


@pytest.mark.parametrize(
    ("user", "conditions", "broken"),
    [
        ("scheduler-0", [PLACED], False),
        ("operator-0", [PLACED, HEALTHY], False),
        ("scheduler-0", [HEALTHY], True),
        ("operator-0", [{"type": "DisruptionTarget", "status": "True"}], True),
    ],
)
def test_each_program_has_its_conditions(user: str, conditions: list[object], broken: bool) -> None:  # noqa: FBT001
    """The scheduler writes no health, the operator marks no victims."""
    history = group()
    history.status(POD_GROUPS, "gang", user, conditions=conditions)
    assert history.broken() == ([OWN] if broken else [])


def test_the_other_parts_have_one_program_as_well() -> None:
    """The operator writes finalizers and no pods, the scheduler pods and no finalizers; users may write anything."""
    for user, broken in (("operator-0", []), ("scheduler-0", [OWN]), ("user", [])):
        history = group()
        history.meta(POD_GROUPS, "gang", user, finalizers=[FINALIZER])
        assert history.broken() == broken
    for user, broken in (("operator-0", [OWN]), ("scheduler-0", []), ("user", [])):
        history = group()
        history.pod("a")
        history.status("pods", "a", user, nominatedNodeName="n")
        assert history.broken() == broken
    history = group()
    history.put("secrets", {"metadata": {"namespace": "team", "name": "token"}}, "operator-0")
    assert history.broken() == [OWN]


def test_an_apply_has_the_manager_of_its_part() -> None:
    """The health of a group is applied by the manager that owns it."""
    for manager, broken in (("cpg-operator", []), ("kube-cpg", ["Each part of a status has one field manager"])):
        history = group()
        history.status(POD_GROUPS, "gang", "operator-0", manager, verb="apply", conditions=[HEALTHY])
        assert history.broken() == broken


@pytest.mark.parametrize(("status", "user"), [("True", "scheduler-0"), ("False", "scheduler-0"), ("False", "user")])
def test_a_group_that_was_placed_stays_so(status: str, user: str) -> None:
    """The condition is final for our processes; users may erase what they like."""
    history = group()
    history.status(POD_GROUPS, "gang", "scheduler-0", conditions=[PLACED])
    history.status(POD_GROUPS, "gang", user, conditions=[{**PLACED, "status": status, "message": "again"}])
    is_broken = status == "False" and user != "user"
    assert history.broken() == (["Final conditions are final"] if is_broken else [])


@pytest.mark.parametrize(
    ("generation", "is_shown", "broken"), [(1, True, True), (1, False, False), (3, True, False), (4, True, True)]
)
def test_conditions_do_not_go_back(generation: int, is_shown: bool, broken: bool) -> None:  # noqa: FBT001
    """A condition about an older generation may replace one that its writer has not been shown."""
    history = group()
    history.checks.received("operator-0", POD_GROUPS, history.revision, -5.0)
    history.status(POD_GROUPS, "gang", "operator-0", conditions=[HEALTHY])
    if is_shown:
        history.checks.received("operator-0", POD_GROUPS, history.revision, -4.0)
    history.status(POD_GROUPS, "gang", "operator-0", conditions=[{**HEALTHY, "observedGeneration": generation}])
    assert history.broken() == (["Conditions are about the present"] if broken else [])


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_condition_may_land_on_a_new_group_of_the_same_name(is_shown: bool) -> None:  # noqa: FBT001 - a parameter
    """It is about a generation of the group before, and is corrected. A writer that knows the new one has no excuse."""
    history = group()
    history.checks.received("operator-0", POD_GROUPS, history.revision, -5.0)
    history.remove(POD_GROUPS, "gang")
    history.group("gang")
    history.status(POD_GROUPS, "gang", "user", conditions=[{**HEALTHY, "observedGeneration": 1}])
    if is_shown:
        history.checks.received("operator-0", POD_GROUPS, history.revision, -4.0)
    history.status(POD_GROUPS, "gang", "operator-0", conditions=[{**HEALTHY, "observedGeneration": 2}])
    assert history.broken() == (["Conditions are about the present"] if is_shown else [])
    history.checks.received("operator-0", POD_GROUPS, history.revision, -3.0)
    history.status(POD_GROUPS, "gang", "operator-0", conditions=[{**HEALTHY, "observedGeneration": 1}])
    assert len(history.broken()) == is_shown


@pytest.mark.parametrize(("seconds", "broken"), [(60.0, False), (61.0, True)])
def test_a_restore_takes_back_what_a_process_knew_for_a_minute(seconds: float, broken: bool) -> None:  # noqa: FBT001
    """A process that ran before may repeat a write about a generation that is gone; one that starts later may not."""
    for restarted in (False, True):
        history = group()
        history.checks.received("operator-0", POD_GROUPS, history.revision, 0.0)
        history.status(POD_GROUPS, "gang", "operator-0", conditions=[HEALTHY])
        history.checks.restored((), history.now)
        if restarted:
            history.checks.ended("operator-0", history.now)
        history.now = seconds
        history.lease("operator-0")
        history.status(POD_GROUPS, "gang", "operator-0", conditions=[{**HEALTHY, "observedGeneration": 4}])
        assert history.broken() == (["Conditions are about the present"] if broken or restarted else [])


PROTECTION = "Groups outlive what needs them"


def protected() -> History:
    """Return a history with a protected group and its child."""
    history = History()
    history.composite("root")
    history.group("gang", parent="root")
    for resource, name in ((COMPOSITES, "root"), (POD_GROUPS, "gang")):
        history.meta(resource, name, "operator-0", finalizers=[FINALIZER])
        history.delete_group(resource, name)
    return history


def test_groups_lose_their_finalizers_from_the_leaves_up() -> None:
    """A root that has a child keeps its finalizer; the child may lose it, and then the root."""
    history = protected()
    history.meta(COMPOSITES, "root", "operator-0", finalizers=[])
    assert history.broken() == [PROTECTION]
    history = protected()
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[])
    history.remove(POD_GROUPS, "gang")
    history.meta(COMPOSITES, "root", "operator-0", finalizers=[])
    assert history.broken() == []


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_a_pod_keeps_its_group_until_it_has_ended(phase: str) -> None:
    """Pending pods count like running ones."""
    history = protected()
    history.pod("a", "gang")
    history.status("pods", "a", "kubelet", phase=phase)
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[])
    assert history.broken() == ([PROTECTION] if phase in {"Pending", "Running"} else [])


def test_a_pod_that_has_just_come_may_be_unknown() -> None:
    """The operator has to be shown a pod before it can keep its group for it."""
    history = protected()
    history.checks.received("operator-0", "pods", history.revision, -5.0)
    history.pod("a", "gang")
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[])
    assert history.broken() == []


def test_a_restore_may_bring_back_what_needs_a_group() -> None:
    """The operator may not know yet that a pod is there again; once it has started anew it does."""
    for restarted, broken in ((False, []), (True, [PROTECTION])):
        history = protected()
        history.checks.received("operator-0", "pods", history.revision, 0.0)
        history.checks.restored((), history.now)
        if restarted:
            history.checks.ended("operator-0", history.now)
        history.pod("a", "gang")
        history.lease("operator-0")
        history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[])
        assert history.broken() == broken


def test_a_living_group_keeps_its_finalizer() -> None:
    """The operator removes it from deleted groups alone; users may remove it at any time."""
    for user, broken in (("operator-0", [PROTECTION]), ("user", [])):
        history = History()
        history.group("gang")
        history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[FINALIZER])
        history.meta(POD_GROUPS, "gang", user, finalizers=[])
        assert history.broken() == broken
