"""The objects of the API server as the rules see them: brought up to date by each write, and indexed.

Nothing of the processes under test is in here. Trees are built by ``cpg_api``; everything else is plain loops.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.node import Node
from cpg_api.core.pod import TERMINAL_PHASES, Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey, Tree, key_of, parent_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import GROUP, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import effective_group, effective_tree, resolved_priority
from cpg_api.scheduling.workload import Workload
from cpg_api.selectors import LabelMatcher
from cpg_simulation.checks.claims import CLAIMS, TrackedClaims, track
from cpg_simulation.checks.knowledge import View
from cpg_simulation.checks.quantities import requests
from cpg_simulation.checks.values import Object, RecordedWrite

K = TypeVar("K")
S = TypeVar("S")
GROUP_KINDS: dict[str, type[PodGroup] | type[CompositePodGroup]] = {
    "podgroups": PodGroup,
    "compositepodgroups": CompositePodGroup,
}
BUDGETS = "poddisruptionbudgets.policy"
Revisions: TypeAlias = list[tuple[int, Node | None]]


def full_name(found: Object) -> str:
    """Return ``namespace/name``, or the name alone of an object without a namespace."""
    meta = found["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def is_deleting(found: Object) -> bool:
    """Return whether an object is being deleted."""
    return bool(found["metadata"].get("deletionTimestamp"))


class TrackedPod:
    """A pod: its present object, and when it was created and bound, by revision."""

    def __init__(self, raw: Object, created_at: int) -> None:
        self.name = full_name(raw)
        self.created_at = created_at
        self.bound_at = created_at
        self.bound_by = ""
        """The process that has bound it; empty for others."""
        self.left_at = math.inf
        """The revision at which it was deleted or had ended."""
        self.raw = raw
        self.pod = Pod()
        self.group: GroupKey | None = None
        self.requests: Counter[str] = Counter()
        self.requests_before: Counter[str] = Counter()
        self.resized_at = created_at

    def requests_in(self, view: View) -> Counter[str]:
        """Return what the pod requests; while a process has not seen that it was resized, the smaller amounts."""
        return self.requests if view.sees("pods", self.resized_at) else self.requests & self.requests_before

    @property
    def node(self) -> str:
        """The node of the pod, or an empty string."""
        return str(self.raw["spec"].get("nodeName") or "")

    @property
    def phase(self) -> str:
        """The phase of the pod."""
        return str(self.raw.get("status", {}).get("phase", ""))

    @property
    def has_ended(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return self.phase in TERMINAL_PHASES

    @property
    def is_deleting(self) -> bool:
        """Whether the pod is being deleted."""
        return is_deleting(self.raw)

    @property
    def takes_room(self) -> bool:
        """Whether the pod takes room on a node."""
        return bool(self.node) and not self.has_ended

    @property
    def is_placed(self) -> bool:
        """Whether the pod counts for the minimum of its group: it has a node or has succeeded, and stays."""
        return not self.is_deleting and (self.takes_room or self.phase == "Succeeded")

    @property
    def priority(self) -> int:
        """The priority of the pod."""
        return self.pod.spec.priority or 0

    def present(self) -> Pod:
        """Return the pod with its present status, and the group that it derives."""
        found = msgspec.convert(self.raw, Pod)
        return replace(found, derived_group=self.pod.derived_group, derived_owner=self.pod.derived_owner)

    def conditions(self) -> list[Object]:
        """Return the conditions of the pod."""
        return self.raw.get("status", {}).get("conditions") or []

    def __str__(self) -> str:
        return f"Pod {self.name}"


class ObservedCluster:
    """All objects that the rules read."""

    def __init__(self, scheduler_name: str = SCHEDULER_NAME, api_groups: Sequence[str] = (GROUP,)) -> None:
        self.scheduler_name = scheduler_name
        self.pods: dict[str, TrackedPod] = {}
        self.budgets: dict[str, tuple[int, LabelMatcher, int]] = {}
        """The PodDisruptionBudgets that there are or were: when each was last written, its selector, what it allows."""
        self.refused_victims: set[str] = set()
        """The pods, by UID, of which an eviction was ever refused."""
        self.gone: list[tuple[int, TrackedPod]] = []
        """The pods that are gone, each with the revision that removed it."""
        self.on_node: defaultdict[str, dict[str, TrackedPod]] = defaultdict(dict)
        self.nodes: dict[str, Revisions] = {}
        self.claims: TrackedClaims = {}
        """The claims for devices, by name."""
        self.raw: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        """All objects, by resource and name."""
        self.stores = {group: GroupStore(group) for group in api_groups}
        self.workloads: dict[str, dict[tuple[str, str], Workload]] = {group: {} for group in api_groups}
        self.classes: dict[str, PriorityClass] = {}
        self.priorities: dict[str, int] = {}
        """The highest priority that a group or pod has had, by UID, also of those that are gone."""
        self.created: dict[tuple[str, GroupKey], int] = {}
        """When each group was created, by its API group and key."""
        self.foreign_nominations: set[tuple[str, str]] = set()
        """The nominations that others have written, by pod and node: those are theirs to take back."""
        self.losses: Counter[str] = Counter()
        """How often a tree has lost a pod, or was changed in its groups, by its name."""
        self.lost_at: dict[str, float] = {}
        """When a tree last lost a pod, by its name."""
        self.changed_by: dict[str, tuple[str, int]] = {}
        """What last changed a group of a tree, by the name of the tree: the resource and the revision."""
        self.left: defaultdict[GroupKey, dict[str, int]] = defaultdict(dict)
        """The pods that have left each PodGroup, by UID: the revision since which they do not count there."""
        self.bind_refused_at: dict[str, float] = {}
        """When a bind of a tree was last refused, by its name."""
        self._now = 0.0
        self._revision = 0
        self._members: defaultdict[GroupKey, dict[str, TrackedPod]] = defaultdict(dict)
        self._integrations = Integrations([scheduler_name], DEFAULT_INTEGRATIONS)

    # Writes.

    def apply(self, write: RecordedWrite, process: str) -> TrackedPod | None:
        """Take a write; return the pod that it is about, if it is about one. ``process`` is that of ours that wrote."""
        self._now, self._revision = write.time, write.revision
        plural, _, group = write.resource.partition(".")
        name = f"{write.namespace}/{write.name}" if write.namespace else write.name
        if write.new is None:
            self.raw[write.resource].pop(name, None)
        else:
            self.raw[write.resource][name] = write.new
        if write.resource == "pods":
            return self._put_pod(write, process)
        if write.resource == "nodes":
            self._put_node(write)
        elif write.resource == BUDGETS and write.new is not None:
            budget = msgspec.convert(write.new, PodDisruptionBudget)
            matcher = LabelMatcher.compile(budget.spec.selector)
            self.budgets[name] = (write.revision, matcher, budget.status.disruptions_allowed)
        elif write.resource == CLAIMS:
            track(self.claims, write, process)
        elif plural in GROUP_KINDS and group in self.stores:
            self._put_group(write, group, GROUP_KINDS[plural])
        elif plural == "workloads" and group in self.stores:
            self.losses.update(list(self.losses))  # any tree may have other minimums now
            _put(self.workloads[group], (write.namespace, write.name), write.new, Workload)
            for known in self.stores[group]:
                self._note_priority(group, known)
        elif plural == "priorityclasses":
            _put(self.classes, write.name, write.new, PriorityClass)
        return None

    def _put_node(self, write: RecordedWrite) -> None:
        """Keep another state of a node, unless only what no rule reads has changed, as by each heartbeat."""
        if write.old is not None and write.new is not None and _read_fields(write.old) == _read_fields(write.new):
            return
        node = None if write.new is None else msgspec.convert(write.new, Node)
        self.nodes.setdefault(write.name, []).append((write.revision, node))

    def _put_pod(self, write: RecordedWrite, process: str) -> TrackedPod | None:
        name = f"{write.namespace}/{write.name}"
        pod = self.pods.get(name)
        if pod is not None and write.old is None:
            self._remove_pod(pod)
            pod = None
        if write.new is None:
            if pod is not None:
                pod.left_at = min(pod.left_at, write.revision)
                self._remove_pod(pod)
                self.gone.append((write.revision, pod))
            return pod
        before = pod.raw if pod is not None else None
        if pod is None:
            pod = self.pods[name] = TrackedPod(write.new, write.revision)
        pod.raw = write.new
        if before is None or not _says_the_same(before, write.new):
            self._read_pod(pod, write.revision)
        nominated, known = _nomination(write.new), _nomination(write.old or {})
        if nominated and nominated != known and not process and write.user:
            self.foreign_nominations.add((pod.pod.metadata.uid, nominated))
        if pod.node and not (before or {"spec": {}})["spec"].get("nodeName"):
            pod.bound_at, pod.bound_by = write.revision, process
            self.on_node[pod.node][name] = pod
        if before is not None and (pod.is_placed < _is_placed(before) or pod.is_deleting > is_deleting(before)):
            pod.left_at = min(pod.left_at, write.revision)
            self._note_loss(pod)
        return pod

    def _read_pod(self, pod: TrackedPod, revision: int) -> None:
        """Decode a pod, and index it by its group."""
        found = self._integrations.with_group(msgspec.convert(pod.raw, Pod))
        if pod.group is not None:
            if membership(found) != membership(pod.pod):
                self._note_loss(pod)
            self._members[pod.group].pop(pod.name, None)
        pod.pod = found
        pod.resized_at, pod.requests_before = revision, pod.requests
        pod.requests = requests(pod.pod)
        self.priorities[pod.pod.metadata.uid] = pod.priority
        group = membership(pod.pod).group
        pod.group = GroupKey(PodGroup.kind, pod.pod.metadata.namespace, group) if group else None
        if pod.group is not None:
            self._members[pod.group][pod.name] = pod

    def _remove_pod(self, pod: TrackedPod) -> None:
        self._note_loss(pod)
        del self.pods[pod.name]
        self.on_node[pod.node].pop(pod.name, None)
        if pod.group is not None:
            self._members[pod.group].pop(pod.name, None)

    def _note_loss(self, pod: TrackedPod) -> None:
        tree = self.tree_name(pod)
        self.losses[tree] += 1
        self.lost_at[tree] = self._now
        if pod.group is not None:
            self.left[pod.group].setdefault(pod.pod.metadata.uid, self._revision)

    def _put_group(self, write: RecordedWrite, api_group: str, kind: type[Group]) -> None:
        store, key = self.stores[api_group], GroupKey(kind.kind, write.namespace, write.name)
        if write.old is None or write.new is None or write.old["spec"] != write.new["spec"]:
            tree = self._anchor_name(api_group, key)
            self.losses[tree] += 1
            self.changed_by[tree] = (write.resource, write.revision)
        if write.new is None:
            store.remove(key)
            return
        group: Group = msgspec.convert(write.new, kind)
        if write.old is None:
            self.created[api_group, key] = write.revision
        store.put(group)
        self._note_priority(api_group, group)

    def _note_priority(self, api_group: str, group: Group) -> None:
        priority = resolved_priority(group, self.workloads[api_group], PriorityClasses(self.classes)) or 0
        known = self.priorities.get(group.metadata.uid, priority)
        self.priorities[group.metadata.uid] = max(known, priority)

    # Trees.

    def api_group_of(self, leaf: GroupKey) -> str:
        """Return the API group that has a PodGroup; the first that is served if both or none have it."""
        return next((name for name, store in self.stores.items() if leaf in store), next(iter(self.stores)))

    def tree_name(self, pod: TrackedPod) -> str:
        """Return the name of what is decided about together with a pod: its tree, or the pod alone."""
        if pod.group is None:
            return f"Pod {pod.name}"
        return self._anchor_name(self.api_group_of(pod.group), pod.group)

    def _anchor_name(self, api_group: str, key: GroupKey) -> str:
        return f"{self.stores[api_group].anchor(key)} of {api_group}"

    def tree_of(self, pod: TrackedPod) -> Tree | None:
        """Return the tree of a pod with the fields from its templates, or None for a pod without a group."""
        if pod.group is None:
            return None
        api_group = self.api_group_of(pod.group)
        forest = self.stores[api_group].forest
        return effective_tree(forest.tree_of(forest.anchor_of(pod.group)), self.workloads[api_group])

    def trees(self) -> Iterator[tuple[str, Tree]]:
        """Yield all trees, each with its API group."""
        for api_group, store in self.stores.items():
            for tree in store.forest.trees():
                yield api_group, effective_tree(tree, self.workloads[api_group])

    def groups_above(self, pod: TrackedPod) -> list[Group]:
        """Return the groups of a pod from its PodGroup up, as far as they exist."""
        found: dict[GroupKey, Group] = {}
        if pod.group is None:
            return []
        api_group, key = self.api_group_of(pod.group), pod.group
        groups = self.stores[api_group].forest.groups
        while key in groups and key not in found:
            found[key] = effective_group(groups[key], self.workloads[api_group])
            parent = parent_of(found[key])
            if parent is None:
                break
            key = parent
        return list(found.values())

    def members(self, leaf: GroupKey, api_group: str | None = None) -> list[TrackedPod]:
        """Return the pods that name a PodGroup, if the group of that name is the one of this API group."""
        if api_group is not None and self.api_group_of(leaf) != api_group:
            return []
        return list(self._members.get(leaf, {}).values())

    def pods_below(self, tree: Tree, place: int, api_group: str | None = None) -> list[TrackedPod]:
        """Return all pods of the groups at and below a place in a tree."""
        node = tree.nodes[place]
        if isinstance(node.group, PodGroup):
            return self.members(node.key, api_group)
        return [pod for child in node.children for pod in self.pods_below(tree, child, api_group)]

    def unit_of(self, pod: TrackedPod) -> list[TrackedPod]:
        """Return the pods that are evicted together with a pod: below the highest of its groups with ``all``."""
        whole = [group for group in self.groups_above(pod) if (mode := group.spec.disruption_mode) and mode.all]
        tree = self.tree_of(pod)
        if not whole or tree is None:
            return [pod]
        place = next(place for place, node in enumerate(tree.nodes) if node.key == key_of(whole[-1]))
        return self.pods_below(tree, place)

    def is_ours(self, pod: TrackedPod) -> bool:
        """Return whether a pod names our scheduler."""
        return pod.pod.spec.scheduler_name == self.scheduler_name

    def is_pending(self, pod: TrackedPod) -> bool:
        """Return whether a pod waits for our scheduler."""
        return self.is_ours(pod) and not (pod.node or pod.has_ended or pod.is_deleting)

    def node_versions(self, name: str, seen: float, last: float = math.inf) -> list[Node | None]:
        """Return the states of a node from the newest that was seen at a revision to the last that counts."""
        known = self.nodes.get(name, [])
        first = max((place for place, (revision, _) in enumerate(known) if revision <= seen), default=-1)
        return [node for revision, node in known[max(first, 0) :] if revision <= last]

    def present_nodes(self) -> list[Node]:
        """Return all nodes, in the order of their creation."""
        return [node for known in self.nodes.values() if known and (node := known[-1][1]) is not None]


def _put(known: dict[K, S], key: K, raw: Object | None, kind: type[S]) -> None:
    """Put an object in its place, or remove it."""
    if raw is None:
        known.pop(key, None)
    else:
        known[key] = msgspec.convert(raw, kind)


def _read_fields(node: Object) -> tuple[object, ...]:
    meta, status = node["metadata"], node.get("status", {})
    return meta["uid"], meta.get("labels"), node.get("spec"), status.get("allocatable")


def _says_the_same(before: Object, now: Object) -> bool:
    """Return whether nothing but the status of a pod has changed."""
    old, new = before["metadata"], now["metadata"]
    names = ("uid", "labels", "annotations", "ownerReferences")
    return before["spec"] == now["spec"] and all(old.get(name) == new.get(name) for name in names)


def _nomination(raw: Object) -> str:
    """Return the node that a pod is nominated to, or an empty string."""
    return str(raw.get("status", {}).get("nominatedNodeName") or "")


def _is_placed(raw: Object) -> bool:
    """Return whether a pod counted for the minimum of its group."""
    phase = raw.get("status", {}).get("phase", "")
    has_room = bool(raw["spec"].get("nodeName")) and phase not in TERMINAL_PHASES
    return not is_deleting(raw) and (has_room or phase == "Succeeded")
