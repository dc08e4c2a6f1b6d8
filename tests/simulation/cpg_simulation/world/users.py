"""The users: they create trees, and later change, delete or end them."""

from random import Random

from msgspec.structs import replace

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.resources import NODES, PODS, Resource
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.nights.plan import (
    Action,
    ChangeMinimum,
    DeletePods,
    Finish,
    LiftGates,
    Meddle,
    Meddling,
    Night,
    RecreateGroup,
    Remove,
    Scale,
    Submit,
    TreePlan,
)
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient, name_of
from cpg_simulation.world.owners import OwnedTree, Owners


class Users:
    """Carries out the actions of a night."""

    def __init__(
        self, night: Night, coordinator: Coordinator, client: ClusterClient, owners: Owners, random: Random
    ) -> None:
        """Act at the times of the plan."""
        self._flavour = night.flavour
        self._coordinator = coordinator
        self._client = client
        self._owners = owners
        self._random = random
        for action in night.actions:
            coordinator.at(action.at, self._act, action)

    def _act(self, action: Action) -> None:
        if isinstance(action, Submit):
            self._submit(action.tree, shuffled=action.shuffled)
        elif (tree := self._owners.trees.get(action.tree)) is not None:
            self._act_on(tree, action)

    def _act_on(self, tree: OwnedTree, action: Action) -> None:
        match action:
            case Finish():
                self._finish(tree)
            case Remove():
                self._remove(self._owners.trees.pop(action.tree))
            case DeletePods():
                pods = list(self._client.pods(action.tree))
                for pod in self._random.sample(pods, min(action.count, len(pods))):
                    self._client.delete(PODS, name_of(pod), grace=0 if action.force else None)
            case RecreateGroup():
                self._recreate(tree, action.seconds)
            case ChangeMinimum():
                self._change_minimum(tree.plan, action.group, action.gang)
            case Scale():
                tree.pods[action.group] = action.pods
            case LiftGates():
                self._lift_gates(tree)
            case Meddle():
                self._meddle(tree.plan, action.kind)

    def _submit(self, plan: TreePlan, *, shuffled: bool) -> None:
        leaves = {group.name: group.pods for group in plan.groups if group.pods is not None} or {"": 1}
        tree = self._owners.trees[plan.name] = OwnedTree(plan, leaves)
        groups = list(manifests.objects_of(plan, self._flavour))
        if shuffled:
            self._random.shuffle(groups)
            tree.missing_groups = {name_of(manifest) for _, manifest in groups}
        for resource, manifest in groups:
            seconds = self._random.random() * 3 if shuffled else 0.0
            self._coordinator.after(seconds, self._create_group, tree, resource, manifest)
        self._coordinator.after(self._random.random(), self._owners.keep_pods, tree)

    def _create_group(self, tree: OwnedTree, resource: Resource, manifest: Manifest) -> None:
        if not self._owners.owns(tree):
            return
        if self._client.create(resource, manifest):
            tree.missing_groups.discard(name_of(manifest))
        elif self._client.get(resource, name_of(manifest)) is None:
            self._coordinator.after(1.0, self._create_group, tree, resource, manifest)

    def _finish(self, tree: OwnedTree) -> None:
        tree.is_ended = True
        for pod in self._client.pods(tree.plan.name):
            if pod["spec"].get("nodeName"):
                self._client.merge(PODS, name_of(pod), {"status": {"phase": "Succeeded"}}, "kubelet", "status")
            else:
                self._client.delete(PODS, name_of(pod), "controller")

    def _remove(self, tree: OwnedTree) -> None:
        names = [(PODS, name_of(pod)) for pod in self._client.pods(tree.plan.name)]
        names += [
            (resource, name_of(manifest)) for resource, manifest in manifests.objects_of(tree.plan, self._flavour)
        ]
        self._random.shuffle(names)
        for resource, name in names:
            self._coordinator.after(self._random.random() * 2, self._delete_surely, resource, name)

    def _delete_surely(self, resource: Resource, name: str) -> None:
        found = self._client.get(resource, name)
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            self._client.delete(resource, name)
            self._coordinator.after(1.0, self._delete_surely, resource, name)

    def _recreate(self, tree: OwnedTree, seconds: float) -> None:
        group = self._random.choice(tree.plan.groups)
        resource, manifest = manifests.group(group, tree.plan, self._flavour)
        tree.missing_groups.add(group.name)
        self._client.delete(resource, group.name)
        if not tree.plan.is_instantiated:
            self._coordinator.after(seconds, self._create_again, tree, resource, manifest)

    def _create_again(self, tree: OwnedTree, resource: Resource, manifest: Manifest) -> None:
        """Create a group, once the one of its name is gone."""
        if self._owners.owns(tree) and self._client.get(resource, name_of(manifest)) is not None:
            self._coordinator.after(0.5, self._create_again, tree, resource, manifest)
        else:
            self._create_group(tree, resource, manifest)

    def _change_minimum(self, plan: TreePlan, name: str, gang: int) -> None:
        group = next(group for group in plan.groups if group.name == name)
        resource, _ = manifests.group(group, plan, self._flavour)
        minimum = "minCount" if group.pods is not None else "minGroupCount"
        found = self._client.get(resource, name)
        if found is not None and "gang" in found["spec"].get("schedulingPolicy", {}):
            self._client.merge(resource, name, {"spec": {"schedulingPolicy": {"gang": {minimum: gang}}}})

    def _lift_gates(self, tree: OwnedTree) -> None:
        tree.plan = replace(tree.plan, traits=tuple(trait for trait in tree.plan.traits if trait != "gated"))
        for pod in self._client.pods(tree.plan.name):
            if pod["spec"].get("schedulingGates"):
                self._client.merge(PODS, name_of(pod), {"spec": {"schedulingGates": None}})

    def _meddle(self, plan: TreePlan, kind: Meddling) -> None:
        pods = list(self._client.pods(plan.name))
        if kind == "delete-all":
            for pod in self._client.pods():
                self._client.delete(PODS, name_of(pod))
        elif kind == "delete-workload":
            self._client.delete(manifests.WORKLOADS[self._flavour], plan.name)
        elif kind == "remove-finalizers" and plan.groups:
            resource, manifest = manifests.group(self._random.choice(plan.groups), plan, self._flavour)
            self._client.merge(resource, name_of(manifest), {"metadata": {"finalizers": None}})
        elif pods:
            self._meddle_with_pod(plan, self._random.choice(pods), kind)

    def _meddle_with_pod(self, plan: TreePlan, pod: Manifest, kind: Meddling) -> None:
        if kind == "nominate":
            node = name_of(self._random.choice(self._client.objects(NODES)))
            self._client.merge(PODS, name_of(pod), {"status": {"nominatedNodeName": node}}, subresource="status")
            return
        leaves = [group.name for group in plan.groups if group.pods is not None]
        group = self._random.choice(leaves) if leaves and kind == "relabel" else None
        self._client.merge(PODS, name_of(pod), {"metadata": {"labels": {POD_GROUP_LABEL: group}}})
