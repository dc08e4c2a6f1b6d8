"""The rules about groups at the end of a night: each with a state that breaks it and one that does not."""

from collections.abc import Sequence
from typing import Any

import pytest

from cpg_api.scheduling.names import FINALIZER, GROUP, INSTANTIATE, INSTANTIATED
from cpg_simulation.checks.history import COMPOSITES, POD_GROUPS, History

COUNTS, HEALTH, FINALIZERS = "Counts and domains are right", "Health is right", "Finalizers are there and end"
PLACED = "Groups say whether they were placed"


def healthy(reason: str) -> dict[str, Any]:
    """Return the condition Healthy."""
    return {"type": "Healthy", "status": "True" if reason == "MinimumMet" else "False", "reason": reason}


def scheduled(kind: str = "PodGroup", status: str = "True", reason: str = "Scheduled") -> dict[str, Any]:
    """Return the condition InitiallyScheduled."""
    return {"type": f"{kind}InitiallyScheduled", "status": status, "reason": reason}


PARTIAL = {"type": "Partial", "status": "True", "reason": "BelowMinimum"}


def tree(phases: Sequence[str] = ("Running", "Running"), minimum: int = 2) -> History:
    """Return a history with a tree of one gang, with a pod on a node in each of these phases, and a right status."""
    history = History()
    history.node("n")
    history.composite("root", 1)
    history.group("gang", minimum, parent="root")
    for number, phase in enumerate(phases):
        history.pod(f"p{number}", "gang", node="n")
        history.status("pods", f"p{number}", "kubelet", phase=phase)
    for resource, name in ((COMPOSITES, "root"), (POD_GROUPS, "gang")):
        history.meta(resource, name, "operator-0", finalizers=[FINALIZER])
    report(history)
    return history


def report(
    history: History,
    running: int = 2,
    *,
    scheduled_pods: int = 2,
    desired: int = 2,
    ready: int = 1,
    reason: str = "MinimumMet",
    extra: Sequence[dict[str, Any]] = (),
) -> None:
    """Write the status of both groups."""
    pods = {"desired": desired, "scheduled": scheduled_pods, "running": running}
    leaf, root = [healthy(reason), scheduled()], [healthy(reason), scheduled("CompositePodGroup"), *extra]
    history.status(POD_GROUPS, "gang", "operator-0", pods=pods, conditions=leaf)
    groups = {"desired": 1, "ready": ready}
    history.status(COMPOSITES, "root", "operator-0", pods=pods, groups=groups, conditions=root)


def test_a_tree_that_runs_and_says_so_is_in_order() -> None:
    """All counts and conditions are right."""
    assert tree().settled() == []


@pytest.mark.parametrize("wrong", [{"running": 1}, {"scheduled_pods": 1}, {"desired": 3}, {"ready": 0}])
def test_wrong_counts_are_found(wrong: dict[str, Any]) -> None:
    """Each count is compared, of pods and of children."""
    history = tree()
    report(history, **wrong)
    assert history.settled() == [COUNTS]


@pytest.mark.parametrize(
    ("says", "nodes", "broken"), [("a", "n", []), ("b", "n", [COUNTS]), (None, "n", [COUNTS]), (None, "nm", [])]
)
def test_the_domain_is_where_the_pods_are(says: str | None, nodes: str, broken: list[str]) -> None:
    """Pods in one zone have it as their domain; in several zones, as after a change of labels, they have none."""
    history = History()
    history.node("n", labels={"zone": "a"})
    history.node("m", labels={"zone": "b"})
    history.group("gang", 1, schedulingConstraints={"topology": [{"key": "zone"}]})
    for node in nodes:
        history.pod(f"on-{node}", "gang", node=node)
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[FINALIZER])
    counts = dict.fromkeys(("desired", "scheduled", "running"), len(nodes))
    domain: dict[str, Any] = {} if says is None else {"domain": {"key": "zone", "value": says}}
    conditions = [healthy("MinimumMet"), scheduled()]
    history.status(POD_GROUPS, "gang", "operator-0", pods=counts, conditions=conditions, **domain)
    assert history.settled() == broken


