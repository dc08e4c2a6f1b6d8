"""What has become of trees and pods in a simulation, as plain values: the fields of ``-o json``."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, Tree, TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.analysis.simulated_scheduler import NO_STATUS, Evicted, ReportedStatus, SimulatedScheduler
from cpg_engine.verdicts import Domain
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.devices import device_claims_of
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.messages.preemption import eviction_message
from cpg_scheduler.units import effective_tree_of, members_of

RACE = "{} trees or pods wait for victims at once: which of them takes the room first depends on how fast pods end"


class GroupOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """One group of a tree."""

    kind: str
    name: str
    depth: int
    is_placed: bool
    """Whether its minimum has nodes."""
    minimum: int
    placed: int
    """The pods with nodes, or the child groups that are placed."""
    total: int
    domain: Domain | None = None
    nodes: Mapping[str, int] = {}
    """The pods on each node; of PodGroups."""
    reason: str = ""
    message: str = ""


class TreeOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """One tree of groups."""

    root: str
    flavour: str
    namespace: str
    priority: int
    is_placed: bool
    """Whether the minimum of its root has nodes."""
    pods: int
    placed_pods: int
    groups: tuple[GroupOutcome, ...] = ()


class PodOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod in no group."""

    name: str
    node: str = ""
    reason: str = ""
    message: str = ""


class VictimOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods that are evicted together."""

    preemptor: str
    pods: tuple[str, ...]
    priority: int
    reason: str


class ClaimOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim of these pods that has devices."""

    name: str
    devices: tuple[str, ...]
    """Each as driver/pool/device."""
    consumers: tuple[str, ...]
    """The names of the pods, or of the PodGroup, for which it is reserved."""


class Outcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """What has become of all that was asked about."""

    fits: bool
    """Whether every tree with pods has its minimum, and every pod in no group has a node."""
    pods: int
    placed_pods: int
    trees: tuple[TreeOutcome, ...] = ()
    single_pods: tuple[PodOutcome, ...] = ()
    victims: tuple[VictimOutcome, ...] = ()
    claims: tuple[ClaimOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def outcome_of(
    scheduler: SimulatedScheduler, units: Iterable[UnitKey], *, notes: Iterable[str] = (), ignored: Iterable[str] = ()
) -> Outcome:
    """Return what has become of some units."""
    chosen = sorted(set(units))
    trees = tuple(_tree(scheduler, unit) for unit in chosen if unit.flavour != SINGLE_POD)
    found = (scheduler.cache.single_pod(unit.key) for unit in chosen if unit.flavour == SINGLE_POD)
    single = [pod for pod in found if pod is not None]
    pods = tuple(_pod(scheduler, pod) for pod in single)
    competing = len(scheduler.preemptors)
    race = [RACE.format(competing)] if competing > 1 else []
    return Outcome(
        fits=all(tree.is_placed or not tree.pods for tree in trees) and all(pod.node for pod in pods),
        pods=sum(tree.pods for tree in trees) + len(pods),
        placed_pods=sum(tree.placed_pods for tree in trees) + sum(bool(pod.node) for pod in pods),
        trees=trees,
        single_pods=pods,
        victims=tuple(_victim(one) for one in scheduler.evicted),
        claims=tuple(_claims(scheduler, chosen, single)),
        notes=(*race, *notes),
        ignored=tuple(ignored),
    )


def _pod(scheduler: SimulatedScheduler, pod: Pod) -> PodOutcome:
    status = scheduler.pod_status.get(pod.metadata.uid, NO_STATUS)
    reason, message = ("", "") if pod.spec.node_name else (status.reason, status.message)
    return PodOutcome(name=pod.metadata.key, node=pod.spec.node_name, reason=reason, message=message)


def _tree(scheduler: SimulatedScheduler, unit: UnitKey) -> TreeOutcome:
    cache = scheduler.cache
    tree = effective_tree_of(cache, unit)
    members = {node.key: list(_members(scheduler, unit, node)) for node in tree.nodes}
    placed = scheduler.trees.placed_groups(unit)
    everything = [pod for found in members.values() for pod in found]
    priority = max((pod.spec.priority or 0 for pod in everything), default=0)
    root = tree.nodes[0].key if tree.nodes else unit.key
    return TreeOutcome(
        root=f"{root.kind} {root.name}",
        flavour=unit.flavour,
        namespace=root.namespace,
        priority=priority,
        is_placed=root in placed,
        pods=len(everything),
        placed_pods=sum(_has_node(pod) for pod in everything),
        groups=tuple(_groups(scheduler, tree, members, placed)),
    )


def _members(scheduler: SimulatedScheduler, unit: UnitKey, node: TreeNode) -> Iterator[Pod]:
    if isinstance(node.group, PodGroup):
        found = members_of(scheduler.cache, unit.flavour, node.key)
        yield from (*found.scheduled, *found.pending)


def _groups(
    scheduler: SimulatedScheduler,
    tree: Tree,
    members: Mapping[GroupKey, list[Pod]],
    placed: Collection[GroupKey],
) -> Iterator[GroupOutcome]:
    """Yield the groups, parents before children, each with its depth."""
    stack = [(0, 0)] if tree.nodes else []
    while stack:
        place, depth = stack.pop()
        node = tree.nodes[place]
        yield _group(scheduler, tree, place, depth, members, placed)
        stack += [(child, depth + 1) for child in reversed(node.children)]


def _group(
    scheduler: SimulatedScheduler,
    tree: Tree,
    place: int,
    depth: int,
    members: Mapping[GroupKey, list[Pod]],
    placed: Collection[GroupKey],
) -> GroupOutcome:
    node = tree.nodes[place]
    pods = [pod for one in _below(tree, place) for pod in members[tree.nodes[one].key]]
    have = [_has_node(pod) for pod in pods]
    if not isinstance(node.group, PodGroup):
        have = [tree.nodes[child].key in placed for child in node.children]
    is_placed = node.key in placed
    status = NO_STATUS if is_placed and all(have) else _status(scheduler, node.key, pods)
    on = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)
    return GroupOutcome(
        kind=node.key.kind,
        name=node.key.name,
        depth=depth,
        is_placed=is_placed,
        minimum=node.group.minimum,
        placed=sum(have),
        total=len(have),
        domain=_domain(scheduler, node.group, on),
        nodes=dict(sorted(on.items())) if isinstance(node.group, PodGroup) else {},
        reason=status.reason,
        message=status.message,
    )


