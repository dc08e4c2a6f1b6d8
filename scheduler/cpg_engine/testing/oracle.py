"""The oracle: a slow, obvious model of the rules for a decision, and of whether there is a placement at all.

It shares nothing with the engine: objects in, plain loops over them. It models resources, node selectors and required
node affinity, taints, required topology, and running members. It does not model volumes, nor filters that depend on
other pods; on these it may be too lenient, never too strict.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations, product

import msgspec
from msgspec import Struct

from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Pod
from cpg_api.core.resources import ResourceList
from cpg_api.quantity import QuantityError, amount
from cpg_api.scheduling.forest import GroupKey, Tree
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.selectors import LabelMatcher, NodeMatcher
from cpg_api.tolerations import first_untolerated_taint

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

Assignment = Mapping[str, str]
"""Names of nodes by UIDs of pods."""


class Situation(Struct, frozen=True):
    """A cluster and one tree before a decision; pods that name a node run there."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    tree: Tree

    def members(self, place: int) -> list[Pod]:
        """Return the pods of a PodGroup of the tree."""
        key = self.tree.nodes[place].key
        return [pod for pod in self.pods if _group_of(pod) == key]

    def below(self, place: int) -> Iterator[int]:
        """Yield the PodGroups at and below a group of the tree."""
        node = self.tree.nodes[place]
        if isinstance(node.group, PodGroup):
            yield place
        for child in node.children:
            yield from self.below(child)

    def required(self, place: int) -> str | None:
        """Return the label that all pods below a group must share a value of."""
        constraints = self.tree.nodes[place].group.spec.scheduling_constraints
        return constraints.topology[0].key if constraints and constraints.topology else None


def _group_of(pod: Pod) -> GroupKey | None:
    name = membership(pod).group
    return GroupKey(PodGroup.kind, pod.metadata.namespace, name) if name else None


def requests(pod: Pod) -> Counter[str]:
    """Return what the containers of a pod request; init containers and overhead are ignored."""
    total = Counter({"pods": 1})
    for container in pod.spec.containers or ():
        total.update(_amounts(container.resources.requests))
    return total


def _amounts(quantities: ResourceList | None) -> Counter[str]:
    """Return the amounts; malformed ones count as zero."""
    found: Counter[str] = Counter()
    for name, quantity in (quantities or {}).items():
        with suppress(QuantityError):
            found[name] = amount(name, quantity)
    return found


def free(situation: Situation) -> dict[str, Counter[str]]:
    """Return what is left of each node."""
    left = {node.metadata.name: _amounts(node.status.allocatable) for node in situation.nodes}
    for pod in situation.pods:
        if pod.spec.node_name in left and not pod.is_terminal:
            left[pod.spec.node_name].subtract(requests(pod))
    return left


def suits(pod: Pod, node: Node) -> bool:
    """Return whether the pod may run on the node, apart from room."""
    taints = (*(node.spec.taints or ()), *([CORDON] if node.spec.unschedulable else []))
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    labels = node.metadata.labels
    return (
        first_untolerated_taint(taints, pod.spec.tolerations) is None
        and LabelMatcher.exact(pod.spec.node_selector).matches(labels)
        and (terms is None or NodeMatcher.compile(terms).matches(labels, node.metadata.name))
    )


def has_room(pod: Pod, left: Mapping[str, int]) -> bool:
    """Return whether what is left is enough for the pod; resources that it does not request are ignored."""
    return all(left.get(name, 0) >= number for name, number in requests(pod).items() if number)


# Checking an assignment.


def violations(situation: Situation, binds: Assignment) -> list[str]:
    """Return every rule that an assignment breaks."""
    pods = {pod.metadata.uid: pod for pod in situation.pods}
    ours = {pod.metadata.uid for place in situation.below(0) for pod in _pending(situation, place)}
    strangers = [f"{uid} is not for this tree to bind" for uid in binds if uid not in ours]
    if strangers:
        return strangers
    return [
        *_overfull(situation, {uid: pods[uid] for uid in binds}, binds),
        *_unsuitable(situation, {uid: pods[uid] for uid in binds}, binds),
        *_outside_one_domain(situation, binds),
        *_below_minimum(situation, binds),
    ]


def _overfull(situation: Situation, pods: Mapping[str, Pod], binds: Assignment) -> Iterator[str]:
    left = free(situation)
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for uid, name in binds.items():
        if name in left:
            left[name].subtract(requests(pods[uid]))
            asked[name].update(name for name, number in requests(pods[uid]).items() if number)
    for name in sorted(asked):
        yield from (f"{name} is short of {found}" for found in sorted(asked[name]) if left[name][found] < 0)


def _unsuitable(situation: Situation, pods: Mapping[str, Pod], binds: Assignment) -> Iterator[str]:
    nodes = {node.metadata.name: node for node in situation.nodes}
    for uid, name in binds.items():
        if name not in nodes:
            yield f"{uid} is bound to {name}, which is not there"
        elif not suits(pods[uid], nodes[name]):
            yield f"{uid} may not run on {name}"