def test_a_pod_that_fails_or_ends_does_not_count() -> None:
    """A failed pod, and one that is being deleted, change the counts and the health."""
    for ends in ("Failed", "deleted"):
        history = tree()
        if ends == "Failed":
            history.status("pods", "p0", "kubelet", phase="Failed")
        else:
            history.evict("p0", "user")
        assert history.settled() == [COUNTS, HEALTH]
        history = tree()
        history.status("pods", "p0", "kubelet", phase="Failed")
        report(history, 1, scheduled_pods=1, desired=1, ready=0, reason="Partial", extra=[PARTIAL])
        assert history.settled() == []


@pytest.mark.parametrize(
    ("phases", "minimum", "reason", "running"),
    [
        (("Succeeded", "Running"), 2, "MinimumMet", 2),
        (("Pending", "Running"), 2, "Starting", 1),
        (("Running",), 2, "Partial", 1),
        (("Failed",), 2, "Pending", 0),
    ],
)
def test_the_reason_of_the_health_follows_from_the_pods(
    phases: Sequence[str], minimum: int, reason: str, running: int
) -> None:
    """Each reason is right in one state, and no other is."""
    for says in ("MinimumMet", "Starting", "Partial", "Pending"):
        history = tree(phases, minimum)
        placed = sum(phase != "Failed" for phase in phases)
        extra = [PARTIAL] if reason == "Partial" else []
        ready = 1 if reason == "MinimumMet" else 0
        report(history, running, scheduled_pods=placed, desired=placed, ready=ready, reason=says, extra=extra)
        assert history.settled() == ([] if says == reason else [HEALTH])


def test_half_a_gang_is_marked() -> None:
    """The root of half a gang says so; a complete tree does not."""
    history = tree(("Running",))
    report(history, 1, scheduled_pods=1, desired=1, ready=0, reason="Partial")
    assert history.settled() == [HEALTH]
    history = tree()
    report(history, extra=[PARTIAL])
    assert history.settled() == [HEALTH]


@pytest.mark.parametrize(
    ("says", "broken", "broken_if_invalid"),
    [
        ([], [PLACED], [PLACED]),
        ([scheduled(status="False", reason="Unschedulable")], [PLACED], [PLACED]),
        ([scheduled(status="False", reason="Invalid")], [PLACED], []),
        ([scheduled()], [], []),
    ],
)
def test_a_group_with_its_minimum_says_that_it_was_placed(
    says: list[dict[str, Any]], broken: list[str], broken_if_invalid: list[str]
) -> None:
    """In an invalid tree it may say what is wrong instead."""
    for parent, expected in (("", broken), ("root", broken_if_invalid)):
        history = History()
        history.node("n")
        history.group("gang", parent=parent)
        history.pod("p", "gang", node="n")
        history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[FINALIZER])
        pods = dict.fromkeys(("desired", "scheduled", "running"), 1)
        history.status(POD_GROUPS, "gang", "operator-0", pods=pods, conditions=[healthy("MinimumMet"), *says])
        if parent:  # a child has to name a template of a Workload
            history.composite(parent)
            history.meta(COMPOSITES, parent, "operator-0", finalizers=[FINALIZER])
            conditions = [healthy("MinimumMet"), scheduled("CompositePodGroup", "False", "Invalid")]
            groups = {"desired": 1, "ready": 1}
            history.status(COMPOSITES, parent, "operator-0", pods=pods, groups=groups, conditions=conditions)
        assert history.settled() == expected


@pytest.mark.parametrize(("reason", "broken"), [("WaitingForGroup", []), ("Unschedulable", [PLACED])])
def test_a_group_that_waits_says_why(reason: str, broken: list[str]) -> None:
    """A gang of two with one pod waits for the other one."""
    history = History()
    history.node("n")
    history.group("gang", 2)
    history.pod("p", "gang")
    history.wait_for("p", "WaitingForGroup")
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[FINALIZER])
    history.status(
        POD_GROUPS,
        "gang",
        "operator-0",
        pods={"desired": 1, "scheduled": 0, "running": 0},
        conditions=[healthy("Pending"), scheduled(status="False", reason=reason)],
    )
    assert history.settled() == broken


