"""Allocations in the form that upstream writes and drivers read."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.devices import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from cpg_api.quantity import nano_value
from cpg_engine.devices.capacity import consumption, format_amount
from cpg_engine.devices.pools import PoolDevice, PoolTarget
from cpg_engine.devices.shapes import Alternative, DeviceShape, asked_alternatives, request_names
from cpg_engine.devices.values import Amounts, DeviceId, Pick


class Taken(NamedTuple):
    """What a result takes: the device as a whole where ``consumed`` is None. Admin access takes nothing."""

    id: DeviceId
    consumed: Amounts | None
    is_admin: bool


def taken_by(result: AllocationResult) -> tuple[Taken, ...]:
    """Return what an allocation takes, one entry for each of its results."""
    return tuple(
        Taken(
            DeviceId(one.driver, one.pool, one.device),
            None
            if one.share_id is None
            else tuple((name, nano_value(amount)) for name, amount in sorted((one.consumed_capacity or {}).items())),
            bool(one.admin_access),
        )
        for one in result.devices.results or ()
    )


def allocation_results(
    claims: Sequence[ResourceClaim],
    shape: DeviceShape,
    targets: Sequence[PoolTarget],
    picks: Sequence[Pick],
    *,
    node_name: str,
    classes: Mapping[str, DeviceClass],
) -> tuple[AllocationResult, ...]:
    """Return the allocations of all claims of a shape, with the devices that a search picked on the node."""
    results = []
    for claim, compiled in zip(claims, shape.claims, strict=True):
        indexes = [index for request in compiled.requests for index in request]
        chosen = [(pick.alternative, _find(targets[pick.pool], pick)) for pick in picks if pick.alternative in indexes]
        names = dict(zip(indexes, request_names(claim.spec), strict=True))
        asked = dict(zip(indexes, asked_alternatives(claim.spec), strict=True))
        found = tuple(
            _build_result(claim, place, device, asked[index], shape.alternatives[index], names[index])
            for place, (index, device) in enumerate(chosen)
        )
        selected = {index: names[index] for index, _ in chosen}
        results.append(
            AllocationResult(
                devices=DeviceAllocationResult(
                    results=found,
                    config=_build_config(claim.spec, [shape.alternatives[one] for one in selected], selected, classes),
                ),
                node_selector=_build_node_selector([device for _, device in chosen], node_name),
            )
        )
    return tuple(results)


def _find(target: PoolTarget, pick: Pick) -> PoolDevice:
    return next(one for one in target.devices if one.position == pick.position)


def _build_result(
    claim: ResourceClaim,
    place: int,
    found: PoolDevice,
    asked: ExactDeviceRequest | DeviceSubRequest,
    alternative: Alternative,
    name: str,
) -> DeviceResult:
    device = found.device
    amounts: Amounts | None = ()
    if device.allow_multiple_allocations:
        amounts = consumption(dict(alternative.capacity), device.capacity or {})
    return DeviceResult(
        request=name,
        driver=found.id.driver,
        pool=found.id.pool,
        device=found.id.device,
        admin_access=True if alternative.is_admin else None,
        tolerations=asked.tolerations or None,
        binding_conditions=device.binding_conditions or None,
        binding_failure_conditions=device.binding_failure_conditions or None,
        share_id=_share_id(claim.metadata.uid, found.id, place) if device.allow_multiple_allocations else None,
        consumed_capacity={name: format_amount(amount) for name, amount in amounts or ()} or None,
    )


def _share_id(claim: str, device: DeviceId, place: int) -> str:
    """Return an identifier of a share in the form of a UUID; it is the same whenever the same share is decided."""
    text = hashlib.sha256("\0".join((claim, *device, str(place))).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _build_config(
    claim: ResourceClaimSpec,
    alternatives: Sequence[Alternative],
    selected: Mapping[int, str],
    classes: Mapping[str, DeviceClass],
) -> tuple[DeviceAllocationConfiguration, ...] | None:
    """Return the configuration of the classes, then of the claim; ``requests`` is left out where it names all."""
    names = tuple(selected.values())
    requests_of: dict[str, list[str]] = {}
    for name, alternative in zip(names, alternatives, strict=True):
        requests_of.setdefault(alternative.device_class, []).append(name)
    found = [
        DeviceAllocationConfiguration(source="FromClass", requests=_unless_all(requests, names), opaque=one.opaque)
        for device_class, requests in requests_of.items()
        for one in classes[device_class].spec.config or ()
    ]
    found += [
        DeviceAllocationConfiguration(
            source="FromClaim", requests=_unless_all(one.requests or (), names), opaque=one.opaque
        )
        for one in claim.devices.config or ()
        if not one.requests or any(_is_named(name, one.requests) for name in names)
    ]
    return tuple(found) or None


def _unless_all(requests: Sequence[str], names: Iterable[str]) -> tuple[str, ...] | None:
    """Return the requests, or None if they are all of the claim."""
    return None if all(_is_named(name, requests) for name in names) else tuple(requests) or None


def _is_named(name: str, requests: Sequence[str]) -> bool:
    """Return whether requests include one, by its own name or, for an alternative, by that of the request."""
    return name in requests or name.partition("/")[0] in requests


def _build_node_selector(devices: Sequence[PoolDevice], node_name: str) -> NodeSelector | None:
    """Return the nodes that can use all devices: one, those that the selectors of all devices match, or all nodes."""
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for one in devices:
        spec = one.device if one.slice.spec.per_device_node_selection else one.slice.spec
        if spec.node_name is not None or one.device.binds_to_node:
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
        for term in (spec.node_selector.node_selector_terms or ())[:1] if spec.node_selector is not None else ():
            _add_requirements(expressions, term.match_expressions or ())
            _add_requirements(fields, term.match_fields or ())
    if not expressions and not fields:
        return None
    merged = NodeSelectorTerm(match_expressions=tuple(expressions) or None, match_fields=tuple(fields) or None)
    return NodeSelector(node_selector_terms=(merged,))


def _add_requirements(found: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    """Add those that are not there yet; the order of their values does not matter."""
    known = {_identify(one) for one in found}
    for one in more:
        if _identify(one) not in known:
            known.add(_identify(one))
            found.append(one)


def _identify(one: NodeSelectorRequirement) -> tuple[str, str, frozenset[str]]:
    return one.key, one.operator, frozenset(one.values or ())
