"""The rule about PodDisruptionBudgets: histories in which a budget is violated in need, and without."""

from collections.abc import Callable
from typing import Any

import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_simulation.checks.history import HandRequest, History

RULE = "Budgets are violated only in need"
LATER = 60.0


def budget(history: History, group: str, allowed: int = 0) -> None:
    """Let a budget cover the pods of a group."""
    history.put(
        "poddisruptionbudgets.policy",
        {
            "metadata": {"namespace": "team", "name": group},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {POD_GROUP_LABEL: group}}},
            "status": {"disruptionsAllowed": allowed},
        },
    )


def beginning(allowed: int = 0, **preemptor: Any) -> History:
    """Return two full nodes: a pod with a budget on one, a pod without on the other, and a preemptor."""
    history = History()
    for name in ("n1", "n2"):
        history.node(name, cpu="1")
    history.group("covered")
    history.group("free", minimum=1)
    budget(history, "covered", allowed)
    history.pod("c", "covered", node="n1", priority=0)
    history.pod("f", "free", node="n2", priority=0)
    history.pod("high", priority=10, **preemptor)
    history.now = LATER
    history.lease("scheduler-0")
    return history


def test_a_budget_is_not_violated_where_another_pod_is_enough() -> None:
    """The other node would have become free without a violation."""
    history = beginning()
    history.mark("c", "high")
    assert RULE in history.broken()
    (found,) = history.checks.violations
    assert found.sentence.endswith("against PodDisruptionBudget team/covered, and other pods are enough")


def test_pods_without_a_budget_may_go() -> None:
    """So may those of which a budget allows an eviction."""
    history = beginning(allowed=1)
    history.mark("c", "high")
    history.mark("f", "high")
    assert history.broken() == []


def replaced(history: History, **fields: Any) -> None:
    """Put another pod in place of the free one, which the scheduler has not bound."""
    history.remove("pods", "f")
    history.pod("f", "free", node="n2", **fields)


def unseen(history: History) -> None:
    """Put another pod in place of the free one, and show neither change to the scheduler."""
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, 0.0)
    replaced(history, priority=0)


def nominated(history: History) -> None:
    """Nominate another pod to the node of the free one."""
    history.pod("other", priority=10)
    history.status("pods", "other", "scheduler-0", nominatedNodeName="n2")


NEEDS: dict[str, Callable[[History], None]] = {
    "cordoned": lambda history: history.node("n2", cpu="1", unschedulable=True),
    "important": lambda history: replaced(history, priority=10),
    "small": lambda history: history.node("n2", cpu="900m"),
    "unseen": unseen,
    "in a unit": lambda history: history.group("free", whole=True),
    "refused": lambda history: history.checks.refused(HandRequest("DELETE", "/api/v1/namespaces/team/pods/f"), LATER),
    "nominated": nominated,
    "in a fault": lambda history: history.checks.disturbed(LATER),
    "apart": lambda history: replaced(history, affinity={"podAntiAffinity": {}}, priority=0),
}


@pytest.mark.parametrize("need", NEEDS)
def test_a_budget_may_be_violated_in_need(need: str) -> None:
    """The other pod may not be evicted, is not enough, or was not surely known to be."""
    history = beginning()
    NEEDS[need](history)
    history.mark("c", "high")
    assert history.broken() == []


CLAIMS = [{"name": "gpu", "resourceClaimName": "gpu"}]


@pytest.mark.parametrize("fields", [{"cpu": "2"}, {"affinity": {"podAffinity": {}}}, {"resourceClaims": CLAIMS}])
def test_preemptors_that_need_more_than_room_are_not_judged(fields: dict[str, Any]) -> None:
    """A large pod finds none, and one with affinity or claims for devices may find it in one place alone."""
    history = beginning(**fields)
    history.mark("c", "high")
    assert history.broken() == []


def test_a_gang_counts_all_its_pods() -> None:
    """A gang that does not have all its pods yet may need more room; one that has them fits on the other node."""
    history = beginning()
    history.remove("pods", "high")
    history.group("gang", minimum=2)
    history.pod("high", "gang", cpu="500m", priority=10)
    history.mark("c", "gang", "PodGroup")
    assert RULE not in history.broken()
    history.pod("higher", "gang", cpu="500m", priority=10)
    history.status("pods", "c", "user", conditions=[])
    history.mark("c", "gang", "PodGroup")
    assert RULE in history.broken()
