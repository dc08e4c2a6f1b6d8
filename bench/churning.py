"""A cluster in which everything comes and goes: trees of any shape and importance, pods of no group, nodes, minds."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.bulk_create import create_all
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import (
    CPG_COMPOSITE_POD_GROUPS,
    CPG_POD_GROUPS,
    NATIVE_COMPOSITE_POD_GROUPS,
    NATIVE_POD_GROUPS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from cpg_lab.nodes import TOPOLOGY, NodePool, manifest

NAMESPACE = "default"
BLOCK, RACK = f"{TOPOLOGY}/block", f"{TOPOLOGY}/rack"
URGENT = "urgent"
URGENT_AT_ONCE, CORDONED_AT_ONCE, GONE_AT_ONCE = 5, 3, 2
SHAPES = ("single", "gang", "gang", "gang", "tree", "tree", "tree", "greedy", URGENT)
Body = dict[str, Any]


class Flavour(NamedTuple):
    """The kinds that groups are made of, and how a pod says which is its own."""

    leaf: Resource
    composite: Resource
    is_native: bool = False


FLAVOURS = {
    "crd": Flavour(CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS),
    "native": Flavour(NATIVE_POD_GROUPS, NATIVE_COMPOSITE_POD_GROUPS, is_native=True),
}


class Member(msgspec.Struct, frozen=True):
    """A pod as its controller makes it, again and again; ``rack`` is its group where that has to be in one rack."""

    group: str
    rack: str
    cpu: str
    priority: str


@dataclass
class Tree:
    """What belongs together, and goes together: groups and pods by name."""

    name: str
    groups: list[tuple[Resource, str]] = field(default_factory=list)
    pods: dict[str, Member] = field(default_factory=dict)
    priority: str = ""


class Churn:
    """Acts at random, by a seed, and knows what ought to be there."""

    def __init__(self, connection: Connection, seed: int, *, trees: int, pool: NodePool, api: str) -> None:
        """Keep up to so many trees alive on these nodes, of this flavour."""
        self.alive: dict[str, Tree] = {}
        self.made = self.gone = self.acts = self.replaced = 0
        self._connection = connection
        self._dice = random.Random(seed)  # noqa: S311 - to be repeated
        self._trees = trees
        self._places = {pool.name(place): place for place in pool.positions()}
        self._pool = pool
        self._flavour = FLAVOURS[api]
        self._cordoned: list[str] = []
        self._missing: list[str] = []

    async def prepare(self) -> None:
        """Create what trees refer to."""
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "value": 1000}
        await self._create((PRIORITY_CLASSES.path(), {**body, "metadata": {"name": URGENT}}))

    async def act(self) -> None:
        """Do one thing."""
        self.acts += 1
        acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (1.0 if len(self.alive) < self._trees else 0.1, self._plant),
            (0.1 if len(self.alive) < self._trees else 1.0, self._fell),
            (0.15, self._lose_a_pod),
            (0.15, self._toggle_a_node),
            (0.1, self._relabel_a_node),
            (0.1, self._lose_or_mend_a_node),
            (0.1, self.replace_the_gone),
        ]
        weights = [weight for weight, _ in acts]
        await self._dice.choices([act for _, act in acts], weights)[0]()

    async def calm(self) -> None:
        """Make an end of it: all nodes are there and serve, and everything that is left can be placed."""
        while self._missing:
            await self._create_node(self._missing.pop())
        for name in self._cordoned:
            await self._patch(NODES, name, {"spec": {"unschedulable": None}})
        self._cordoned.clear()
        for tree in [tree for tree in self.alive.values() if "greedy" in tree.name or tree.priority]:
            await self._remove(tree)

    async def replace_the_gone(self) -> None:
        """Create another pod for each that was evicted, or went with its node, as its controller would."""
        there = await self._there(PODS, NAMESPACE)
        for tree in list(self.alive.values()):
            for name in [name for name in tree.pods if name not in there]:
                member = tree.pods.pop(name)
                self.replaced += 1
                await self._create(self._pod(tree, f"{tree.name}-for{self.replaced}", member))

    async def lost(self) -> list[str]:
        """Return what is wrong with the trees that ought to be there."""
        nodes, pods = await self._there(NODES, None), await self._there(PODS, NAMESPACE)
        places = {name: one["spec"].get("nodeName", "") for name, one in pods.items()}
        found = []
        for tree in self.alive.values():
            found += [f"{pod} waits: {_told(pods.get(pod))}" for pod in tree.pods if not places.get(pod)]
            racks: dict[str, set[str]] = {}
            for pod, member in tree.pods.items():
                node = nodes.get(places.get(pod, ""))
                if member.rack and node:
                    racks.setdefault(member.rack, set()).add(node["metadata"]["labels"][RACK])
            found += [f"{leaf} is in {len(seen)} racks" for leaf, seen in racks.items() if len(seen) > 1]
        return found

    async def _plant(self) -> None:
        """Create a tree, now and then one that nothing can hold, or one that others have to make room for."""
        dice = self._dice
        shape = dice.choice(SHAPES)
        urgent = [tree for tree in self.alive.values() if tree.priority]
        if shape == URGENT and len(urgent) >= URGENT_AT_ONCE:
            await self._remove(urgent[0])
            return
        self.made += 1
        tree = Tree(f"{shape}-{self.made}", priority=URGENT if shape == URGENT else "")
        self.alive[tree.name] = tree
        items: list[tuple[str, Body]] = []
        if shape == "single":
            items.append(self._pod(tree, tree.name, Member("", "", "100m", "")))
        elif shape == URGENT:
            items += self._leaf(tree, tree.name, dice.randint(6, 8), "", RACK, cpu="7700m")
        elif shape in {"gang", "greedy"}:
            cpu = "64" if shape == "greedy" else self._share()
            items += self._leaf(tree, tree.name, dice.randint(2, 12), "", dice.choice((RACK, "")), cpu=cpu)
        else:
            leaves = dice.randint(2, 4)
            items.append(self._group(tree, tree.name, "", BLOCK, composite=leaves))
            for number in range(leaves):
                size, name = dice.randint(1, 6), f"{tree.name}-{number}"
                items += self._leaf(tree, name, size, tree.name, RACK, cpu=self._share())
        for item in items if dice.random() < 0.7 else reversed(items):
            await self._create(item)

    def _share(self) -> str:
        return f"{self._dice.choice((100, 250, 500))}m"

    def _leaf(self, tree: Tree, name: str, size: int, parent: str, key: str, *, cpu: str) -> list[tuple[str, Body]]:
        member = Member(name, name if key == RACK else "", cpu, tree.priority)
        pods = [self._pod(tree, f"{name}-p{number}", member) for number in range(size)]
        return [self._group(tree, name, parent, key, leaf=size), *pods]

    def _group(
        self, tree: Tree, name: str, parent: str, key: str, *, leaf: int = 0, composite: int = 0
    ) -> tuple[str, Body]:
        resource = self._flavour.composite if composite else self._flavour.leaf
        tree.groups.append((resource, name))
        spec: Body = {
            "schedulingPolicy": {"gang": {"minGroupCount": composite} if composite else {"minCount": leaf}},
            "workloadRef": {"workloadName": "absent", "templateName": "any"},
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
            **({"priorityClassName": tree.priority} if tree.priority and not parent else {}),
        }
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return resource.path(NAMESPACE), {**kind, "metadata": {"name": name}, "spec": spec}

    def _pod(self, tree: Tree, name: str, member: Member) -> tuple[str, Body]:
        tree.pods[name] = member
        group, is_native = member.group, self._flavour.is_native
        requests = {"cpu": member.cpu, "memory": "64Mi"}
        spec: Body = {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
            "terminationGracePeriodSeconds": 1,
            **({"schedulingGroup": {"podGroupName": group}} if group and is_native else {}),
            **({"priorityClassName": member.priority} if member.priority else {}),
        }
        labels = {POD_GROUP_LABEL: group} if group and not is_native else {}
        return PODS.path(NAMESPACE), {"metadata": {"name": name, "labels": labels}, "spec": spec}

    async def _fell(self) -> None:
        """Delete a tree, whatever has become of it."""
        if self.alive:
            await self._remove(self.alive[self._dice.choice(sorted(self.alive))])

    async def _remove(self, tree: Tree) -> None:
        del self.alive[tree.name]
        self.gone += 1
        for resource, name in [*((PODS, name) for name in tree.pods), *tree.groups]:
            await self._gently(self._connection.delete(resource.path(NAMESPACE, name)))

    async def _lose_a_pod(self) -> None:
        """Delete a member and create another in its place, as its controller would."""
        trees = [tree for name, tree in sorted(self.alive.items()) if name.startswith("gang")]
        if not trees:
            return
        tree = self._dice.choice(trees)
        name = self._dice.choice(sorted(tree.pods))
        member = tree.pods.pop(name)
        await self._gently(self._connection.delete(PODS.path(NAMESPACE, name)))
        await self._create(self._pod(tree, f"{tree.name}-again{self.acts}", member))

    async def _toggle_a_node(self) -> None:
        """Cordon a node, or take the oldest cordon away."""
        if len(self._cordoned) > CORDONED_AT_ONCE:
            await self._patch(NODES, self._cordoned.pop(0), {"spec": {"unschedulable": None}})
            return
        name = self._any_node()
        self._cordoned.append(name)
        await self._patch(NODES, name, {"spec": {"unschedulable": True}})

    async def _relabel_a_node(self) -> None:
        """Give a node a label that it did not have, of few that there are."""
        labels = {"example.com/colour": self._dice.choice(("red", "green", "blue"))}
        await self._patch(NODES, self._any_node(), {"metadata": {"labels": labels}})

    async def _lose_or_mend_a_node(self) -> None:
        """Delete a node with all that runs there, or bring back the one that went first, as if it were new."""
        if len(self._missing) >= GONE_AT_ONCE:
            await self._create_node(self._missing.pop(0))
            return
        name = self._any_node()
        self._missing.append(name)
        await self._gently(self._connection.delete(NODES.path(None, name)))
        for pod, body in (await self._there(PODS, NAMESPACE)).items():
            if body["spec"].get("nodeName") == name:
                at_once = {"gracePeriodSeconds": 0}
                await self._gently(self._connection.delete(PODS.path(NAMESPACE, pod), at_once))

    async def _create_node(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        await self._create((NODES.path(), manifest(self._pool, self._places[name], now=now)))

    def _any_node(self) -> str:
        """Return a node that is there and serves."""
        return self._dice.choice(sorted(self._places.keys() - set(self._cordoned) - set(self._missing)))

    async def _there(self, resource: Resource, namespace: str | None) -> dict[str, Body]:
        """Return all objects of a kind by name."""
        items = (await list_all(self._connection, resource.path(namespace))).items
        return {one["metadata"]["name"]: one for one in map(_decoded, items)}

    async def _create(self, item: tuple[str, Body]) -> None:
        """Create something, and be sure that it was."""
        outcome = await create_all(self._connection, (item,))
        if outcome.failures:
            raise outcome.failures[0].error

    async def _patch(self, resource: Resource, name: str, patch: Body) -> None:
        await self._gently(self._connection.patch(resource.path(None, name), patch, MERGE_PATCH))

    async def _gently(self, request: Awaitable[bytes]) -> None:
        """Send a request about something that may be gone."""
        try:
            await request
        except ApiError as error:
            if not error.is_not_found:
                raise


def _told(pod: Body | None) -> str:
    """Return what a pod says of why it waits."""
    if pod is None:
        return "it is not there"
    conditions = pod["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "nobody says why")


def _decoded(item: bytes | msgspec.Raw) -> Body:
    found: Body = msgspec.json.decode(item)
    return found
