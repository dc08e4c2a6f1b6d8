"""A cluster in which everything comes and goes: trees of any shape, pods of no group, nodes, and changed minds."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.creating import create_all
from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, NODES, PODS, Resource
from cpg_lab.nodes import TOPOLOGY

NAMESPACE = "default"
BLOCK, RACK = f"{TOPOLOGY}/block", f"{TOPOLOGY}/rack"
Body = dict[str, Any]


@dataclass
class Tree:
    """What belongs together, and goes together: groups and pods by name, and in which domain each leaf has to be."""

    name: str
    groups: list[tuple[Resource, str]] = field(default_factory=list)
    pods: dict[str, str] = field(default_factory=dict)
    """Each with the rack key that it shares with its leaf, empty for none."""


class Churn:
    """Acts at random, by a seed, and knows what ought to be there."""

    def __init__(self, connection: Connection, seed: int, trees: int) -> None:
        """Keep up to so many trees alive."""
        self.alive: dict[str, Tree] = {}
        self.made = self.gone = self.acts = 0
        self._connection = connection
        self._dice = random.Random(seed)  # noqa: S311 - to be repeated
        self._trees = trees
        self._cordoned: list[str] = []

    async def act(self) -> None:
        """Do one thing."""
        self.acts += 1
        acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (1.0 if len(self.alive) < self._trees else 0.1, self._plant),
            (0.1 if len(self.alive) < self._trees else 1.0, self._fell),
            (0.15, self._lose_a_pod),
            (0.15, self._toggle_a_node),
            (0.1, self._relabel_a_node),
        ]
        weights = [weight for weight, _ in acts]
        await self._dice.choices([act for _, act in acts], weights)[0]()

    async def calm(self) -> None:
        """Make an end of it: all nodes serve, and everything that is left can be placed."""
        for name in self._cordoned:
            await self._patch(NODES, name, {"spec": {"unschedulable": None}})
        self._cordoned.clear()
        for tree in [tree for tree in self.alive.values() if "greedy" in tree.name]:
            await self._remove(tree)

    async def lost(self) -> list[str]:
        """Return what is wrong with the trees that ought to be there."""
        items = (await list_all(self._connection, NODES.path())).items
        labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in map(_decoded, items)}
        items = (await list_all(self._connection, PODS.path(NAMESPACE))).items
        pods = {one["metadata"]["name"]: one for one in map(_decoded, items)}
        places = {name: one["spec"].get("nodeName", "") for name, one in pods.items()}
        found = []
        for tree in self.alive.values():
            found += [f"{pod} waits: {_told(pods.get(pod))}" for pod in tree.pods if not places.get(pod)]
            racks: dict[str, set[str]] = {}
            for pod, leaf in tree.pods.items():
                if leaf and places.get(pod):
                    racks.setdefault(leaf, set()).add(labels[places[pod]][RACK])
            found += [f"{leaf} is in {len(seen)} racks" for leaf, seen in racks.items() if len(seen) > 1]
        return found

    async def _plant(self) -> None:
        """Create a tree, now and then one that nothing can hold."""
        dice = self._dice
        self.made += 1
        shape = dice.choice(("single", "gang", "gang", "tree", "tree", "greedy"))
        tree = Tree(f"{shape}-{self.made}")
        self.alive[tree.name] = tree
        items: list[tuple[str, Body]] = []
        if shape == "single":
            items.append(self._pod(tree, tree.name, "", ""))
        elif shape in {"gang", "greedy"}:
            size = dice.randint(2, 12)
            items += self._leaf(tree, tree.name, size, "", dice.choice((RACK, "")), greedy=shape == "greedy")
        else:
            leaves = dice.randint(2, 4)
            items.append(_made(CPG_COMPOSITE_POD_GROUPS, tree, tree.name, "", BLOCK, {"minGroupCount": leaves}))
            for number in range(leaves):
                items += self._leaf(tree, f"{tree.name}-{number}", dice.randint(1, 6), tree.name, RACK)
        for item in items if dice.random() < 0.7 else reversed(items):
            await self._create(item)

    def _leaf(
        self, tree: Tree, name: str, size: int, parent: str, key: str, *, greedy: bool = False
    ) -> list[tuple[str, Body]]:
        policy = {"minCount": size}
        group = _made(CPG_POD_GROUPS, tree, name, parent, key, policy)
        cpu = "64" if greedy else f"{self._dice.choice((100, 250, 500))}m"
        return [group, *(self._pod(tree, f"{name}-p{number}", name, key, cpu) for number in range(size))]

    def _pod(self, tree: Tree, name: str, group: str, key: str, cpu: str = "100m") -> tuple[str, Body]:
        tree.pods[name] = group if key == RACK else ""
        labels = {POD_GROUP_LABEL: group} if group else {}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        spec = {"schedulerName": SCHEDULER_NAME, "containers": [container], "terminationGracePeriodSeconds": 1}
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
        key = RACK if tree.pods.pop(name) else ""
        await self._gently(self._connection.delete(PODS.path(NAMESPACE, name)))
        await self._create(self._pod(tree, f"{tree.name}-again{self.acts}", tree.name, key))

    async def _toggle_a_node(self) -> None:
        """Cordon a node, or take the oldest cordon away."""
        if len(self._cordoned) > 3:
            await self._patch(NODES, self._cordoned.pop(0), {"spec": {"unschedulable": None}})
            return
        names = [_decoded(item)["metadata"]["name"] for item in (await list_all(self._connection, NODES.path())).items]
        name = self._dice.choice(sorted(set(names) - set(self._cordoned)))
        self._cordoned.append(name)
        await self._patch(NODES, name, {"spec": {"unschedulable": True}})

    async def _relabel_a_node(self) -> None:
        """Give a node a label that it did not have, of few that there are."""
        names = [_decoded(item)["metadata"]["name"] for item in (await list_all(self._connection, NODES.path())).items]
        labels = {"example.com/colour": self._dice.choice(("red", "green", "blue"))}
        await self._patch(NODES, self._dice.choice(names), {"metadata": {"labels": labels}})

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


def _made(resource: Resource, tree: Tree, name: str, parent: str, key: str, policy: Body) -> tuple[str, Body]:
    tree.groups.append((resource, name))
    spec: Body = {
        "schedulingPolicy": {"gang": policy},
        "workloadRef": {"workloadName": "absent", "templateName": "any"},
        **({"parentCompositePodGroupName": parent} if parent else {}),
        **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
    }
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return resource.path(NAMESPACE), {**kind, "metadata": {"name": name}, "spec": spec}


def _told(pod: Body | None) -> str:
    """Return what a pod says of why it waits."""
    if pod is None:
        return "it is not there"
    conditions = pod["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "nobody says why")


def _decoded(item: bytes | msgspec.Raw) -> Body:
    found: Body = msgspec.json.decode(item)
    return found
