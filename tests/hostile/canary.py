"""A small cluster whose decisions are known: no other object may change them.

Its nodes offer nothing but a resource of their own, so pods that tolerate everything cannot take its room. One gang
fits exactly, and one is a pod too large.
"""

from typing import Any

import msgspec
from tests.hostile.worlds import Place, World

from cpg_api.scheduling.names import GROUP, POD_GROUP_LABEL, SCHEDULER_NAME

NAMESPACE, RESOURCE, SIZE = "canary", "canary.example.com/room", 4
NODE: Place = ("", "Node")
POD: Place = ("", "Pod")
POD_GROUP: Place = (GROUP, "PodGroup")
Plain = dict[str, Any]
PRIORITY: Plain = {"priority": 1000}
PRIORITY_CLASS: Plain = {"metadata": {"name": "canary"}, "value": 1000}
"""What an API server takes the priority from."""


def node(number: int) -> Plain:
    """Return one of the nodes, all of which are in one rack."""
    offered = {RESOURCE: "1", "pods": "10000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"canary-{number}", "labels": {"rack": "canary", "canary": "true"}},
        "spec": {"taints": [{"key": "canary", "effect": "NoSchedule"}]},
        "status": {"allocatable": offered, "capacity": offered},
    }


def gang(name: str, size: int, priority: Plain) -> list[tuple[Place, Plain]]:
    """Return a gang that needs one rack, and its pods; no class that is the default one changes their priority."""
    policy = {
        "schedulingPolicy": {"gang": {"minCount": size}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    group: Plain = {
        "apiVersion": f"{GROUP}/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": policy | priority,
    }
    return [(POD_GROUP, group), *((POD, member(name, number, priority)) for number in range(size))]


def member(group: str, number: int, priority: Plain) -> Plain:
    """Return a pod of a gang."""
    resources = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{group}-{number}", "namespace": NAMESPACE, "labels": {POD_GROUP_LABEL: group}},
        "spec": priority
        | {
            "schedulerName": SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": "canary", "operator": "Exists"}],
            "nodeSelector": {"canary": "true"},
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


class Canary:
    """The canary of a world in this process."""

    def __init__(self, world: World) -> None:
        """Create the nodes."""
        self._world = world
        self._made: list[tuple[Place, Plain]] = []
        self._number = 0
        self._put([(NODE, node(number)) for number in range(SIZE)])

    def check(self) -> None:
        """Create both gangs; one must be placed as a whole, the other one not at all; then delete them."""
        self._made.clear()
        self._put([*gang("fits", SIZE, PRIORITY), *gang("too-large", SIZE + 1, PRIORITY)])
        self._world.settle()
        nodes = {
            pod.metadata.name: pod.spec.node_name
            for pod in self._world.scheduler.stage.cache.pods.values()
            if pod.metadata.namespace == NAMESPACE and pod.spec.node_name
        }
        assert sorted(nodes) == [f"fits-{number}" for number in range(SIZE)], nodes
        assert sorted(nodes.values()) == [f"canary-{number}" for number in range(SIZE)], nodes
        for place, plain in self._made:
            self._world.take(place, "DELETED", msgspec.json.encode(plain))

    def _put(self, objects: list[tuple[Place, Plain]]) -> None:
        for place, plain in objects:
            self._number += 1
            identity = {"uid": f"canary-{self._number}", "resourceVersion": str(self._number)}
            whole = plain | {"metadata": plain["metadata"] | identity}
            if place[1] == "Pod":
                whole["status"] = {"phase": "Pending"}
            self._world.take(place, "ADDED", msgspec.json.encode(whole))
            self._made.append((place, whole))