@pytest.mark.parametrize(
    ("pods", "reason", "broken"),
    [
        (0, "WaitingForGroup", []),
        (0, "Unschedulable", [PLACED]),
        (1, "WaitingForGroup", []),
        (1, "Unschedulable", [PLACED]),
    ],
)
def test_a_group_whose_pending_pods_are_gone_says_so(pods: int, reason: str, broken: list[str]) -> None:
    """No attempt follows, so its status is resynced: nothing lacks room any more."""
    history = History()
    history.node("n")
    history.group("gang", 2)
    for number in range(pods):
        history.pod(f"p{number}", "gang", node="n")
    history.meta(POD_GROUPS, "gang", "operator-0", finalizers=[FINALIZER])
    counts = dict.fromkeys(("desired", "scheduled", "running"), pods)
    conditions = [healthy("Partial" if pods else "Pending"), scheduled(status="False", reason=reason)]
    history.status(
        POD_GROUPS, "gang", "operator-0", pods=counts, conditions=[*conditions, *([PARTIAL] if pods else [])]
    )
    assert history.settled() == broken


def test_a_complete_group_is_no_victim() -> None:
    """A group that has its minimum again takes back that it is evicted."""
    history = tree()
    found = history.get(POD_GROUPS, "gang")["status"]["conditions"]
    victim = {"type": "DisruptionTarget", "status": "True", "message": "cpg-scheduler: ..."}
    history.status(POD_GROUPS, "gang", "scheduler-0", conditions=[*found, victim])
    assert history.settled() == ["No complete group calls itself a victim"]


def test_groups_have_a_finalizer_until_they_end() -> None:
    """A living group has it; a deleted one has it while something needs it."""
    history = tree()
    history.meta(POD_GROUPS, "gang", "user", finalizers=[])
    assert history.settled() == [FINALIZERS]
    history = tree()
    history.delete_group(POD_GROUPS, "gang")
    assert history.settled() == []
    for name in ("p0", "p1"):
        history.remove("pods", name)
    assert FINALIZERS in history.settled()


@pytest.mark.parametrize(("groups", "broken"), [(3, False), (2, True), (4, True)])
def test_workloads_have_their_groups(groups: int, broken: bool) -> None:  # noqa: FBT001 - a parameter
    """A template with three replicas makes three groups; a Workload that says what is in the way may have others."""
    for says in (None, "Conflict", INSTANTIATED):
        history = History()
        spec = {"podGroupTemplates": [{"name": "t", "replicas": 3, "schedulingPolicy": {"basic": {}}}]}
        meta: dict[str, Any] = {"namespace": "team", "name": "w", "annotations": {INSTANTIATE: "true"}}
        if says == INSTANTIATED:  # the built-in API has no status
            meta["annotations"] |= {INSTANTIATED: "False: Conflict: in the way"}
        said = [{"type": "Instantiated", "status": "False", "reason": says}] if says == "Conflict" else []
        history.put(f"workloads.{GROUP}", {"metadata": meta, "spec": spec, "status": {"conditions": said}})
        owner = {"kind": "Workload", "uid": history.get(f"workloads.{GROUP}", "w")["metadata"]["uid"]}
        for number in range(groups):
            history.group(f"w-t-{number}", workloadRef={"workloadName": "w", "templateName": "t"})
            history.meta(POD_GROUPS, f"w-t-{number}", "operator-0", ownerReferences=[owner])
        is_found = "Workloads have their groups" in history.settled()
        assert is_found is (broken and says is None)


def test_one_living_process_leads() -> None:
    """A lease without a holder, with a dead one and without renewals is found; a free one of no program is not."""
    rule = "One living process leads"
    assert History().settled() == []
    history = History()
    history.lease("scheduler-0", holder="")
    assert history.settled() == [rule]
    assert History().settled(living=["scheduler-1", "operator-0"]) == [rule]
    history = History()
    history.now = 30.0
    assert history.settled() == [rule]
    assert History().settled(living=["operator-0"]) == []
