"""Find the trees of a namespace, and what a user calls them."""

from collections.abc import Iterator

from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Forest, Group, GroupKey
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.templates import effective_tree
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.trees import GroupView, NamespaceView, TreeViews
from cpg_cli.cluster.namespace_objects import NamespaceObjects
from cpg_cli.cluster.targets import KINDS, POD
from cpg_cli.failures import usage_error


class TreeModel:
    """The trees of some objects."""

    def __init__(self, objects: NamespaceObjects) -> None:
        """Sort the pods into groups."""
        self._workloads: dict[str, dict[tuple[str, str], Workload]] = {
            flavour: {(one.metadata.namespace, one.metadata.name): one for one in kinds.get(Workload, {}).values()}
            for flavour, kinds in objects.groups.items()
        }
        self._forests = {
            flavour: Forest.of([*kinds.get(PodGroup, {}).values(), *kinds.get(CompositePodGroup, {}).values()])
            for flavour, kinds in objects.groups.items()
        }
        self._members: dict[GroupKey, list[Pod]] = {}
        self._singles: list[Pod] = []
        for pod in objects.pods.values():
            name = membership(pod).group if self._forests else None
            if name is None:
                self._singles.append(pod)
            else:
                key = GroupKey(PodGroup.kind, pod.metadata.namespace, name)
                self._members.setdefault(key, []).append(pod)

    def view(self, target: str | None = None, namespace: str = "", *, with_pods: bool = False) -> NamespaceView:
        """Return all trees, or the one that is the target: a group, a pod, a Workload, or the owner of one."""
        anchors = self._anchors() if target is None else self._anchors_of(target, namespace)
        trees = (self._tree(flavour, anchor, with_pods=with_pods) for flavour, anchor in anchors)
        found = tuple(sorted(trees, key=lambda one: (one.namespace, one.created or "", one.name)))
        if target is not None:
            return NamespaceView(found)
        waiting = sum(not (pod.spec.node_name or pod.is_terminal) for pod in self._singles)
        return NamespaceView(found, len(self._singles), waiting)

    def _tree(self, flavour: str, anchor: GroupKey, *, with_pods: bool) -> GroupView:
        tree = effective_tree(self._forests[flavour].tree_of(anchor), self._workloads[flavour])
        views = TreeViews(flavour, self._members, lambda group: self._owner(flavour, group), with_pods=with_pods)
        return views.view(tree)

    def _anchors(self) -> list[tuple[str, GroupKey]]:
        """Return the top of each tree, also where only pods name it."""
        found = {
            (flavour, tree.anchor_key): None for flavour, forest in self._forests.items() for tree in forest.trees()
        }
        unknown = (key for key in self._members if not any(key in one.groups for one in self._forests.values()))
        found.update(dict.fromkeys((next(iter(self._forests)), key) for key in unknown))
        return list(found)

    def _anchors_of(self, target: str, namespace: str) -> list[tuple[str, GroupKey]]:
        kind, slash, name = target.rpartition("/")
        wanted = KINDS.get(kind.lower(), kind.lower())
        named = [
            (one, anchor)
            for anchor in self._anchors()
            for one, found in (self._names(*anchor) if anchor[1].namespace == namespace else ())
            if found == name and (not slash or one == wanted)
        ]
        trees = {anchor: None for one, anchor in named if one != POD} or {anchor: None for _, anchor in named}
        if not trees:
            single = any((pod.metadata.name, pod.metadata.namespace) == (name, namespace) for pod in self._singles)
            hint = "the pod is in no group: see `kubectl cpg explain`" if single else "see `kubectl cpg tree`"
            raise usage_error(f"{target} is no tree of namespace {namespace}", hint)
        return list(trees)

    def _names(self, flavour: str, anchor: GroupKey) -> Iterator[tuple[str, str]]:
        """Yield what a user can call a tree: the kind in small letters, and the name."""
        yield anchor.kind.lower(), anchor.name
        yield from ((POD, pod.metadata.name) for pod in self._members.get(anchor, ()))
        for node in self._forests[flavour].tree_of(anchor).nodes:
            yield node.group.kind.lower(), node.group.metadata.name
            if node.key != anchor:
                yield from ((POD, pod.metadata.name) for pod in self._members.get(node.key, ()))
            for meta in self._made_of(flavour, node.group):
                yield from ((owner.kind.lower(), owner.name) for owner in meta.owner_references if owner.controller)
            if (workload := self._workload(flavour, node.group)) is not None:
                yield Workload.kind.lower(), workload.metadata.name

    def _made_of(self, flavour: str, group: Group) -> list[ObjectMeta]:
        """Return the metadata of a group and of its Workload."""
        workload = self._workload(flavour, group)
        return [group.metadata, *([workload.metadata] if workload is not None else [])]

    def _workload(self, flavour: str, group: Group) -> Workload | None:
        reference = group.spec.workload_ref
        if reference is None:
            return None
        return self._workloads[flavour].get((group.metadata.namespace, reference.workload_name))

    def _owner(self, flavour: str, group: Group) -> str:
        """Return the controller of a group, or of its Workload."""
        owners = (
            owner
            for meta in self._made_of(flavour, group)
            for owner in meta.owner_references
            if owner.controller and owner.kind != Workload.kind
        )
        return next((f"{owner.kind}/{owner.name}" for owner in owners), "")
