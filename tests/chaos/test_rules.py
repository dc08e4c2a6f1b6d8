"""Every rule of the chaos run is broken by a state or a change that breaks it, and by no other."""

import time
from pathlib import Path
from typing import Any

import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_chaos.audit import AuditLog, LeaseCheck
from cpg_chaos.history import History
from cpg_chaos.invariants import Invariants
from cpg_chaos.programs import check_end, defects
from cpg_chaos.record import Fault, RunRecord
from cpg_chaos.settled import ClusterState, problems
from cpg_chaos.users import RACK, rejected_pods
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.resources import CPG_POD_GROUPS, PODS
from cpg_lab.processes import Process

Plain = dict[str, Any]
ALLOCATABLE = {"a": 4000, "b": 4000}
LABELS = {"a": {RACK: "1"}, "b": {RACK: "2"}}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "cpg-scheduler: preempting to accommodate a higher priority pod default/urgent uid-urgent",
}
OTHERS = "default-scheduler"


def pod(name: str, node: str = "", *, cpu: str = "1", group: str = "", priority: int = 0, **more: Any) -> Plain:
    """Return a pod of our scheduler that runs, or waits with a reason."""
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"phase": "Running" if node else "Pending", "conditions": [] if node else [waits]}
    spec: Plain = {"schedulerName": SCHEDULER_NAME, "priority": priority, "nodeName": node}
    spec["containers"] = [{"resources": {"requests": {"cpu": cpu}}}]
    labels = {POD_GROUP_LABEL: group} if group else {}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels}
    found: Plain = {"metadata": meta, "spec": spec, "status": status}
    for part, values in more.items():
        found[part] = {**found[part], **values}
    return found


def group(name: str, least: int, *, running: int, total: int, done: str = "True", **more: Any) -> Plain:
    """Return a PodGroup with a status of these counts."""
    conditions = [
        {"type": "PodGroupInitiallyScheduled", "status": done},
        {"type": "Healthy", "status": str(running >= least)},
    ]
    counts = {"desired": total, "scheduled": running, "running": running}
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}, **more}
    meta = {"name": name, "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": spec, "status": {"conditions": conditions, "pods": counts}}


@pytest.fixture
def record() -> RunRecord:
    """Return a record without faults."""
    return RunRecord()


@pytest.fixture
def history() -> History:
    """Return a history without objects."""
    return History(Connection(Endpoint(server="http://127.0.0.1")))


@pytest.fixture(autouse=True)
def invariants(history: History, record: RunRecord) -> Invariants:
    """Return the checks of the history's changes."""
    return Invariants(history, record, allocatable=ALLOCATABLE, labels=LABELS)


def change(history: History, *pods: Plain) -> None:
    """Let the watch report pods."""
    for one in pods:
        history._apply(PODS, {one["metadata"]["uid"]: (one, one)})


def broken(record: RunRecord) -> list[str]:
    """Return the rules that did not hold."""
    return [one.rule for one in record.violations]


def test_our_binds_must_fit(history: History, record: RunRecord) -> None:
    """A full node is fine; one more is not."""
    change(history, *(pod(f"p{number}", "a") for number in range(4)))
    assert broken(record) == []
    change(history, pod("p4", "a"))
    assert broken(record) == ["no node is over-committed by our binds"]


def test_a_race_with_another_scheduler_is_counted(history: History, invariants: Invariants, record: RunRecord) -> None:
    """Its bind counts against ours only after the watch must have shown it; faults do not count as time."""
    other = pod("other", "a", cpu="4", spec={"schedulerName": OTHERS})
    change(history, other, pod("early", "a"))
    assert (broken(record), record.counts["races lost by us"]) == ([], 1)
    record.faults.append(Fault("suspend", "scheduler-0", time.time() - 60, time.time() + 60))
    invariants._bound_at["uid-other"] -= 30
    change(history, pod("during", "a"))
    assert broken(record) == []
    record.faults.clear()
    change(history, pod("late", "a"))
    assert broken(record) == ["no node is over-committed by our binds"]


def test_a_gang_stays_in_its_domain(history: History, record: RunRecord) -> None:
    """Its pods are bound to two racks."""
    constraints = {"topology": [{"key": RACK}]}
    gang = group("gang", 2, running=0, total=2, schedulingConstraints=constraints)
    history._apply(CPG_POD_GROUPS, {"uid-gang": (gang, gang)})
    change(history, pod("one", "a", group="gang"), pod("two", "a", group="gang"))
    assert broken(record) == []
    change(history, pod("three", "b", group="gang"))
    assert broken(record) == ["topology domains hold"]


@pytest.mark.parametrize(("priority", "expected"), [(9, []), (10, ["only pods of lower priority are evicted"])])
def test_only_lower_priorities_are_evicted(
    history: History, record: RunRecord, priority: int, expected: list[str]
) -> None:
    """The condition names the preemptor, which has priority 10."""
    victim = pod("victim", "a", priority=priority)
    change(history, pod("urgent", priority=10), victim)
    evicted = {**victim, "status": {**victim["status"], "conditions": [EVICTED]}}
    evicted["metadata"] = {**victim["metadata"], "deletionTimestamp": "now"}
    change(history, evicted)
    assert (broken(record), record.counts["pods evicted by us"]) == (expected, 1)


