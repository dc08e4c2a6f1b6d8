"""The rules about evictions: each with a history that breaks it and one that does not."""

from typing import Any

import pytest

from cpg_simulation.checks.evictions import WHOLE_UNIT_SECONDS
from cpg_simulation.checks.history import HandRequest, History

WHOLE = "Units are evicted as a whole"


def preemption(priority: int = 100, **preemptor: Any) -> History:
    """Return a history with a victim of priority 10 and a preemptor that waits."""
    history = History()
    history.node("n", cpu="1")
    history.pod("victim", node="n", priority=10)
    history.pod("high", priority=priority, **preemptor)
    return history


@pytest.mark.parametrize(("priority", "broken"), [(11, False), (10, True), (5, True)])
def test_victims_have_lower_priority(priority: int, broken: bool) -> None:  # noqa: FBT001 - a parameter
    """A pod is evicted for a pod of higher priority alone."""
    history = preemption(priority)
    history.mark("victim", "high")
    history.evict("victim")
    assert history.broken() == (["Only lower priorities are evicted"] if broken else [])


def test_the_priority_of_a_group_is_that_of_its_class() -> None:
    """The priority of a preemptor that names a class is that of the class."""
    history = preemption()
    history.put("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "tiny"}, "value": 1})
    history.group("late", priorityClassName="tiny")
    history.mark("victim", "late", kind="PodGroup")
    assert history.broken() == ["Only lower priorities are evicted"]


@pytest.mark.parametrize("priority", [100, 5])
def test_the_priority_of_a_group_is_that_of_its_template(priority: int) -> None:
    """A Workload that arrives after its group decides it as well."""
    history = preemption()
    reference = {"workloadName": "late", "templateName": "late"}
    history.group("late", workloadRef=reference)
    template = {"name": "late", "schedulingPolicy": {"gang": {"minCount": 1}}, "priority": priority}
    meta = {"namespace": "team", "name": "late"}
    history.put("workloads.scheduling.cpg.dev", {"metadata": meta, "spec": {"podGroupTemplates": [template]}})
    history.mark("victim", "late", kind="PodGroup")
    assert history.broken() == ([] if priority == 100 else ["Only lower priorities are evicted"])


def test_victims_name_their_preemptor_first() -> None:
    """A pod that is deleted without a mark is no victim; others may delete pods as they like."""
    history = preemption()
    history.evict("victim", "user")
    assert history.broken() == []
    history = preemption()
    history.evict("victim")
    assert history.broken() == ["Victims are marked before they are deleted"]


def test_preemptors_with_the_policy_never_evict_nothing() -> None:
    """The policy of the pod counts, and that of the root of its tree."""
    history = preemption(preemptionPolicy="Never")
    history.mark("victim", "high")
    assert history.broken() == ["The policy Never is respected"]
    history = preemption()
    history.group("root", preemptionPolicy="Never", priority=100)
    history.mark("victim", "root", kind="PodGroup")
    assert history.broken() == ["The policy Never is respected"]


def test_a_member_with_the_policy_never_counts_once_it_was_shown() -> None:
    """A pod that has just joined the preemptor may be unknown."""
    for is_shown in (True, False):
        history = preemption()
        history.group("root", priority=100)
        history.checks.received("scheduler-0", "pods", history.revision, -5.0)
        history.pod("late", "root", preemptionPolicy="Never", priority=100)
        if is_shown:
            history.checks.received("scheduler-0", "pods", history.revision, -4.0)
        history.mark("victim", "root", kind="PodGroup")
        assert history.broken() == (["The policy Never is respected"] if is_shown else [])


def unit() -> History:
    """Return a history in which one of two pods of a unit was evicted."""
    history = History()
    history.node("n")
    history.composite("root", whole=True)
    history.group("gang", 2, parent="root", whole=True)
    history.pod("a", "gang", node="n", priority=1)
    history.pod("b", "gang", node="n", priority=1)
    history.pod("high", priority=100)
    history.mark("a", "high")
    history.mark("b", "high")
    history.evict("a")
    return history


def pass_time(history: History, seconds: float) -> None:
    """Let time pass."""
    history.now += seconds
    history.checks.advance(history.now)


def test_a_unit_in_part_is_found_in_time() -> None:
    """The second pod is evicted in time, or too late."""
    history = unit()
    pass_time(history, WHOLE_UNIT_SECONDS - 1)
    assert history.broken() == []
    pass_time(history, 2.0)
    assert history.broken() == [WHOLE]
    history = unit()
    history.evict("b")
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == []


def test_a_unit_that_the_scheduler_has_bound_itself_goes_whole() -> None:
    """What counts is what it had been shown when it evicted, not when it bound the pods."""
    history = History()
    history.node("n")
    history.group("gang", 2, whole=True)
    for name in "ab":
        history.pod(name, "gang", priority=1)
    history.pod("high", priority=100)
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, -5.0)
    history.bind("a", "n")
    history.bind("b", "n")
    history.checks.received("scheduler-0", "pods", history.revision, 1.0)
    history.now = 5.0
    history.mark("a", "high")
    history.evict("a")
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == [WHOLE]


