"""Random changes of a cluster: trees of all shapes and priorities, single pods, nodes and their labels."""

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
MAX_URGENT_TREES, MAX_CORDONED_NODES, MAX_DELETED_NODES = 5, 3, 2
SHAPES = ("single", "gang", "gang", "gang", "tree", "tree", "tree", "too-large", URGENT)
Body = dict[str, Any]


class Flavour(NamedTuple):
    """The kinds of groups, and how a pod names its group."""

    leaf: Resource
    composite: Resource
    is_native: bool = False


FLAVOURS = {
    "crd": Flavour(CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS),
    "native": Flavour(NATIVE_POD_GROUPS, NATIVE_COMPOSITE_POD_GROUPS, is_native=True),
}


class Member(msgspec.Struct, frozen=True):
    """The template of a pod; ``rack`` is the name of its group if that requires one rack."""

    group: str
    rack: str
    cpu: str
    priority: str


@dataclass
class Tree:
    """The groups and pods that are created and deleted together, by name."""

    name: str
    groups: list[tuple[Resource, str]] = field(default_factory=list)
    pods: dict[str, Member] = field(default_factory=dict)
    priority: str = ""


class Churn:
    """Changes a cluster at random, by a seed, and knows which objects should exist."""

    def __init__(self, connection: Connection, seed: int, *, trees: int, pool: NodePool, api: str) -> None:
        """Keep about so many trees of this flavour on these nodes."""
        self.alive: dict[str, Tree] = {}
        self.created = self.deleted = self.acts = self.replaced = 0
        self._connection = connection
        self._random = random.Random(seed)  # noqa: S311 - reproducible by its seed
        self._trees = trees
        self._positions = {pool.name(place): place for place in pool.positions()}
        self._pool = pool
        self._flavour = FLAVOURS[api]
        self._cordoned: list[str] = []
        self._deleted_nodes: list[str] = []

    async def prepare(self) -> None:
        """Create the priority class."""
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "value": 1000}
        await self._create((PRIORITY_CLASSES.path(), {**body, "metadata": {"name": URGENT}}))

    async def change(self) -> None:
        """Make one random change."""
        self.acts += 1
        acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (1.0 if len(self.alive) < self._trees else 0.1, self._create_tree),
            (0.1 if len(self.alive) < self._trees else 1.0, self._delete_tree),
            (0.15, self._replace_pod),
            (0.15, self._toggle_cordon),
            (0.1, self._relabel_node),
            (0.1, self._delete_or_restore_node),
            (0.1, self.replace_missing_pods),
        ]
        weights = [weight for weight, _ in acts]
        await self._random.choices([act for _, act in acts], weights)[0]()

    async def settle(self) -> None:
        """Restore all nodes, and remove the trees that may stay pending."""
        while self._deleted_nodes:
            await self._create_node(self._deleted_nodes.pop())
        for name in self._cordoned:
            await self._patch(NODES, name, {"spec": {"unschedulable": None}})
        self._cordoned.clear()
        for tree in [tree for tree in self.alive.values() if "too-large" in tree.name or tree.priority]:
            await self._remove(tree)

    async def replace_missing_pods(self) -> None:
        """Create a new pod for each that was evicted or deleted with its node, as its controller would."""
        there = await self._objects(PODS, NAMESPACE)
        for tree in list(self.alive.values()):
            for name in [name for name in tree.pods if name not in there]:
                member = tree.pods.pop(name)
                self.replaced += 1
                await self._create(self._pod(tree, f"{tree.name}-for{self.replaced}", member))

    async def problems(self) -> list[str]:
        """Return the problems of the trees that should exist: pending pods, and groups in two racks."""
        nodes, pods = await self._objects(NODES, None), await self._objects(PODS, NAMESPACE)
        places = {name: one["spec"].get("nodeName", "") for name, one in pods.items()}
        found = []
        for tree in self.alive.values():
            found += [f"{pod} waits: {_pending_reason(pods.get(pod))}" for pod in tree.pods if not places.get(pod)]
            racks: dict[str, set[str]] = {}
            for pod, member in tree.pods.items():
                node = nodes.get(places.get(pod, ""))
                if member.rack and node:
                    racks.setdefault(member.rack, set()).add(node["metadata"]["labels"][RACK])
            found += [f"{leaf} is in {len(seen)} racks" for leaf, seen in racks.items() if len(seen) > 1]
        return found

    async def _create_tree(self) -> None:
        """Create a tree of a random shape; some fit nowhere, and some need preemption."""
        rng = self._random
        shape = rng.choice(SHAPES)
        urgent = [tree for tree in self.alive.values() if tree.priority]
        if shape == URGENT and len(urgent) >= MAX_URGENT_TREES:
            await self._remove(urgent[0])
            return
        self.created += 1
        tree = Tree(f"{shape}-{self.created}", priority=URGENT if shape == URGENT else "")
        self.alive[tree.name] = tree
        items: list[tuple[str, Body]] = []
        if shape == "single":
            items.append(self._pod(tree, tree.name, Member("", "", "100m", "")))
        elif shape == URGENT:
            items += self._leaf(tree, tree.name, rng.randint(6, 8), "", RACK, cpu="7700m")
        elif shape in {"gang", "too-large"}:
            cpu = "64" if shape == "too-large" else self._share()
            items += self._leaf(tree, tree.name, rng.randint(2, 12), "", rng.choice((RACK, "")), cpu=cpu)
        else:
            leaves = rng.randint(2, 4)
            items.append(self._group(tree, tree.name, "", BLOCK, composite=leaves))
            for number in range(leaves):
                size, name = rng.randint(1, 6), f"{tree.name}-{number}"
                items += self._leaf(tree, name, size, tree.name, RACK, cpu=self._share())
        for item in items if rng.random() < 0.7 else reversed(items):
            await self._create(item)

    def _share(self) -> str:
        return f"{self._random.choice((100, 250, 500))}m"

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

    async def _delete_tree(self) -> None:
        """Delete a random tree."""
        if self.alive:
            await self._remove(self.alive[self._random.choice(sorted(self.alive))])

    async def _remove(self, tree: Tree) -> None:
        del self.alive[tree.name]
        self.deleted += 1
        for resource, name in [*((PODS, name) for name in tree.pods), *tree.groups]:
            await self._ignore_missing(self._connection.delete(resource.path(NAMESPACE, name)))

    async def _replace_pod(self) -> None:
        """Delete a pod of a gang and create another, as its controller would."""
        trees = [tree for name, tree in sorted(self.alive.items()) if name.startswith("gang")]
        if not trees:
            return
        tree = self._random.choice(trees)
        name = self._random.choice(sorted(tree.pods))
        member = tree.pods.pop(name)
        await self._ignore_missing(self._connection.delete(PODS.path(NAMESPACE, name)))
        await self._create(self._pod(tree, f"{tree.name}-again{self.acts}", member))

    async def _toggle_cordon(self) -> None:
        """Cordon a node, or uncordon the oldest one."""
        if len(self._cordoned) > MAX_CORDONED_NODES:
            await self._patch(NODES, self._cordoned.pop(0), {"spec": {"unschedulable": None}})
            return
        name = self._random_node()
        self._cordoned.append(name)
        await self._patch(NODES, name, {"spec": {"unschedulable": True}})

    async def _relabel_node(self) -> None:
        """Change a label of a node."""
        labels = {"example.com/colour": self._random.choice(("red", "green", "blue"))}
        await self._patch(NODES, self._random_node(), {"metadata": {"labels": labels}})

    async def _delete_or_restore_node(self) -> None:
        """Delete a node with its pods, or create the oldest deleted one again."""
        if len(self._deleted_nodes) >= MAX_DELETED_NODES:
            await self._create_node(self._deleted_nodes.pop(0))
            return
        name = self._random_node()
        self._deleted_nodes.append(name)
        await self._ignore_missing(self._connection.delete(NODES.path(None, name)))
        for pod, body in (await self._objects(PODS, NAMESPACE)).items():
            if body["spec"].get("nodeName") == name:
                at_once = {"gracePeriodSeconds": 0}
                await self._ignore_missing(self._connection.delete(PODS.path(NAMESPACE, pod), at_once))

    async def _create_node(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        await self._create((NODES.path(), manifest(self._pool, self._positions[name], now=now)))

    def _random_node(self) -> str:
        """Return a random node that is neither cordoned nor deleted."""
        return self._random.choice(sorted(self._positions.keys() - set(self._cordoned) - set(self._deleted_nodes)))

    async def _objects(self, resource: Resource, namespace: str | None) -> dict[str, Body]:
        """Return all objects of a kind by name."""
        items = (await list_all(self._connection, resource.path(namespace))).items
        return {one["metadata"]["name"]: one for one in map(_decoded, items)}

    async def _create(self, item: tuple[str, Body]) -> None:
        """Create an object; raise if that fails."""
        outcome = await create_all(self._connection, (item,))
        if outcome.failures:
            raise outcome.failures[0].error

    async def _patch(self, resource: Resource, name: str, patch: Body) -> None:
        await self._ignore_missing(self._connection.patch(resource.path(None, name), patch, MERGE_PATCH))

    async def _ignore_missing(self, request: Awaitable[bytes]) -> None:
        """Send a request for an object that may be gone."""
        try:
            await request
        except ApiError as error:
            if not error.is_not_found:
                raise


def _pending_reason(pod: Body | None) -> str:
    """Return why a pod is pending, by its condition."""
    if pod is None:
        return "it does not exist"
    conditions = pod["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "it has no condition")


def _decoded(item: bytes | msgspec.Raw) -> Body:
    found: Body = msgspec.json.decode(item)
    return found
