"""Pools of devices: what the slices of a driver offer, and which of it a node can use.

A pool is often a mix: slices for single nodes, for some nodes, and for all; old generations and new ones. Upstream
judges it by the slices that are relevant for a node, and so do we: only their newest generation counts, and the pool
is complete for a node if all slices of this generation are known.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.core.devices import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
    ResourceSliceSpec,
)
from cpg_api.quantity import nano_value
from cpg_api.selectors import NodeMatcher
from cpg_engine.devices.values import DeviceId, PoolId


class NodeReach(Struct, frozen=True, eq=False):
    """The nodes that can use a slice or a device."""

    node_name: str = ""
    all_nodes: bool = False
    matcher: NodeMatcher | None = None

    def includes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node is one of them."""
        if self.node_name:
            return self.node_name == name
        return self.all_nodes or (self.matcher is not None and self.matcher.matches(labels, name))


class PoolDevice(Struct, frozen=True, eq=False):
    """A device with its slice, and with its own taints and those of taint rules.

    ``position`` is the place of its name in the pool: slices can repeat a name, and allocations are by name.
    ``reach`` are the nodes of a device that has a node selection of its own. A ``is_plain`` device cannot be shared and
    satisfies every request that asks for no amounts.
    """

    id: DeviceId
    position: int
    device: Device
    slice: ResourceSlice
    taints: tuple[DeviceTaint, ...]
    reach: NodeReach | None
    is_plain: bool


class PoolSlice(Struct, frozen=True, eq=False):
    """A slice, and the nodes that can use it; ``reach`` is None where its devices select nodes."""

    slice: ResourceSlice
    devices: tuple[PoolDevice, ...]
    reach: NodeReach | None

    @property
    def generation(self) -> int:
        """The generation of the pool that the slice belongs to."""
        return self.slice.spec.pool.generation

    def usable_devices(self, name: str, labels: Mapping[str, str]) -> tuple[PoolDevice, ...] | None:
        """Return the devices that the node can use, or None if the slice is not relevant for the node."""
        if self.reach is not None and not self.reach.includes(name, labels):
            return None
        if not self.slice.spec.per_device_node_selection:
            return self.devices
        found = tuple(one for one in self.devices if one.reach is not None and one.reach.includes(name, labels))
        return found if found or self.reach is not None else None