def _outside_one_domain(situation: Situation, binds: Assignment) -> Iterator[str]:
    for place, node in enumerate(situation.tree.nodes):
        uids = {pod.metadata.uid for leaf in situation.below(place) for pod in situation.members(leaf)}
        new = [name for uid, name in binds.items() if uid in uids]
        if new and len(_values(situation, place, new)) > 1:
            yield f"{node.key} is not in one domain"


def _values(situation: Situation, place: int, new: Iterable[str]) -> set[str | None]:
    """Return the values of a group's label where its members are or will be; None stands for a missing label."""
    key = situation.required(place)
    labels = {node.metadata.name: node.metadata.labels for node in situation.nodes}
    if key is None:
        return set()
    values = {labels[name].get(key) for name in (*new, *member_nodes(situation, place)) if name in labels}
    return values | {"", None} if None in values else values


def member_nodes(situation: Situation, place: int) -> list[str]:
    """Return the nodes on which members below a group run."""
    return [
        pod.spec.node_name
        for leaf in situation.below(place)
        for pod in situation.members(leaf)
        if pod.spec.node_name and not pod.is_terminal
    ]


def contradicts(situation: Situation) -> bool:
    """Return whether running members already violate a required topology."""
    return any(len(_values(situation, place, ())) > 1 for place in range(len(situation.tree.nodes)))


def _below_minimum(situation: Situation, binds: Assignment) -> Iterator[str]:
    """Yield the groups that would get pods placed, but fewer than their minimum."""
    for place, node in enumerate(situation.tree.nodes):
        touched = any(pod.metadata.uid in binds for leaf in situation.below(place) for pod in situation.members(leaf))
        if touched and not _succeeds(situation, place, binds):
            yield f"{node.key} is below its minimum"


def _succeeds(situation: Situation, place: int, binds: Assignment) -> bool:
    node = situation.tree.nodes[place]
    if isinstance(node.group, PodGroup):
        placed = sum(pod.metadata.uid in binds for pod in situation.members(place))
        return _scheduled(situation, place) + placed >= node.group.minimum
    return sum(_succeeds(situation, child, binds) for child in node.children) >= node.group.minimum


def _scheduled(situation: Situation, place: int) -> int:
    return sum(
        bool(pod.spec.node_name and not pod.is_terminal) or pod.status.phase == "Succeeded"
        for pod in situation.members(place)
    )


def _pending(situation: Situation, place: int) -> list[Pod]:
    return [pod for pod in situation.members(place) if not pod.spec.node_name and not pod.is_terminal]


# Trying everything.


def find(situation: Situation) -> dict[str, str] | None:
    """Return some placement of the tree's minimum, or None where there is none."""
    for leaves in _choices(situation, 0):
        picks = [list(_picks(situation, leaf)) for leaf in leaves]
        for chosen in product(*picks):
            binds = _assigned(situation, list(chain.from_iterable(chosen)), {}, free(situation))
            if binds is not None:
                return binds
    return None


def _choices(situation: Situation, place: int) -> Iterator[list[int]]:
    """Yield the sets of PodGroups that are enough for a group's minimum."""
    node = situation.tree.nodes[place]
    if isinstance(node.group, PodGroup):
        yield [place]
        return
    for children in combinations(node.children, node.group.minimum):
        for chosen in product(*(list(_choices(situation, child)) for child in children)):
            yield list(chain.from_iterable(chosen))


def _picks(situation: Situation, leaf: int) -> Iterator[tuple[Pod, ...]]:
    """Yield the ways to pick a PodGroup's minimum among its pods; of several identical picks one is enough."""
    group = situation.tree.nodes[leaf].group
    needed = max(group.minimum - _scheduled(situation, leaf), 0)
    pods = sorted(_pending(situation, leaf), key=_shape)
    seen = set()
    for picked in combinations(pods, needed):
        shapes = tuple(map(_shape, picked))
        if shapes not in seen:
            seen.add(shapes)
            yield picked


def _shape(pod: Pod) -> bytes:
    return msgspec.json.encode(pod.spec)


def _assigned(
    situation: Situation, pods: Sequence[Pod], binds: dict[str, str], left: dict[str, Counter[str]]
) -> dict[str, str] | None:
    """Assign the pods one after the other, trying every node for each."""
    if not pods:
        return binds
    first, *rest = pods
    for node in situation.nodes:
        name = node.metadata.name
        tried = {**binds, first.metadata.uid: name}
        if suits(first, node) and has_room(first, left[name]) and not any(_outside_one_domain(situation, tried)):
            left[name].subtract(requests(first))
            found = _assigned(situation, rest, tried, left)
            if found is not None:
                return found
            left[name].update(requests(first))
    return None
