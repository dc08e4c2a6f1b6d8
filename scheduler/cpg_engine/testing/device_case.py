"""Allocate the devices of one pod on one node, from objects to results, as upstream's allocator is called."""

from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct

from cpg_api.core.devices import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.devices.pools import Pool, PoolTarget, build_pool, in_order, target
from cpg_engine.devices.results import allocation_results, taken_by
from cpg_engine.devices.search import SearchResult, search
from cpg_engine.devices.shapes import DeviceRequestError, DeviceShape, compile_shape
from cpg_engine.devices.values import FREE, PoolState, PoolView
from cpg_engine.devices.views import Viewer


class DeviceCase(Struct, frozen=True):
    """A node, the devices that there are, the claims to allocate, and what others have."""

    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    classes: tuple[DeviceClass, ...]
    rules: tuple[DeviceTaintRule, ...] = ()
    allocated: tuple[DeviceResult, ...] = ()
    node: str = "n0"
    labels: dict[str, str] = {}


class DeviceOutcome(Struct, frozen=True):
    """The allocations of all claims, or None with the reason, if there is one beside the lack of devices."""

    results: tuple[AllocationResult, ...] | None = None
    reason: str = ""
    steps: int = 0
    is_cut: bool = False


class DeviceProblem(Struct, frozen=True, eq=False):
    """A case in the form in which it is searched."""

    shape: DeviceShape
    targets: tuple[PoolTarget, ...]
    views: tuple[PoolView, ...]
    states: tuple[PoolState, ...]


def compile_case(case: DeviceCase) -> DeviceProblem:
    """Return shape, targets, views and states of a case; raise ``DeviceRequestError`` as ``compile_shape`` does."""
    shape = compile_shape([one.spec for one in case.claims], {one.metadata.name: one for one in case.classes})
    by_pool = groupby(sorted(case.slices, key=_pool_key), key=_pool_key)
    pools = [build_pool(tuple(slices), case.rules) for _, slices in by_pool]
    targets = in_order(found for one in pools if (found := target(one, case.node, case.labels)) is not None)
    return DeviceProblem(
        shape=shape,
        targets=targets,
        views=Viewer(shape, selects).views_of(targets),
        states=tuple(state_of(one.pool, case.allocated) for one in targets),
    )


def allocate(case: DeviceCase, max_steps: int = 20_000) -> DeviceOutcome:
    """Allocate all claims of a case."""
    try:
        problem = compile_case(case)
    except DeviceRequestError as error:
        return DeviceOutcome(reason=str(error))
    found = search(problem.shape, problem.views, problem.states, max_steps)
    return DeviceOutcome(_results(case, problem, found), found.problem, found.steps, found.is_cut)


def state_of(pool: Pool, allocated: Iterable[DeviceResult]) -> PoolState:
    """Return the state of a pool with these results allocated."""
    state = FREE
    for one in taken_by(AllocationResult(devices=DeviceAllocationResult(results=tuple(allocated)))):
        position = pool.positions.get(one.id.device)
        if position is not None and one.id[:2] == pool.id and not one.is_admin:
            state = state.with_taken(position) if one.consumed is None else state.with_share(position, one.consumed)
    return state


def _pool_key(one: ResourceSlice) -> tuple[str, str]:
    return one.spec.driver, one.spec.pool.name


def _results(case: DeviceCase, problem: DeviceProblem, found: SearchResult) -> tuple[AllocationResult, ...] | None:
    if found.picks is None:
        return None
    return allocation_results(
        case.claims,
        problem.shape,
        problem.targets,
        found.picks,
        node_name=case.node,
        classes={one.metadata.name: one for one in case.classes},
    )