def _status(scheduler: SimulatedScheduler, key: GroupKey, pods: Iterable[Pod]) -> ReportedStatus:
    found = scheduler.group_status.get(key)
    waiting = (scheduler.pod_status.get(pod.metadata.uid) for pod in pods)
    return found or next(filter(None, waiting), NO_STATUS)


def _below(tree: Tree, place: int) -> Iterator[int]:
    yield place
    for child in tree.nodes[place].children:
        yield from _below(tree, child)


def _has_node(pod: Pod) -> bool:
    return bool(pod.spec.node_name) or pod.status.phase == "Succeeded"


def _domain(scheduler: SimulatedScheduler, group: Group, nodes: Iterable[str]) -> Domain | None:
    """Return the domain in which all pods below a group are, of the narrowest key that the group names."""
    constraints = group.spec.scheduling_constraints
    if constraints is None:
        return None
    for one in (*(constraints.preferred_topology or ()), *(constraints.topology or ())):
        values = {(scheduler.labels_of(node) or {}).get(one.key) for node in nodes}
        if len(values) == 1 and (value := values.pop()) is not None:
            return Domain(one.key, value)
    return None


def _claims(scheduler: SimulatedScheduler, units: Iterable[UnitKey], pods: Iterable[Pod]) -> Iterator[ClaimOutcome]:
    """Yield the claims of trees and single pods that have devices, by name."""
    cache = scheduler.cache
    of_trees = (pod for unit in units if unit.flavour != SINGLE_POD for pod in _pods_of(scheduler, unit))
    keys = {key for pod in (*of_trees, *pods) for key in device_claims_of(pod)}
    for claim in (cache.devices.claims[key] for key in sorted(keys & cache.devices.claims.keys())):
        if claim.status.allocation is not None:
            results = claim.status.allocation.devices.results or ()
            yield ClaimOutcome(
                name=claim.metadata.key,
                devices=tuple(f"{one.driver}/{one.pool}/{one.device}" for one in results),
                consumers=tuple(user.name for user in claim.status.reserved_for or ()),
            )


def _pods_of(scheduler: SimulatedScheduler, unit: UnitKey) -> Iterator[Pod]:
    for node in scheduler.cache.stores[unit.flavour].forest.tree_of(unit.key).nodes:
        yield from _members(scheduler, unit, node)


def _victim(found: Evicted) -> VictimOutcome:
    pods = found.victim.pods
    return VictimOutcome(
        preemptor=f"{found.preemptor.key.kind} {found.preemptor.key.name}",
        pods=tuple(pod.metadata.key for pod in pods),
        priority=max((pod.spec.priority or 0 for pod in pods), default=0),
        reason=eviction_message(found.victim.reason) if found.victim.reason is not None else "",
    )
