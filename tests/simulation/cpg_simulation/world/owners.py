"""The controllers that own the pods of trees: each keeps the number of pods of each leaf."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.resources import PODS
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import TREE_LABEL, Manifest
from cpg_simulation.nights.plan import Flavour, TreePlan
from cpg_simulation.world.cluster_client import ClusterClient, name_of


@dataclass
class OwnedTree:
    """A tree whose controller runs."""

    plan: TreePlan
    pods: dict[str, int]
    """How many pods each leaf should have; a single pod is a leaf without a name."""
    is_ended: bool = False
    missing_groups: set[str] = field(default_factory=set)
    """Groups that a user has deleted and is about to create again."""
    count: int = 0
    """Pods created so far, for their names."""


class Owners:
    """The controllers of all trees."""

    def __init__(self, client: ClusterClient, flavour: Flavour) -> None:
        """Own nothing yet."""
        self.trees: dict[str, OwnedTree] = {}
        self.is_stopped = False
        """Whether no controller runs, so that no pod is created or deleted."""
        self._client = client
        self._flavour = flavour

    def owns(self, tree: OwnedTree) -> bool:
        """Return whether no user has deleted a tree."""
        return self.trees.get(tree.plan.name) is tree

    def sync(self) -> None:
        """Have as many pods as each leaf of each tree should have."""
        pods: defaultdict[str, list[Manifest]] = defaultdict(list)
        for pod in self._client.pods():
            pods[pod["metadata"]["labels"][TREE_LABEL]].append(pod)
        for tree in list(self.trees.values()):
            self._keep_pods(tree, pods[tree.plan.name])

    def keep_pods(self, tree: OwnedTree) -> None:
        """Have as many pods as each leaf should have."""
        self._keep_pods(tree, list(self._client.pods(tree.plan.name)))

    def _keep_pods(self, tree: OwnedTree, pods: list[Manifest]) -> None:
        if self.is_stopped or not self.owns(tree) or tree.is_ended:
            return
        living = self._living(pods)
        for leaf, wanted in tree.pods.items():
            found = living.get(leaf, [])
            for manifest in self._new_pods(tree, leaf, wanted, found):
                self._client.create(PODS, manifest, "controller")
            for pod in found[wanted:]:
                self._client.delete(PODS, name_of(pod), "controller")

    def _living(self, pods: list[Manifest]) -> dict[str, list[Manifest]]:
        """Return the pods that count by their leaf; delete those that have failed."""
        living: dict[str, list[Manifest]] = {}
        for pod in pods:
            phase = pod["status"].get("phase")
            if phase == "Failed":
                self._client.delete(PODS, name_of(pod), "controller")
            elif not pod["metadata"].get("deletionTimestamp") and phase in {"Pending", "Running"}:
                living.setdefault(_group_of(pod), []).append(pod)
        return living

    def _new_pods(self, tree: OwnedTree, leaf: str, wanted: int, living: list[Manifest]) -> Iterator[Manifest]:
        plan = next((group for group in tree.plan.groups if group.name == leaf), None)
        taken = {name_of(pod) for pod in living}
        for _ in range(wanted - len(living)):
            tree.count += 1
            numbers = range(wanted) if tree.plan.has_stable_names else [tree.count]
            names = (f"{leaf or tree.plan.name}-p{number}" for number in numbers)
            name = next(name for name in names if name not in taken)
            taken.add(name)
            yield manifests.pod(tree.plan, plan, name, self._flavour)


def _group_of(pod: Manifest) -> str:
    native: str | None = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    found: str = native or pod["metadata"]["labels"].get(POD_GROUP_LABEL, "")
    return found
