"""Several pods that ask for the same devices of one node, as one search.

Giving each pod the first devices that fit may leave too little for the next one: a pod that any partition would serve
is given the whole device. The claims of all of them together are searched like those of one pod.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from cpg_engine.devices.shapes import ClaimShape, DeviceShape
from cpg_engine.devices.values import DeviceView, Pick, PoolView


def repeat_shape(shape: DeviceShape, pods: int) -> DeviceShape:
    """Return the shape of the claims of so many pods."""
    size = len(shape.alternatives)
    return DeviceShape(
        claims=tuple(_shifted(claim, number * size) for number in range(pods) for claim in shape.claims),
        alternatives=shape.alternatives * pods,
    )


def repeat_views(views: Sequence[PoolView], shape: DeviceShape, pods: int) -> tuple[PoolView, ...]:
    """Return the views for the claims of so many pods."""
    size = len(shape.alternatives)
    return tuple(replace(view, devices=tuple(_repeat(device, size, pods) for device in view.devices)) for view in views)


def split_picks(picks: Sequence[Pick], shape: DeviceShape, pods: int) -> tuple[tuple[Pick, ...], ...]:
    """Return the picks for each pod, in terms of its own shape."""
    size = len(shape.alternatives)
    found: list[list[Pick]] = [[] for _ in range(pods)]
    for pick in picks:
        number, alternative = divmod(pick.alternative, size)
        found[number].append(pick._replace(alternative=alternative))
    return tuple(map(tuple, found))


def _shifted(claim: ClaimShape, first: int) -> ClaimShape:
    return ClaimShape(
        requests=tuple(tuple(index + first for index in request) for request in claim.requests),
        constraints=tuple(
            replace(one, alternatives=tuple(index + first for index in one.alternatives)) for one in claim.constraints
        ),
    )


def _repeat(device: DeviceView, size: int, pods: int) -> DeviceView:
    firsts = [number * size for number in range(pods)]
    return replace(
        device,
        accepted=tuple(first + index for first in firsts for index in device.accepted),
        amounts=device.amounts * pods,
        blocked=tuple(first + index for first in firsts for index in device.blocked),
        failing=tuple((first + index, reason) for first in firsts for index, reason in device.failing),
        attributes=device.attributes * pods,
    )
