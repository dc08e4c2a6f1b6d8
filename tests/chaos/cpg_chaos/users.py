"""Users and their controllers: trees, gangs and single pods of three priorities, for two schedulers."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cpg_api.decoding import decode
from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
from cpg_chaos.record import RunRecord
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.listing import list_all
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, PODS, PRIORITY_CLASSES, Resource
from cpg_lab.nodes import TOPOLOGY

Plain = dict[str, Any]
Item = tuple[Resource, Plain]
NAMESPACE = "default"
BLOCK, RACK = f"{TOPOLOGY}/block", f"{TOPOLOGY}/rack"
CLASSES = {"normal": 100, "urgent": 1000}
"""Pods without a class have priority 0."""
SHAPES = ("single", "gang", "gang", "whole", "tree", "tree", "urgent", "urgent-tree", "too-large", "foreign", "foreign")
TREE_LABEL = "example.com/tree"
RELEASE_AFTER = "15s"
"""A gang of which only a part is placed gives its room back after this time."""
OTHER_SCHEDULER = "default-scheduler"
SECONDS_BETWEEN_OPERATIONS = (0.0, 0.3)
SECONDS_BETWEEN_RECONCILES = 0.5
SECONDS_UNTIL_REPEATED = 0.2
REQUESTS_AT_ONCE = 4
NOT_FOUND, CONFLICT = 404, 409
RETRIED = {403, NOT_FOUND, CONFLICT, 410, 429, 500, 502, 503, 504}
"""Answers of an API server that starts or ends; it may not know priority classes and our kinds yet."""
ENDED = {"Succeeded", "Failed"}
GROUPS = (CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)
T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """The template of a pod."""

    group: str
    cpu: str
    priority: str


@dataclass
class UserTree:
    """Groups and pods that are created and deleted together; ``pods`` are those that should exist."""

    name: str
    groups: list[Item] = field(default_factory=list)
    pods: dict[str, Member] = field(default_factory=dict)


class Users:
    """Change the cluster at random, by a seed. A request that fails because of a fault is repeated."""

    def __init__(
        self, connection: Connection, record: RunRecord, seed: int, *, most: int, nodes: Mapping[str, int]
    ) -> None:
        """Keep about so many trees; ``nodes`` has the millicores of each."""
        self.trees: dict[str, UserTree] = {}
        self.is_idle = False
        self._busy = asyncio.Lock()
        self._connection, self._record, self._allocatable = connection, record, nodes
        self._random = random.Random(seed)  # noqa: S311  # a run can be repeated
        self._most = most
        self._numbers = itertools.count(1)

    async def prepare(self) -> None:
        """Create the priority classes."""
        for name, value in CLASSES.items():
            kind = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
            await self._create(PRIORITY_CLASSES, {**kind, "metadata": {"name": name}, "value": value})

    async def act(self) -> None:
        """Act as users until cancelled, with pauses while ``is_idle``."""
        while True:
            await asyncio.sleep(self._random.uniform(*SECONDS_BETWEEN_OPERATIONS))
            if not self.is_idle:
                async with self._busy:
                    await self._operate()

    async def control(self) -> None:
        """Act as controllers and kubelets until cancelled: replace pods, and reject them from over-committed nodes."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_RECONCILES)
            async with self._busy:
                await self._reconcile()

    async def rest(self) -> None:
        """Return when no operation of a user is under way; none begins until ``is_idle`` is false again."""
        self.is_idle = True
        async with self._busy:
            pass

    async def _operate(self) -> None:
        few = len(self.trees) < self._most
        operations: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._create_tree, 5 if few else 1),
            (self._delete_tree, 1 if few else 5),
            (self._delete_pod, 1),
            (self._complete_pod, 1),
        ]
        (operation,) = self._random.choices(*zip(*operations, strict=True))
        self._record.counts["operations of users"] += 1
        await operation()

    async def _create_tree(self) -> None:
        shape = self._random.choice(SHAPES)
        tree = UserTree(f"{shape}-{next(self._numbers)}")
        pods = list(self._shaped(shape, tree))
        items: list[Item] = [*tree.groups, *pods]
        self._record.counts["trees created"] += 1
        for batch in batches(items if self._random.random() < 0.7 else items[::-1]):
            await asyncio.gather(*(self._create(*item) for item in batch))
        self.trees[tree.name] = tree

    def _shaped(self, shape: str, tree: UserTree) -> Iterator[Item]:
        """Add the groups of a shape to a tree, and yield its pods."""
        rng = self._random
        if shape in {"single", "foreign"}:
            for _ in range(rng.randint(1, 6)):
                yield self._pod(tree, Member("", rng.choice(("500m", "1", "2")), rng.choice(("", "normal"))))
        elif shape.endswith("tree"):
            leaves, priority = rng.randint(2, 3), "urgent" if shape.startswith("urgent") else ""
            self._group(tree, tree.name, {"gang": {"minGroupCount": leaves}}, BLOCK, priority=priority)
            for number in range(leaves):
                size = rng.randint(2, 4)
                yield from self._leaf(tree, f"{tree.name}-{number}", size, RACK, priority=priority, parent=tree.name)
        else:
            priority = {"whole": "", "urgent": "urgent"}.get(shape, "normal")
            cpu = "16" if shape == "too-large" else rng.choice(("500m", "1", "2", "4"))
            yield from self._leaf(
                tree, tree.name, rng.randint(2, 8), rng.choice((RACK, "")), priority=priority, cpu=cpu, shape=shape
            )

    def _leaf(
        self,
        tree: UserTree,
        name: str,
        size: int,
        key: str,
        *,
        priority: str,
        parent: str = "",
        cpu: str = "1",
        shape: str = "",
    ) -> Iterator[Item]:
        least = size if self._random.random() < 0.7 else max(1, size - 1)
        mode: Plain = {"disruptionMode": {"all": {}}} if shape in {"whole", "urgent"} else {}
        self._group(tree, name, {"gang": {"minCount": least}}, key, priority=priority, parent=parent, more=mode)
        for _ in range(size):
            yield self._pod(tree, Member(name, cpu, priority))

    def _group(
        self,
        tree: UserTree,
        name: str,
        policy: Plain,
        key: str,
        *,
        priority: str,
        parent: str = "",
        more: Plain | None = None,
    ) -> None:
        resource = CPG_COMPOSITE_POD_GROUPS if "minGroupCount" in policy["gang"] else CPG_POD_GROUPS
        spec = {
            "schedulingPolicy": policy,
            "workloadRef": {"workloadName": "absent", "templateName": "any"},
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
            **({"priorityClassName": priority} if priority else {}),
            **(more or {}),
        }
        marks = {} if parent else {"annotations": {RELEASE_ANNOTATION: RELEASE_AFTER}}
        meta = {"name": name, "labels": {TREE_LABEL: tree.name}, **marks}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        tree.groups.append((resource, {**kind, "metadata": meta, "spec": spec}))

    def _pod(self, tree: UserTree, member: Member) -> Item:
        name = f"{tree.name}-p{next(self._numbers)}"
        tree.pods[name] = member
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": member.cpu}}}
        labels = {TREE_LABEL: tree.name, **({POD_GROUP_LABEL: member.group} if member.group else {})}
        spec = {
            "schedulerName": OTHER_SCHEDULER if tree.name.startswith("foreign") else SCHEDULER_NAME,
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            **({"priorityClassName": member.priority} if member.priority else {}),
        }
        return PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec}

    async def _delete_tree(self) -> None:
        if not self.trees:
            return
        tree = self.trees.pop(self._random.choice(list(self.trees)))
        self._record.counts["trees deleted"] += 1
        items: list[tuple[Resource, str]] = [
            *((PODS, name) for name in tree.pods),
            *((one, body["metadata"]["name"]) for one, body in tree.groups),
        ]
        for batch in batches(items if self._random.random() < 0.7 else items[::-1]):
            await asyncio.gather(*(self._delete(*item) for item in batch))

    async def _delete_pod(self) -> None:
        """Delete a pod; its controller replaces it."""
        if names := [name for tree in self.trees.values() for name in tree.pods]:
            await self._delete(PODS, self._random.choice(names))

    async def _complete_pod(self) -> None:
        """Let a running single pod succeed; its controller does not replace it."""
        running = {one["metadata"]["name"] for one in await self._list(PODS) if one["status"].get("phase") == "Running"}
        singles = [(tree, name) for tree in self.trees.values() if not tree.groups for name in tree.pods]
        if found := [(tree, name) for tree, name in singles if name in running]:
            tree, name = self._random.choice(found)
            del tree.pods[name]
            await self._set_phase(name, "Succeeded")
            self._record.counts["pods completed"] += 1

    async def _reconcile(self) -> None:
        """Reject pods as kubelets do; delete what is not wanted, and create what is missing."""
        present = {resource: await self._list(resource) for resource in (PODS, *GROUPS)}
        for name in rejected_pods(present[PODS], self._allocatable):
            self._record.counts["pods rejected by kubelets"] += 1
            await self._set_phase(name, "Failed")
        wanted = {body["metadata"]["name"] for tree in self.trees.values() for _, body in tree.groups}
        wanted |= {name for tree in self.trees.values() for name in tree.pods}
        for resource, objects in present.items():
            for one in objects:
                meta = one["metadata"]
                has_tree = meta["labels"].get(TREE_LABEL) in self.trees and one["status"].get("phase") in ENDED
                if meta["name"] not in wanted and "deletionTimestamp" not in meta and not has_tree:
                    await self._delete(resource, meta["name"])
        for tree in list(self.trees.values()):
            await self._create_missing(tree, present)

    async def _create_missing(self, tree: UserTree, present: Mapping[Resource, list[Plain]]) -> None:
        for resource, body in tree.groups:
            if all(one["metadata"]["name"] != body["metadata"]["name"] for one in present[resource]):
                await self._create(resource, body)
        alive = {one["metadata"]["name"] for one in present[PODS] if one["status"].get("phase") != "Failed"}
        for name in [name for name in tree.pods if name not in alive]:
            member = tree.pods.pop(name)
            await self._delete(PODS, name)
            await self._create(*self._pod(tree, member))
            self._record.counts["pods replaced"] += 1

    async def _list(self, resource: Resource) -> list[Plain]:
        path = resource.path(NAMESPACE)
        found = await self._repeated(lambda: list_all(self._connection, path))
        return [decode(one) for one in found.items] if found is not None else []

    async def _create(self, resource: Resource, body: Plain) -> None:
        path = resource.path(NAMESPACE if resource.namespaced else None)
        await self._repeated(lambda: self._connection.post(path, body), final=CONFLICT)

    async def _delete(self, resource: Resource, name: str) -> None:
        await self._repeated(lambda: self._connection.delete(resource.path(NAMESPACE, name)), final=NOT_FOUND)

    async def _set_phase(self, name: str, phase: str) -> None:
        path, patch = PODS.path(NAMESPACE, name, "status"), {"status": {"phase": phase}}
        await self._repeated(lambda: self._connection.patch(path, patch, MERGE_PATCH), final=NOT_FOUND)

    async def _repeated(self, request: Callable[[], Awaitable[T]], *, final: int = 0) -> T | None:
        """Repeat a request until it succeeds, or fails with the status that says that there is nothing to do."""
        while True:
            try:
                return await request()
            except ApiError as error:
                if error.status == final:
                    return None
                if error.status not in RETRIED:
                    raise
            except ClientError:
                pass
            await asyncio.sleep(SECONDS_UNTIL_REPEATED)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield a few items at a time, which are sent at once."""
    return (items[start : start + REQUESTS_AT_ONCE] for start in range(0, len(items), REQUESTS_AT_ONCE))


def rejected_pods(pods: Sequence[Plain], allocatable: Mapping[str, int]) -> list[str]:
    """Return the latest pod of each over-committed node, which its kubelet rejects."""
    by_node: dict[str, list[Plain]] = {}
    for one in pods:
        if one["spec"].get("nodeName") and one["status"].get("phase") not in ENDED:
            by_node.setdefault(one["spec"]["nodeName"], []).append(one)
    return [
        max(there, key=_bound_since)["metadata"]["name"]
        for node, there in by_node.items()
        if sum(map(requested, there)) > allocatable[node]
    ]


def requested(pod: Plain) -> int:
    """Return the millicores that a pod requests."""
    return sum(milli(one["resources"]["requests"]["cpu"]) for one in pod["spec"]["containers"])


def milli(cpu: str) -> int:
    """Return a quantity of CPU in millicores."""
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else int(cpu) * 1000


def _bound_since(pod: Plain) -> tuple[str, str]:
    conditions = pod["status"].get("conditions") or ()
    times = [one["lastTransitionTime"] for one in conditions if one["type"] == "PodScheduled"]
    return max(times, default=""), pod["metadata"]["name"]
