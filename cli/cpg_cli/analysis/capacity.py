"""What is free in each domain, and how many pods of a shape fit there, by the engine's own arithmetic."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cpg_api.core.pod import Container, Pod, PodSpec, Toleration
from cpg_api.core.resources import ResourceRequirements
from cpg_api.meta import ObjectMeta
from cpg_api.quantity import QuantityError, amount, require_not_negative
from cpg_cli.failures import usage_error
from cpg_engine.cluster.axes import BASE, UNOFFERED, Amounts, Rows, own_amounts
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Domain
from cpg_scheduler.cache.cluster import ClusterCache

CLUSTER, NODE = "cluster", "node"
HOSTNAME = "kubernetes.io/hostname"

Shape = Mapping[str, str]
"""What one pod requests, by resource."""


class DomainCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A domain: what is free in it, and what fits.

    ``pods`` of the shape fit at the same time. ``fragmentation`` is the share of what is free that none of them can
    use, of the resource that runs out first. Both are None without a shape, and the share if one has run out.
    """

    level: str
    name: str
    path: tuple[str, ...]
    nodes: int
    free: Mapping[str, int]
    allocatable: Mapping[str, int]
    pods: int | None = None
    fragmentation: float | None = None


def full_name(name: str, offered: Collection[str]) -> str:
    """Return the resource that a user means: by its name, or by an end that only one extended resource has."""
    if name in offered:
        return name
    found = sorted(one for one in offered if "/" in one and one.endswith(name))
    if len(found) == 1:
        return found[0]
    hint = f"choose one of {', '.join(found or sorted(offered))}"
    raise usage_error(f"{name} {'is the end of several resources' if found else 'is no resource of a node'}", hint)


def parse_shape(text: str, offered: Collection[str]) -> Shape:
    """Return the requests of a pod from text like ``gpu=8,cpu=64,memory=1Ti``."""
    shape: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, quantity = (one.strip() for one in part.partition("="))
        resource = full_name(name, offered)
        try:
            number = amount(resource, require_not_negative(quantity))
        except QuantityError as error:
            raise usage_error(f"--for {part}: {error}", 'give it as in --for "gpu=8,cpu=64,memory=1Ti"') from error
        if number:
            shape[resource] = quantity
    if not shape or "pods" in shape:
        raise usage_error(f"--for {text!r} requests nothing of a node", 'give it as in --for "gpu=8,cpu=64"')
    return shape


def offered_resources(cache: ClusterCache) -> list[str]:
    """Return the resources that some node has, those that all nodes have first."""
    ledger = cache.snapshot.ledger
    names = [name for place, name in enumerate(ledger.classes.axis.names) if place != UNOFFERED]
    amounts = own_amounts(ledger.allocatable, ledger.classes.axis)
    return [name for name in names if name in BASE or amounts[:, ledger.classes.axis.places[name]].any()]


def used_levels(cache: ClusterCache) -> list[str]:
    """Return the node labels that groups require or prefer."""
    found: set[str] = set()
    for store in cache.stores.values():
        for group in store:
            constraints = group.spec.scheduling_constraints
            if constraints is not None:
                found.update(
                    one.key for one in (*(constraints.topology or ()), *(constraints.preferred_topology or ()))
                )
    return sorted(found - {HOSTNAME})


def labelled_levels(cache: ClusterCache) -> list[str]:
    """Return the node labels that are about topology by their prefix, where no group uses any."""
    keys = cache.snapshot.ledger.cluster.label_keys
    return sorted(key for key in keys if "topology" in key.partition("/")[0] and "/" in key)


