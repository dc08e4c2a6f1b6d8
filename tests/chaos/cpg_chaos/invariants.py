"""What must hold at all times, checked at each change that a watch reports."""

from collections.abc import Iterable, Mapping
from time import time
from typing import Any

from cpg_api.scheduling.names import DISRUPTION_TARGET, POD_GROUP_LABEL, REASON_PREEMPTION, SCHEDULER_NAME
from cpg_chaos.history import History
from cpg_chaos.record import RunRecord
from cpg_chaos.users import CLASSES, ENDED, requested
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, PODS

Plain = dict[str, Any]
Labels = Mapping[str, str]
MAX_WATCH_SECONDS = 2.0
"""Seconds without faults after which our scheduler has seen the bind of another scheduler."""
TERMINAL = "InitiallyScheduled"


class Invariants:
    """Check changes of pods and groups; one instance for each history of the API server."""

    def __init__(
        self, history: History, record: RunRecord, *, allocatable: Mapping[str, int], labels: Mapping[str, Labels]
    ) -> None:
        """``allocatable`` has the millicores of each node, ``labels`` its labels."""
        self._history, self._record = history, record
        self._allocatable, self._labels = allocatable, labels
        pods = history.objects[PODS]
        self._bound_at = {uid: 0.0 for uid, one in pods.items() if one["spec"].get("nodeName")}
        self._priorities = {uid: one["spec"].get("priority", 0) for uid, one in pods.items()}
        for group in self._groups():
            self._priorities[group["metadata"]["uid"]] = group_priority(group)
        self.evicted_units: dict[str, set[str]] = {}
        """The pods that an evicted unit had when its first pod was evicted, by name of the unit and its preemptor."""
        history.listeners = {
            PODS: self.on_pod,
            CPG_POD_GROUPS: self.on_group,
            CPG_COMPOSITE_POD_GROUPS: self.on_group,
        }

    def on_pod(self, old: Plain | None, pod: Plain, is_gone: bool) -> None:  # noqa: FBT001  # as History calls it
        """Check a change of a pod."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        self._priorities[uid] = pod["spec"].get("priority", 0)
        if node and not is_gone and uid not in self._bound_at:
            self._bound_at[uid] = time()
            is_ours = pod["spec"]["schedulerName"] == SCHEDULER_NAME
            self._record.counts["binds by us" if is_ours else "binds by kube-scheduler"] += 1
            self._check_room(node, uid, pod, is_ours=is_ours)
            self._check_domains(pod)
        if (is_gone or is_terminating(pod)) and not is_terminating(old) and (message := eviction_message(pod)):
            self._check_eviction(pod, message)

    def on_group(self, old: Plain | None, group: Plain, is_gone: bool) -> None:  # noqa: FBT001  # likewise
        """Check a change of a group."""
        self._priorities[group["metadata"]["uid"]] = group_priority(group)
        before, after = terminal_status(old), terminal_status(group)
        if before == "True" and after != "True" and not is_gone:
            self._record.violate("terminal conditions never regress", f"{group['metadata']['name']}: {after}")

    def _check_room(self, node: str, uid: str, pod: Plain, *, is_ours: bool) -> None:
        """Check that a bind of ours did not over-commit a node by pods that our scheduler must have seen."""
        there = [
            one
            for one in self._history.objects[PODS].values()
            if one["spec"].get("nodeName") == node and one["status"].get("phase") not in ENDED
        ]
        room = self._allocatable[node]
        if sum(map(requested, there)) <= room:
            return
        if not is_ours:
            self._record.counts["races lost by kube-scheduler"] += 1
            return
        seen = [one for one in there if one["metadata"]["uid"] == uid or not self._is_unseen(one)]
        if (used := sum(map(requested, seen))) > room:
            names = {one["metadata"]["name"]: requested(one) for one in seen}
            what = f"{pod['metadata']['name']} was bound to {node}, which has {used} of {room} millicores by {names}"
            self._record.violate("no node is over-committed by our binds", what)
        else:
            self._record.counts["races lost by us"] += 1

    def _is_unseen(self, pod: Plain) -> bool:
        """Return whether the bind of another scheduler is so recent that ours need not have seen it."""
        if pod["spec"]["schedulerName"] == SCHEDULER_NAME:
            return False
        bound_at = self._bound_at.get(pod["metadata"]["uid"], time())
        return self._record.calm_seconds(bound_at, time(), "scheduler") < MAX_WATCH_SECONDS

    def _check_domains(self, pod: Plain) -> None:
        """Check the topology constraint of each group above a pod that was bound."""
        groups = {one["metadata"]["name"]: one for one in self._groups()}
        group = groups.get(pod["metadata"]["labels"].get(POD_GROUP_LABEL, ""))
        while group is not None:
            for problem in domain_problems(group, groups, self._history.objects[PODS].values(), self._labels):
                self._record.violate("topology domains hold", problem)
            group = groups.get(group["spec"].get("parentCompositePodGroupName", ""))

    def _check_eviction(self, pod: Plain, message: str) -> None:
        """Check the priority of a pod that is being evicted, and note the unit that has to go with it."""
        name, preemptor = pod["metadata"]["name"], message.rpartition(" ")[2]
        if not message.startswith(f"{SCHEDULER_NAME}: "):  # kube-scheduler evicts it, perhaps at the same time as we do
            self._record.counts["pods evicted by kube-scheduler"] += 1
            return
        self._record.counts["pods evicted by us"] += 1
        mine, theirs = pod["spec"].get("priority", 0), self._priorities.get(preemptor)
        if theirs is None or mine >= theirs:
            what = f"{name} of priority {mine} is evicted for one of priority {theirs}: {message}"
            self._record.violate("only pods of lower priority are evicted", what)
        label = pod["metadata"]["labels"].get(POD_GROUP_LABEL, "")
        groups = [one for one in self._history.objects[CPG_POD_GROUPS].values() if one["metadata"]["name"] == label]
        if any("all" in (one["spec"].get("disruptionMode") or {}) for one in groups):
            members = {
                one["metadata"]["uid"] for one in self._history.objects[PODS].values() if is_active_member(one, {label})
            }
            self.evicted_units.setdefault(f"{label} for {preemptor}", members)

    def _groups(self) -> Iterable[Plain]:
        for resource in (CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS):
            yield from self._history.objects[resource].values()


def eviction_message(pod: Plain) -> str:
    """Return the message of the condition by which a scheduler evicts a pod; empty if none does."""
    for one in pod["status"].get("conditions") or ():
        if (one["type"], one["status"], one.get("reason")) == (DISRUPTION_TARGET, "True", REASON_PREEMPTION):
            return str(one.get("message", ""))
    return ""


def group_priority(group: Plain) -> int:
    """Return the priority of a group, also if the operator has not resolved its class yet."""
    return CLASSES.get(group["spec"].get("priorityClassName", ""), 0)


def is_terminating(pod: Plain | None) -> bool:
    """Return whether a pod was being deleted."""
    return pod is not None and "deletionTimestamp" in pod["metadata"]


def terminal_status(group: Plain | None) -> str:
    """Return the status of the condition of a group that is final once True."""
    conditions = (group or {}).get("status", {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"].endswith(TERMINAL)), "")


def is_active_member(pod: Plain, groups: set[str]) -> bool:
    """Return whether a pod of one of these groups holds a node, and is to keep it."""
    return bool(
        pod["metadata"]["labels"].get(POD_GROUP_LABEL) in groups
        and pod["spec"].get("nodeName")
        and not is_terminating(pod)
        and pod["status"].get("phase") not in ENDED
    )


def leaves_below(group: str, groups: Mapping[str, Plain]) -> set[str]:
    """Return the names of a group and of all groups below it."""
    found = {group}
    while more := {
        name
        for name, one in groups.items()
        if one["spec"].get("parentCompositePodGroupName") in found and name not in found
    }:
        found |= more
    return found


def domain_problems(
    group: Plain, groups: Mapping[str, Plain], pods: Iterable[Plain], labels: Mapping[str, Labels]
) -> list[str]:
    """Return the constraints of a group that its pods break."""
    constraints = (group["spec"].get("schedulingConstraints") or {}).get("topology") or ()
    names = leaves_below(group["metadata"]["name"], groups)
    nodes = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods if is_active_member(one, names)}
    found = []
    for key in (one["key"] for one in constraints):
        values = {labels[node].get(key) for node in nodes.values()}
        if len(values) > 1:
            found.append(f"{group['metadata']['name']} is in {len(values)} domains of {key}: {nodes}")
    return found
