"""All that is not ours: users, controllers of pods, kubelets, the garbage collector, and another scheduler.

Each is simple, and right in the end: it reads the state of the API server now and then, and does what is missing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Answer, Request, Write
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.nights.plan import (
    Action,
    ChangeMinimum,
    DeletePods,
    Finish,
    GroupPlan,
    Night,
    RecreateGroup,
    Remove,
    Scale,
    Submit,
    TreePlan,
)
from cpg_simulation.virtual.coordinator import Coordinator

SECONDS_BETWEEN_SYNCS = 1.0
SECONDS_BEFORE_PODS_OF_GONE_NODES_GO = 4.0


@dataclass
class _Tree:
    """A tree whose controller runs."""

    plan: TreePlan
    pods: dict[str, int]
    """How many pods each leaf should have; a single pod is a leaf without a name."""
    is_ended: bool = False
    missing_groups: set[str] = field(default_factory=set)
    """Groups that a user has deleted and is about to create again."""
    count: int = 0
    """Pods created so far, for their names."""


class World:
    """Acts on the API server, whatever fails."""

    def __init__(self, night: Night, coordinator: Coordinator, server: ApiServer, random: Random) -> None:
        """Create what is there at the beginning."""
        self.night = night
        self.rejecting: set[str] = set()
        """The nodes whose kubelets refuse new pods."""
        self.is_down = False
        """Whether the API server cannot be reached."""
        self._coordinator = coordinator
        self._server = server
        self._random = random
        self._trees: dict[str, _Tree] = {}
        self._seen_bound: set[str] = set()
        self._ending: set[str] = set()
        self._gone_since: dict[str, float] = {}
        for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
            self.create(PRIORITY_CLASSES, manifests.priority_class(name, value))
        self.create(NAMESPACES, {"metadata": {"name": manifests.NAMESPACE}})
        for plan in night.nodes:
            self.create(NODES, manifests.node(plan))
        server.on_write.append(self._on_write)
        for action in night.actions:
            coordinator.at(action.at, self._act, action)
        coordinator.after(SECONDS_BETWEEN_SYNCS, self._sync)

    # Requests.

    def create(self, resource: Resource, manifest: Manifest, user: str = "user") -> bool:
        """Create an object; return whether it was accepted."""
        namespace = manifest["metadata"].get("namespace") if resource.namespaced else None
        return self._call("POST", resource.path(namespace), manifest, user).status == 201

    def delete(self, resource: Resource, name: str, user: str = "user", grace: int | None = None) -> None:
        """Delete an object."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self._call("DELETE", _path(resource, name), options, user)

    def merge(self, resource: Resource, name: str, body: Manifest, user: str = "user", subresource: str = "") -> bool:
        """Merge fields into an object; return whether it was accepted."""
        path = f"{_path(resource, name)}/{subresource}" if subresource else _path(resource, name)
        return self._call("PATCH", path, body, user, "application/merge-patch+json").status == 200

    def pods(self, tree: str = "") -> Iterator[Manifest]:
        """Yield the pods, of one tree or of all."""
        for found in list(self._server.objects(key(PODS))):
            if not tree or found["metadata"].get("labels", {}).get(manifests.TREE_LABEL) == tree:
                yield found

    def _call(
        self, method: str, path: str, body: Manifest, user: str, content_type: str = "application/json"
    ) -> Answer:
        if self.is_down:
            return Answer(503, b"{}")
        request = Request(
            method=method,
            path=path,
            query={},
            body=json.dumps(body).encode(),
            content_type=content_type,
            user=user,
            manager=user,
        )
        answer = self._server.handle(request)
        if not isinstance(answer, Answer):
            raise TypeError(f"no answer to {method} {path}")
        return answer

    # Users.

    def _act(self, action: Action) -> None:
        if isinstance(action, Submit):
            self._submit(action.tree, shuffled=action.shuffled)
        elif (tree := self._trees.get(action.tree)) is not None:
            self._act_on(tree, action)

    def _act_on(self, tree: _Tree, action: Action) -> None:
        match action:
            case Finish():
                self._finish(tree)
            case Remove():
                self._remove(self._trees.pop(action.tree))
            case DeletePods():
                pods = list(self.pods(action.tree))
                for pod in self._random.sample(pods, min(action.count, len(pods))):
                    self.delete(PODS, _name(pod), grace=0 if action.force else None)
            case RecreateGroup():
                self._recreate(tree, action.seconds)
            case ChangeMinimum():
                self._change_minimum(tree.plan, action.group, action.gang)
            case Scale():
                tree.pods[action.group] = action.pods

    def _finish(self, tree: _Tree) -> None:
        tree.is_ended = True
        for pod in self.pods(tree.plan.name):
            if pod["spec"].get("nodeName"):
                self.merge(PODS, _name(pod), {"status": {"phase": "Succeeded"}}, "kubelet", "status")
            else:
                self.delete(PODS, _name(pod), "controller")

    def _submit(self, plan: TreePlan, *, shuffled: bool) -> None:
        leaves = {group.name: group.pods for group in plan.groups if group.pods is not None} or {"": 1}
        tree = self._trees[plan.name] = _Tree(plan, leaves)
        groups = list(manifests.objects_of(plan, self.night.flavour))
        if shuffled:
            self._random.shuffle(groups)
            tree.missing_groups = {manifest["metadata"]["name"] for _, manifest in groups}
        for resource, manifest in groups:
            seconds = self._random.random() * 3 if shuffled else 0.0
            self._coordinator.after(seconds, self._create_group, tree, resource, manifest)
        self._coordinator.after(self._random.random(), self._keep_pods, tree)

    def _create_group(self, tree: _Tree, resource: Resource, manifest: Manifest) -> None:
        if self._trees.get(tree.plan.name) is not tree:
            return
        if self.create(resource, manifest):
            tree.missing_groups.discard(manifest["metadata"]["name"])
        elif _get(self._server, resource, manifest["metadata"]["name"]) is None:
            self._coordinator.after(1.0, self._create_group, tree, resource, manifest)

    def _remove(self, tree: _Tree) -> None:
        names = [(PODS, _name(pod)) for pod in self.pods(tree.plan.name)]
        names += [
            (resource, manifest["metadata"]["name"])
            for resource, manifest in manifests.objects_of(tree.plan, self.night.flavour)
        ]
        self._random.shuffle(names)
        for resource, name in names:
            self._coordinator.after(self._random.random() * 2, self._delete_surely, resource, name)

    def _delete_surely(self, resource: Resource, name: str) -> None:
        found = _get(self._server, resource, name)
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            self.delete(resource, name)
            self._coordinator.after(1.0, self._delete_surely, resource, name)

    def _recreate(self, tree: _Tree, seconds: float) -> None:
        group = self._random.choice(tree.plan.groups)
        resource, manifest = manifests.group(group, tree.plan, self.night.flavour)
        tree.missing_groups.add(group.name)
        self.delete(resource, group.name)
        self._coordinator.after(seconds, self._create_again, tree, resource, manifest)

    def _create_again(self, tree: _Tree, resource: Resource, manifest: Manifest) -> None:
        """Create a group, once the one of its name is gone."""
        if self._trees.get(tree.plan.name) is not tree:
            return
        if _get(self._server, resource, manifest["metadata"]["name"]) is not None:
            self._coordinator.after(0.5, self._create_again, tree, resource, manifest)
        else:
            self._create_group(tree, resource, manifest)

    def _change_minimum(self, plan: TreePlan, name: str, gang: int) -> None:
        group = next(group for group in plan.groups if group.name == name)
        resource, _ = manifests.group(group, plan, self.night.flavour)
        minimum = "minCount" if group.pods is not None else "minGroupCount"
        found = _get(self._server, resource, name)
        if found is not None and "gang" in found["spec"].get("schedulingPolicy", {}):
            self.merge(resource, name, {"spec": {"schedulingPolicy": {"gang": {minimum: gang}}}})

    # Controllers.

    def _sync(self) -> None:
        self._coordinator.after(SECONDS_BETWEEN_SYNCS, self._sync)
        if self.is_down:
            return
        for tree in list(self._trees.values()):
            if not tree.is_ended:
                self._keep_pods(tree)
        self._collect_garbage()
        self._sync_kubelets()
        if self.night.competitor:
            self._place_foreign_pods()

    def _keep_pods(self, tree: _Tree) -> None:
        """Have as many pods as each leaf should have."""
        if self._trees.get(tree.plan.name) is not tree or tree.is_ended:
            return
        living: dict[str, list[Manifest]] = {}
        for pod in self.pods(tree.plan.name):
            if not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") in {"Pending", "Running"}:
                living.setdefault(_group_of(pod), []).append(pod)
            elif pod["status"].get("phase") == "Failed":
                self.delete(PODS, _name(pod), "controller")
        plans: dict[str, GroupPlan | None] = {group.name: group for group in tree.plan.groups}
        for leaf, wanted in tree.pods.items():
            found = living.get(leaf, [])
            for _ in range(wanted - len(found)):
                tree.count += 1
                name = f"{leaf or tree.plan.name}-p{tree.count}"
                self.create(PODS, manifests.pod(tree.plan, plans.get(leaf), name, self.night.flavour), "controller")
            for pod in found[wanted:]:
                self.delete(PODS, _name(pod), "controller")

    def _collect_garbage(self) -> None:
        """Delete the pods of nodes that have been gone for a while."""
        nodes = {_name(node) for node in self._server.objects(key(NODES))}
        for pod in self.pods():
            node = pod["spec"].get("nodeName")
            uid = pod["metadata"]["uid"]
            if not node or node in nodes:
                self._gone_since.pop(uid, None)
                continue
            since = self._gone_since.setdefault(uid, self._coordinator.now)
            if self._coordinator.now - since >= SECONDS_BEFORE_PODS_OF_GONE_NODES_GO:
                self.delete(PODS, _name(pod), "pod-garbage-collector", grace=0)

    # Kubelets.

    def _on_write(self, write: Write) -> None:
        pod = write.new
        if write.resource == key(PODS) and pod is not None and pod["spec"].get("nodeName"):
            self._see_pod(pod)

    def _sync_kubelets(self) -> None:
        """Look at all pods again: a request of a kubelet may have failed, or a restore may have undone it."""
        self._seen_bound.clear()
        self._ending.clear()
        for pod in self.pods():
            if pod["spec"].get("nodeName"):
                self._see_pod(pod)

    def _see_pod(self, pod: Manifest) -> None:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        if meta.get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                seconds = self._random.random() * meta.get("deletionGracePeriodSeconds", 0) + 0.05
                self._coordinator.after(seconds, self._end_pod, pod)
        elif uid not in self._seen_bound and pod["status"].get("phase") == "Pending":
            self._seen_bound.add(uid)
            self._coordinator.after(0.1 + self._random.random(), self._start_pod, pod)

    def _start_pod(self, pod: Manifest) -> None:
        found = _get(self._server, PODS, _name(pod))
        if found is None or found["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        node = found["spec"].get("nodeName", "")
        if node and found["status"].get("phase") == "Pending" and _get(self._server, NODES, node) is not None:
            phase = "Failed" if node in self.rejecting else "Running"
            self.merge(PODS, _name(pod), {"status": {"phase": phase}}, "kubelet", "status")

    def _end_pod(self, pod: Manifest) -> None:
        found = _get(self._server, PODS, _name(pod))
        if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.delete(PODS, _name(pod), "kubelet", grace=0)

    # The other scheduler.

    def _place_foreign_pods(self) -> None:
        """Bind pending pods of the default scheduler where they fit."""
        room = {_name(node): self._room(node) for node in self._server.objects(key(NODES)) if _is_usable(node)}
        for pod in self.pods():
            if pod["spec"].get("nodeName"):
                continue
            if pod["spec"]["schedulerName"] != "default-scheduler" or pod["metadata"].get("deletionTimestamp"):
                continue
            cpu = _cpu(pod)
            fitting = [name for name, (free, slots) in room.items() if free >= cpu and slots]
            if fitting:
                name = self._random.choice(fitting)
                body = {"metadata": {"name": _name(pod)}, "target": {"kind": "Node", "name": name}}
                self._call("POST", f"{_path(PODS, _name(pod))}/binding", body, "kube-scheduler")
                free, slots = room[name]
                room[name] = free - cpu, slots - 1

    def _room(self, node: Manifest) -> tuple[int, int]:
        amounts = node["status"]["allocatable"]
        there = [pod for pod in self.pods() if pod["spec"].get("nodeName") == _name(node) and _takes_room(pod)]
        return int(amounts["cpu"].removesuffix("m")) - sum(map(_cpu, there)), int(amounts["pods"]) - len(there)


def _is_usable(node: Manifest) -> bool:
    return not node["spec"].get("unschedulable") and not node["spec"].get("taints")


def _takes_room(pod: Manifest) -> bool:
    return pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _cpu(pod: Manifest) -> int:
    return sum(
        int(container["resources"]["requests"]["cpu"].removesuffix("m")) for container in pod["spec"]["containers"]
    )


def _name(found: Manifest) -> str:
    name: str = found["metadata"]["name"]
    return name


def _group_of(pod: Manifest) -> str:
    native: Any = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    found: str = native or pod["metadata"]["labels"].get(POD_GROUP_LABEL, "")
    return found


def _path(resource: Resource, name: str) -> str:
    return resource.path(manifests.NAMESPACE if resource.namespaced else None, name)


def _get(server: ApiServer, resource: Resource, name: str) -> Manifest | None:
    found: Manifest | None = server.get(key(resource), manifests.NAMESPACE if resource.namespaced else "", name)
    return found


def key(resource: Resource) -> str:
    """Return the plural with its group, as the API server names a resource."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
