"""What a person would want to see of the cluster at one moment: racks, pods, and groups with what is said of them."""

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
    """A pod of a group; its message says why it has no node."""

    name: str
    group: str
    node: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group, and what is said of it."""

    name: str
    parent: str
    priority: int
    pods: int
    scheduled: int
    health: str
    domain: str
    verdict: str
    """The reason of the condition that says whether it was ever placed."""
    message: str


@dataclass(frozen=True)
class Sight:
    """The cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()

    def group(self, name: str) -> Group | None:
        """Return a group by name."""
        return next((group for group in self.groups if group.name == name), None)

    def root_of(self, name: str) -> str:
        """Return the root of the tree that a group belongs to; its own name where it is not there (yet)."""
        seen = {name}
        while (group := self.group(name)) is not None and group.parent and group.parent not in seen:
            name = group.parent
            seen.add(name)
        return name

    def pods_of(self, root: str) -> list[Pod]:
        """Return the pods of a tree."""
        return [pod for pod in self.pods if self.root_of(pod.group) == root]


def look(access: Access) -> Sight:
    """Look at the cluster, in one question."""
    items: list[Plain] = json.loads(access.kubectl("get", KINDS, "-o", "json").stdout)["items"]
    return sight_of(items)


def sight_of(items: list[Plain]) -> Sight:
    """Return what is to be seen in objects of the API."""
    return Sight(tuple(_nodes(items)), tuple(_pods(items)), tuple(_groups(items)))


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
            verdict=placed.get("reason", ""),
            message=placed.get("message", ""),
        )


def _condition(item: Plain, kind: str) -> Plain:
    found: list[Plain] = item.get("status", {}).get("conditions", [])
    return next((condition for condition in found if condition["type"] == kind), {})