def test_time_with_faults_does_not_count() -> None:
    """The time begins anew when a fault ends."""
    history = unit()
    history.checks.disturbed(49.7)  # plus and minus the seconds of a rule, it is another number
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == []
    pass_time(history, 50.0)
    assert history.broken() == [WHOLE]


@pytest.mark.parametrize(("name", "broken"), [("b", []), ("a", [WHOLE])])
def test_a_pod_may_stay_whose_eviction_is_refused(name: str, broken: list[str]) -> None:
    """Nothing else can be done; the refusal of another one is no excuse."""
    history = unit()
    history.checks.refused(HandRequest("DELETE", f"/api/v1/namespaces/team/pods/{name}", "scheduler-0"), 0.0)
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == broken


def test_pods_without_a_unit_are_evicted_alone() -> None:
    """With the disruption mode single each pod is its own unit."""
    history = History()
    history.node("n")
    history.group("gang", 1)
    history.pod("a", "gang", node="n", priority=1)
    history.pod("b", "gang", node="n", priority=1)
    history.pod("high", priority=100)
    history.mark("a", "high")
    history.evict("a")
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == []


def test_a_new_leader_completes_what_shows_that_it_was_begun() -> None:
    """After a change of the leader a unit below its minimum is completed; one that has its minimum may stay."""
    for minimum in (1, 2):
        history = unit()
        history.group("gang", minimum, parent="root", whole=True)
        history.lease("scheduler-0", holder="")
        history.lease("scheduler-1")
        pass_time(history, WHOLE_UNIT_SECONDS + 1)
        assert history.broken() == ([WHOLE] if minimum == 2 else [])


@pytest.mark.parametrize("is_replaced_before", [True, False])
def test_what_counts_is_the_minimum_when_the_next_leader_took_over(
    is_replaced_before: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A new pod that is bound afterwards completes the minimum, and hides what was to be completed."""
    history = unit()
    history.remove("pods", "a")
    if not is_replaced_before:
        history.lease("scheduler-1")
    history.pod("c", "gang", node="n", priority=1)
    if is_replaced_before:
        history.lease("scheduler-1")
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == ([] if is_replaced_before else [WHOLE])


def test_a_minimum_that_was_raised_later_was_complete() -> None:
    """The next leader has found a complete unit."""
    history = unit()
    history.group("gang", 1, parent="root", whole=True)
    history.pod("c", "gang", node="n", priority=1)
    history.lease("scheduler-1")
    history.group("gang", 3, parent="root", whole=True)
    pass_time(history, WHOLE_UNIT_SECONDS + 1)
    assert history.broken() == []