class PoolTarget(Struct, frozen=True, eq=False, weakref=True):
    """What a node can use of a pool: ``devices`` in the order in which they are tried.

    ``others`` consume counters, but the node cannot use them. Counters are numbered by ``counter_indexes``.
    ``problem`` says why nothing can be allocated from the pool.
    """

    pool: "Pool"
    devices: tuple[PoolDevice, ...] = ()
    others: tuple[PoolDevice, ...] = ()
    counters: tuple[int, ...] = ()
    counter_indexes: dict[tuple[str, str], int] = {}
    has_binding_conditions: bool = False
    is_incomplete: bool = False
    problem: str = ""

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the devices that the node can use."""
        return tuple(one.position for one in self.devices)


class Pool(Struct, frozen=True, eq=False):
    """All slices of a pool, newest generation first, then by name; devices as they list them.

    ``positions`` are the places of devices by name; ``newest`` is the newest generation, of ignored slices too.
    ``node_name`` is the only node that can use the pool, where every slice names it. ``known_targets`` keeps targets,
    so that nodes that use the same devices share one.
    """

    id: PoolId
    slices: tuple[PoolSlice, ...]
    devices: tuple[PoolDevice, ...]
    positions: dict[str, int]
    newest: int
    node_name: str | None
    known_targets: dict[tuple[int, ...], PoolTarget | None]


def build_pool(slices: Sequence[ResourceSlice], rules: Iterable[DeviceTaintRule] = ()) -> Pool:
    """Return the pool of these slices, which are all that name it, of all generations."""
    spec = slices[0].spec
    pool_id = PoolId(spec.driver, spec.pool.name)
    taints = [
        (rule.spec.device_selector.device, rule.spec.taint)
        for rule in rules
        if rule.spec.device_selector is not None and _selects_pool(rule.spec.device_selector, pool_id)
    ]
    positions: dict[str, int] = {}
    known = sorted(
        (one for one in slices if not _uses_compatibility_groups(one)),
        key=lambda one: (-one.spec.pool.generation, one.metadata.name),
    )
    built = tuple(_build_slice(one, pool_id, taints, positions) for one in known)
    names = {one.spec.node_name for one in slices}
    return Pool(
        id=pool_id,
        slices=built,
        devices=tuple(device for one in built for device in one.devices),
        positions=positions,
        newest=max(one.spec.pool.generation for one in slices),
        node_name=(names.pop() or None) if len(names) == 1 else None,
        known_targets={},
    )


def target(pool: Pool, node_name: str, node_labels: Mapping[str, str]) -> PoolTarget | None:
    """Return what the node can use of the pool; None where no slice is relevant for it, or all of them are outdated."""
    if pool.node_name is not None and pool.node_name != node_name:
        return None
    relevant: list[PoolSlice] = []
    usable: list[PoolDevice] = []
    key: list[int] = []
    for index, one in enumerate(pool.slices):
        if relevant and one.generation != relevant[0].generation:
            break
        devices = one.usable_devices(node_name, node_labels)
        if devices is not None:
            relevant.append(one)
            usable += devices
            key += (-1, index)
            if len(devices) != len(one.devices):
                key += (device.position for device in devices)
    if not relevant:
        return None
    found = tuple(key)
    if found not in pool.known_targets:
        pool.known_targets[found] = _build_target(pool, relevant, usable)
    return pool.known_targets[found]


def in_order(targets: Iterable[PoolTarget]) -> tuple[PoolTarget, ...]:
    """Return the targets in the order in which they are tried: by driver and name, binding conditions last."""
    return tuple(sorted(targets, key=lambda one: (one.has_binding_conditions, one.pool.id)))


def _build_target(pool: Pool, relevant: list[PoolSlice], usable: list[PoolDevice]) -> PoolTarget | None:
    """Return the target of a node for which these slices are relevant, or None if they are outdated."""
    generation = relevant[0].generation
    rest: list[PoolSlice] = []
    expected = relevant[0].slice.spec.pool.resource_slice_count
    if len(relevant) != expected:
        if pool.newest > generation:
            return None
        rest = [one for one in pool.slices if one.generation == generation and one not in relevant]
        if len(relevant) + len(rest) != expected:
            return PoolTarget(pool, is_incomplete=True, problem="is incomplete: its driver is updating it")
    offering = [one for one in relevant if not one.slice.spec.shared_counters]
    others = [one for one in rest if not one.slice.spec.shared_counters]
    counters: dict[str, dict[str, int]] = {}
    problem = (
        _repeated_name(offering)
        or _add_counters([*relevant, *rest], counters)
        or _unknown_counter([*offering, *others], counters)
    )
    if problem:
        return PoolTarget(pool, problem=problem)
    amounts = {(name, counter): amount for name, found in counters.items() for counter, amount in found.items()}
    names = {one.id.device for one in usable}
    return PoolTarget(
        pool,
        devices=tuple(one for one in usable if not one.slice.spec.shared_counters),
        others=tuple(
            device
            for found in (*offering, *others)
            for device in found.devices
            if device.device.consumes_counters and (found in others or device.id.device not in names)
        ),
        counters=tuple(amounts.values()),
        counter_indexes={key: index for index, key in enumerate(amounts)},
        has_binding_conditions=any(
            device.device.binding_conditions is not None for one in offering for device in one.devices
        ),
    )


def _repeated_name(slices: list[PoolSlice]) -> str:
    names: set[str] = set()
    for one in slices:
        for device in one.devices:
            if device.id.device in names:
                return f"has two devices named {device.id.device}"
            names.add(device.id.device)
    return ""


def _add_counters(slices: list[PoolSlice], counters: dict[str, dict[str, int]]) -> str:
    """Add the counter sets of all slices; return the problem where two have the same name."""
    for one in slices:
        for found in one.slice.spec.shared_counters or ():
            if found.name in counters:
                return f"has two counter sets named {found.name}"
            counters[found.name] = {name: nano_value(one.value) for name, one in sorted((found.counters or {}).items())}
    return ""


def _unknown_counter(slices: list[PoolSlice], counters: dict[str, dict[str, int]]) -> str:
    for one in slices:
        for device in one.devices:
            for consumed in device.device.consumes_counters or ():
                if consumed.counter_set not in counters:
                    return f"has no counter set {consumed.counter_set}"
                for name in consumed.counters or ():
                    if name not in counters[consumed.counter_set]:
                        return f"has no counter {name} in counter set {consumed.counter_set}"
    return ""


def _build_slice(
    found: ResourceSlice,
    pool_id: PoolId,
    taints: list[tuple[str | None, DeviceTaint]],
    positions: dict[str, int],
) -> PoolSlice:
    spec = found.spec
    devices = tuple(
        PoolDevice(
            id=DeviceId(*pool_id, device.name),
            position=positions.setdefault(device.name, len(positions)),
            device=device,
            slice=found,
            taints=(*(device.taints or ()), *(taint for name, taint in taints if name in {None, device.name})),
            reach=_build_reach(device) if spec.per_device_node_selection else None,
            is_plain=_is_plain(device),
        )
        for device in spec.devices or ()
    )
    reach = _build_reach(spec)
    if reach is None and not spec.per_device_node_selection:
        reach = NodeReach()  # selects nodes in a way that is not known
    return PoolSlice(slice=found, devices=devices, reach=reach)


def _is_plain(device: Device) -> bool:
    return not device.allow_multiple_allocations and all(
        one.request_policy is None and nano_value(one.value) >= 0 for one in (device.capacity or {}).values()
    )


def _build_reach(found: ResourceSliceSpec | Device) -> NodeReach | None:
    """Return the nodes that can use a slice or device, or None where it selects none."""
    if not found.node_name and not found.all_nodes and found.node_selector is None:
        return None
    matcher = None if found.node_selector is None else NodeMatcher.compile(found.node_selector)
    return NodeReach(found.node_name or "", bool(found.all_nodes), matcher)


def _selects_pool(selector: DeviceTaintSelector, pool_id: PoolId) -> bool:
    return selector.driver in {None, pool_id.driver} and selector.pool in {None, pool_id.pool}


def _uses_compatibility_groups(found: ResourceSlice) -> bool:
    """Return whether a device declares compatibility groups: they are off by default, and its slice is ignored."""
    return any(
        consumed.compatibility_groups
        for device in found.spec.devices or ()
        for consumed in device.consumes_counters or ()
    )