def nested_levels(cache: ClusterCache, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Return chains of labels, each inside the one before; a label that is inside no other begins a chain.

    One label is inside another if each of its domains is in one domain of the other.
    """
    cluster = cache.snapshot.ledger.cluster
    rows = cluster.everything()
    codes = {key: cluster.label(key).codes[rows] for key in keys if key in cluster.label_keys}
    ordered = sorted(codes, key=lambda key: (len(np.unique(codes[key])), key))
    chains: list[tuple[str, ...]] = []
    for key in ordered:
        outer = [chain for chain in chains if _is_inside(codes[key], codes[chain[-1]])]
        if outer:
            chains.remove(outer[-1])
        chains.append((*(outer[-1] if outer else ()), key))
    return chains


def _is_inside(inner: NDArray[np.int32], outer: NDArray[np.int32]) -> bool:
    labelled = inner >= 0
    pairs = np.unique(np.stack([inner[labelled], outer[labelled]]), axis=1)
    return bool((pairs[1] >= 0).all()) and len(np.unique(pairs[0])) == pairs.shape[1]


def survey_capacity(
    cache: ClusterCache, chain: Sequence[str], shape: Shape | None, *, with_nodes: bool, tolerated: Sequence[str] = ()
) -> list[DomainCapacity]:
    """Return the capacity of the cluster and of every domain of a chain of labels, each before those inside it."""
    snapshot = cache.snapshot
    slots = _slots(snapshot, shape, tolerated) if shape else None
    whole = snapshot.topology.whole()
    answer = [_capacity(snapshot.ledger, CLUSTER, (), whole.rows, shape, slots)]
    for scope in _inside(snapshot, whole, chain, with_nodes=with_nodes):
        level = scope.chain[-1].key
        path = tuple(domain.value for domain in scope.chain)
        answer.append(_capacity(snapshot.ledger, level, path, scope.rows, shape, slots))
    return answer


def _inside(snapshot: Snapshot, scope: Scope, chain: Sequence[str], *, with_nodes: bool) -> Iterator[Scope]:
    if chain:
        for found in snapshot.topology.partition(scope, chain[0]).scopes:
            yield found
            yield from _inside(snapshot, found, chain[1:], with_nodes=with_nodes)
    elif with_nodes:
        cluster = snapshot.ledger.cluster
        for row in sorted(scope.rows.tolist(), key=cluster.name):
            yield Scope((*scope.chain, Domain(NODE, cluster.name(row))), np.array((row,), dtype=np.intp))


def _slots(snapshot: Snapshot, shape: Shape, tolerated: Sequence[str]) -> Amounts:
    """Return for each row for how many pods of the shape it has room.

    They tolerate taints with the key of a resource that they request, as the admission plugin
    ``ExtendedResourceToleration`` arranges it, and those that the user names.
    """
    tolerations = tuple(Toleration(key=key, operator="Exists") for key in (*shape, *tolerated))
    container = Container(name="main", resources=ResourceRequirements(requests=dict(shape)))
    pod = Pod(metadata=ObjectMeta(name="shape"), spec=PodSpec(containers=(container,), tolerations=tolerations))
    return snapshot.score_cache.of(snapshot.ledger.class_of(pod)).slots().copy()


def _capacity(
    ledger: Ledger, level: str, path: tuple[str, ...], rows: Rows, shape: Shape | None, slots: Amounts | None
) -> DomainCapacity:
    places = ledger.classes.axis.places
    own = own_amounts(ledger.allocatable[rows], ledger.classes.axis)
    allocatable, room = own.sum(axis=0), np.maximum(own - ledger.used[rows], 0).sum(axis=0)
    free = {name: int(room[place]) for name, place in places.items()}
    pods = int(slots[rows].sum()) if slots is not None else None
    asked = {name: amount(name, quantity) for name, quantity in (shape or {}).items()}
    shares = (
        [1 - (pods or 0) * number / free[name] for name, number in asked.items()] if all(map(free.get, asked)) else []
    )
    return DomainCapacity(
        level=level,
        name=path[-1] if path else CLUSTER,
        path=path,
        nodes=len(rows),
        free=free,
        allocatable={name: int(allocatable[place]) for name, place in places.items()},
        pods=pods,
        fragmentation=max(min(shares), 0.0) if shares else None,
    )