def test_terminal_conditions_stay(history: History, record: RunRecord) -> None:
    """A group that was placed says so for ever."""
    for done in ("False", "True", "True"):
        one = group("gang", 2, running=0, total=2, done=done)
        history._apply(CPG_POD_GROUPS, {"uid-gang": (one, one)})
    assert broken(record) == []
    one = group("gang", 2, running=0, total=2, done="False")
    history._apply(CPG_POD_GROUPS, {"uid-gang": (one, one)})
    assert broken(record) == ["terminal conditions never regress"]


MEMBERS = [pod("one", "a", group="gang"), pod("two", "a", group="gang")]


@pytest.mark.parametrize(
    ("pods", "groups", "expected"),
    [
        (MEMBERS, [group("gang", 2, running=2, total=2)], ""),
        ([pod("waits")], [], ""),
        ([pod("waits", status={"conditions": []})], [], "PodScheduled"),
        ([pod("waits", status={"nominatedNodeName": "a"})], [], "still nominated to a"),
        ([pod("runs", "a", status={"conditions": [EVICTED]})], [], "stale DisruptionTarget"),
        ([pod("goes", "a", metadata={"deletionTimestamp": "now", "name": "goes", "labels": {}})], [], "being deleted"),
        ([pod("large", "a", cpu="5")], [], "a is over-committed"),
        (MEMBERS, [group("gang", 3, running=2, total=2)], "placed in part"),
        (MEMBERS, [group("gang", 2, running=1, total=2)], "the status of gang"),
        (MEMBERS, [group("gang", 2, running=2, total=2, done="False")], "has its minimum"),
        ([], [group("gang", 2, running=0, total=0, done="Unknown")], "no attempt"),
    ],
)
def test_a_settled_cluster_is_right(pods: list[Plain], groups: list[Plain], expected: str) -> None:
    """Each state breaks one rule, or none."""
    found = problems(ClusterState(pods, groups, []), ALLOCATABLE, LABELS)
    assert [expected in one for one in found][:1] == ([True] if expected else [])


AUDITED = (
    '{{"kind":"Event","verb":"{verb}","user":{{"extra":{{"authentication.kubernetes.io/credential-id":["{user}"]}}}},'
    '"objectRef":{{"resource":"{resource}","name":"x"}},"responseStatus":{{"code":200}},'
    '"requestReceivedTimestamp":"2026-01-01T00:00:{at:09.6f}Z","stageTimestamp":"2026-01-01T00:00:{at:09.6f}Z"}}'
)


@pytest.mark.parametrize(("late", "expected", "in_flight"), [(0.5, 0, 1), (3.0, 1, 0)])
def test_only_the_holder_of_the_lease_writes(
    tmp_path: Path, record: RunRecord, late: float, expected: int, in_flight: int
) -> None:
    """A request that was in flight is counted. A killed API server has left half a line."""
    log = tmp_path / "audit.log"
    lines = [
        AUDITED.format(verb="patch", user="zero", resource="leases", at=1),
        AUDITED.format(verb="create", user="zero", resource="pods", at=2),
        AUDITED.format(verb="create", user="zero", resource="pods", at=10 + late),
        '{"kind":"Event","verb":"cre' + AUDITED.format(verb="patch", user="one", resource="leases", at=10),
    ]
    log.write_text("\n".join(lines) + "\n")
    writes = AuditLog(log, {"zero": "scheduler-0", "one": "scheduler-1"}).read()
    LeaseCheck(record).check(writes)
    assert len(writes) == len(lines)
    assert (len(record.violations), record.counts["requests in flight at a takeover"]) == (expected, in_flight)
    assert record.counts["takeovers of schedulers"] == 1


def test_defects_in_logs_are_found(tmp_path: Path) -> None:
    """Failures of the API server are no defects."""
    log = tmp_path / "log"
    log.write_text('{"event": "watch failed"}\n{"event": "attempt failed", "root": "x"}\n')
    assert list(defects(log, 0)) == ['{"event": "attempt failed", "root": "x"}']


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("cpg-scheduler: the lease could not be renewed for 2.6 s", []),
        ("cpg-scheduler: the resource version of /api/v1/pods went back from 9 to 5", []),
        ("Killed", ["processes end only when killed"]),
    ],
)
def test_processes_end_for_a_reason(tmp_path: Path, record: RunRecord, output: str, expected: list[str]) -> None:
    """A process that nothing has killed says why it ends."""
    process = Process("scheduler-0", ["/bin/sh", "-c", f"echo '{output}'; exit 1"], log=tmp_path / "log")
    assert process.wait(10)
    check_end("scheduler-0", process, record)
    assert broken(record) == expected


def test_the_kubelet_rejects_the_latest_pod() -> None:
    """Of an over-committed node alone."""
    bound = {"type": "PodScheduled", "status": "True"}
    pods = [
        pod(name, node, cpu="3", status={"conditions": [{**bound, "lastTransitionTime": since}]})
        for name, node, since in (("first", "a", "10"), ("latest", "a", "12"), ("other", "b", "20"))
    ]
    assert rejected_pods(pods, ALLOCATABLE) == ["latest"]
