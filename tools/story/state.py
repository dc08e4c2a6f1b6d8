"""The state of the cluster that the demo shows: racks, pods, and groups with their status."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cpg_lab.access import Access

BLOCK, RACK = "topology.cpg.dev/block", "topology.cpg.dev/rack"
POD_GROUP = "scheduling.cpg.dev/pod-group"
KINDS = "nodes,pods,compositepodgroups.scheduling.cpg.dev,podgroups.scheduling.cpg.dev"

Plain = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """A node in a rack."""

    name: str
    block: str
    rack: str


@dataclass(frozen=True)
class Pod:
    """A pod of a group, and the message of its PodScheduled condition."""

    name: str
    group: str
    node: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group and its status."""

    name: str
    parent: str
    priority: int
    pods: int
    scheduled: int
    health: str
    domain: str
    reason: str
    """The reason of the condition InitiallyScheduled."""
    message: str


@dataclass(frozen=True)
class ClusterState:
    """The cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()

    def group(self, name: str) -> Group | None:
        """Return a group by name."""
        return next((group for group in self.groups if group.name == name), None)

    def root_of(self, name: str) -> str:
        """Return the root of a group's tree; the name itself if the group does not exist."""
        seen = {name}
        while (group := self.group(name)) is not None and group.parent and group.parent not in seen:
            name = group.parent
            seen.add(name)
        return name

    def pods_of(self, root: str) -> list[Pod]:
        """Return the pods of a tree."""
        return [pod for pod in self.pods if self.root_of(pod.group) == root]


def read_state(access: Access) -> ClusterState:
    """Read the cluster in one request."""
    items: list[Plain] = json.loads(access.kubectl("get", KINDS, "-o", "json").stdout)["items"]
    return state_of(items)


def state_of(items: list[Plain]) -> ClusterState:
    """Return the state that API objects describe."""
    return ClusterState(tuple(_nodes(items)), tuple(_pods(items)), tuple(_groups(items)))


def _nodes(items: list[Plain]) -> Iterator[Node]:
    for item in items:
        labels = item["metadata"].get("labels", {})
        if item["kind"] == "Node" and RACK in labels:
            yield Node(item["metadata"]["name"], labels.get(BLOCK, ""), labels[RACK])


def _pods(items: list[Plain]) -> Iterator[Pod]:
    for item in items:
        group = item["metadata"].get("labels", {}).get(POD_GROUP)
        if item["kind"] == "Pod" and group and "deletionTimestamp" not in item["metadata"]:
            scheduled = _condition(item, "PodScheduled")
            yield Pod(
                item["metadata"]["name"], group, item["spec"].get("nodeName", ""), str(scheduled.get("message", ""))
            )


def _groups(items: list[Plain]) -> Iterator[Group]:
    for item in items:
        if item["kind"] not in {"PodGroup", "CompositePodGroup"}:
            continue
        status, spec = item.get("status", {}), item["spec"]
        placed = _condition(item, f"{item['kind']}InitiallyScheduled")
        yield Group(
            name=item["metadata"]["name"],
            parent=spec.get("parentCompositePodGroupName", ""),
            priority=spec.get("priority", 0),
            pods=status.get("pods", {}).get("desired", 0),
            scheduled=status.get("pods", {}).get("scheduled", 0),
            health=_condition(item, "Healthy").get("reason", ""),
            domain=status.get("domain", {}).get("value", ""),
            reason=placed.get("reason", ""),
            message=placed.get("message", ""),
        )


def _condition(item: Plain, kind: str) -> Plain:
    found: list[Plain] = item.get("status", {}).get("conditions", [])
    return next((condition for condition in found if condition["type"] == kind), {})
