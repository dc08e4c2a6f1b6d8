"""What must hold some time after the last fault, while no user changes anything: all of it is read anew."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cpg_api.decoding import decode
from cpg_api.scheduling.health import HEALTHY
from cpg_api.scheduling.names import DISRUPTION_TARGET, POD_GROUP_LABEL, POD_SCHEDULED, SCHEDULER_NAME
from cpg_chaos.invariants import Labels, domain_problems, is_active_member, is_terminating, terminal_status
from cpg_chaos.users import ENDED, GROUPS, NAMESPACE, requested
from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import PODS

Plain = dict[str, Any]


class ClusterState:
    """Pods and groups as the API server lists them, without those that users do not want any more."""

    def __init__(self, pods: Sequence[Plain], leaves: Sequence[Plain], composites: Sequence[Plain]) -> None:
        """All of one namespace."""
        self.pods = pods
        self.leaves = {one["metadata"]["name"]: one for one in leaves}
        self.composites = {one["metadata"]["name"]: one for one in composites}
        self.groups = {**self.leaves, **self.composites}

    @classmethod
    async def read(cls, connection: Connection) -> "ClusterState":
        """List everything."""
        found = [await list_all(connection, one.path(NAMESPACE)) for one in (PODS, *GROUPS)]
        return cls(*([decode(one) for one in listing.items] for listing in found))

    def members(self, leaf: str) -> list[Plain]:
        """Return the pods of a PodGroup that count: they have not failed, and are not being deleted."""
        return [
            one
            for one in self.pods
            if one["metadata"]["labels"].get(POD_GROUP_LABEL) == leaf
            and not is_terminating(one)
            and one["status"].get("phase") != "Failed"
        ]

    def children(self, composite: str) -> list[str]:
        """Return the names of the groups right below a CompositePodGroup."""
        return [
            name for name, one in self.groups.items() if one["spec"].get("parentCompositePodGroupName") == composite
        ]

    def pod_counts(self, group: str) -> dict[str, int]:
        """Return the counts of pods that the status of a group must have."""
        if group in self.composites:
            below = [self.pod_counts(child) for child in self.children(group)]
            return {key: sum(one[key] for one in below) for key in ("desired", "scheduled", "running")}
        members = self.members(group)
        placed = [one for one in members if one["spec"].get("nodeName") or one["status"].get("phase") == "Succeeded"]
        running = sum(one["status"].get("phase") in {"Running", "Succeeded"} for one in placed)
        return {"desired": len(members), "scheduled": len(placed), "running": running}

    def meets_minimum(self, group: str, count: str) -> bool:
        """Return whether the minimum of a group is met by pods that are ``scheduled`` or ``running``."""
        gang = self.groups[group]["spec"]["schedulingPolicy"]["gang"]
        if group in self.composites:
            ready = sum(self.meets_minimum(child, count) for child in self.children(group))
            return bool(ready >= gang["minGroupCount"])
        return bool(self.pod_counts(group)[count] >= gang["minCount"])

    def root_of(self, group: str) -> str:
        """Return the name of the root of a tree."""
        while parent := self.groups[group]["spec"].get("parentCompositePodGroupName"):
            group = parent
        return group


def problems(state: ClusterState, allocatable: Mapping[str, int], labels: Mapping[str, Labels]) -> list[str]:
    """Return everything that is wrong in a state that does not change any more."""
    found = [*pod_problems(state.pods), *room_problems(state.pods, allocatable)]
    for name, group in state.groups.items():
        found += domain_problems(group, state.groups, state.pods, labels)
        found += group_problems(state, name, group)
    return found


def pod_problems(pods: Sequence[Plain]) -> Iterator[str]:
    """Yield what is wrong with single pods."""
    for one in pods:
        name, conditions = one["metadata"]["name"], one["status"].get("conditions") or ()
        by_type = {condition["type"]: condition for condition in conditions}
        if is_terminating(one):
            yield f"{name} is still being deleted"
            continue
        if one["spec"]["schedulerName"] != SCHEDULER_NAME or one["status"].get("phase") in ENDED:
            continue
        if by_type.get(DISRUPTION_TARGET, {}).get("status") == "True":
            yield f"{name} has a stale DisruptionTarget: {by_type[DISRUPTION_TARGET].get('message')}"
        if not one["spec"].get("nodeName"):
            shown = by_type.get(POD_SCHEDULED, {})
            if shown.get("status") != "False" or not shown.get("reason") or not shown.get("message"):
                yield f"{name} waits, and its condition PodScheduled is {shown}"
            if node := one["status"].get("nominatedNodeName"):
                yield f"{name} is still nominated to {node}"


def room_problems(pods: Sequence[Plain], allocatable: Mapping[str, int]) -> Iterator[str]:
    """Yield the nodes that are over-committed."""
    used = dict.fromkeys(allocatable, 0)
    for one in pods:
        if one["spec"].get("nodeName") and one["status"].get("phase") not in ENDED:
            used[one["spec"]["nodeName"]] += requested(one)
    yield from (f"{node} is over-committed" for node, cpu in used.items() if cpu > allocatable[node])


def group_problems(state: ClusterState, name: str, group: Plain) -> Iterator[str]:
    """Yield what is wrong with a group: half of it is placed, or its status does not say what is."""
    status = group.get("status", {})
    if "deletionTimestamp" in group["metadata"]:
        yield f"{name} is deleted, and does not go"
        return
    is_met, is_root = state.meets_minimum(name, "scheduled"), state.root_of(name) == name
    holding = [
        one["metadata"]["name"]
        for one in state.pods
        if is_active_member(one, set(state.leaves))
        and state.root_of(one["metadata"]["labels"][POD_GROUP_LABEL]) == name
    ]
    if is_root and holding and not is_met:
        yield f"{name} is placed in part: {holding}"
    if status.get("pods", {}) != (counts := state.pod_counts(name)):
        yield f"the status of {name} has {status.get('pods')} instead of {counts}"
    if is_met and terminal_status(group) != "True":
        yield f"{name} has its minimum, and its condition is {terminal_status(group) or 'absent'}"
    by_type = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if (by_type.get(HEALTHY) == "True") != state.meets_minimum(name, "running"):
        yield f"{name} has Healthy={by_type.get(HEALTHY)} and {counts}"
    if not is_met and terminal_status(group) == "Unknown":
        yield f"no attempt at {name} is reported"


async def misplaced(kubeconfig: Path, folder: Path) -> list[str]:
    """Return the pending units that would be placed or would preempt, by a decision on what the API server lists."""
    dump = folder / "dump.json.gz"
    await _run_cli("dump", "--source", "view", "-A", "--kubeconfig", str(kubeconfig), "-o", str(dump))
    answers = decode(await _run_cli("replay", str(dump), "-o", "json") or b"[]")
    found = []
    for answer in answers:
        name, preemption = answer["tree"]["name"], answer.get("preemption", {})
        if answer["state"] == "Fits" or (answer["state"] == "Nominated"):
            found.append(f"{name} waits: {answer['summary']}")
        elif preemption.get("outcome") in {"WouldEvict", "Ongoing"}:
            found.append(f"{name} waits: {preemption['text']}")
    return found


async def _run_cli(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cpg_cli", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    if process.returncode not in {0, 1}:
        raise RuntimeError(f"kubectl cpg {' '.join(arguments)} failed: {errors.decode()}")
    return output
