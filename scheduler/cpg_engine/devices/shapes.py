"""What claims ask for, compiled: without the names of claims, so that equal claims have equal shapes."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import (
    ALL_DEVICES,
    EXACT_COUNT,
    MAX_RESULTS,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from cpg_api.quantity import nano_value
from cpg_engine.devices.values import Amounts


class DeviceRequestError(Exception):
    """A reason why a claim can be allocated nowhere; its text is a message for users."""


class Alternative(Struct, frozen=True):
    """A request for devices of one class, or one of the alternatives of a request. ``count`` is 0 for all devices."""

    device_class: str
    class_selectors: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    count: int = 0
    is_admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Amounts = ()


class Constraint(Struct, frozen=True):
    """An attribute that devices share, or that tells them apart, and the alternatives that it applies to."""

    attribute: str
    is_distinct: bool
    alternatives: tuple[int, ...]


class ClaimShape(Struct, frozen=True):
    """The requests of a claim, each as the indexes of its alternatives."""

    requests: tuple[tuple[int, ...], ...] = ()
    constraints: tuple[Constraint, ...] = ()


class DeviceShape(Struct, frozen=True):
    """The requests of some claims that one pod needs together, in their order."""

    claims: tuple[ClaimShape, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    @property
    def has_alternatives(self) -> bool:
        """Return whether a request is for the first available of several."""
        return any(len(request) > 1 for claim in self.claims for request in claim.requests)


def compile_shape(claims: Sequence[ResourceClaimSpec], classes: Mapping[str, DeviceClass]) -> DeviceShape:
    """Compile the claims of a pod; raise ``DeviceRequestError`` where one cannot be allocated on any node."""
    alternatives: list[Alternative] = []
    shapes = []
    for claim in claims:
        first = len(alternatives)
        requests = []
        for request in claim.devices.requests or ():
            if request.exactly is None and not request.first_available:
                raise DeviceRequestError(f"request {request.name} is of a kind that is not supported")
            found = [_compile(one, classes) for one in _asked(request)]
            requests.append(tuple(range(len(alternatives), len(alternatives) + len(found))))
            alternatives += found
        least = sum(min(alternatives[index].count for index in request) for request in requests)
        if least > MAX_RESULTS:
            raise DeviceRequestError(f"a claim asks for {least} devices, but can have at most {MAX_RESULTS}")
        names = dict(zip(range(first, len(alternatives)), request_names(claim), strict=True))
        constraints = tuple(_compile_constraint(one, names) for one in claim.devices.constraints or ())
        shapes.append(ClaimShape(requests=tuple(requests), constraints=constraints))
    return DeviceShape(claims=tuple(shapes), alternatives=tuple(alternatives))


def request_names(claim: ResourceClaimSpec) -> tuple[str, ...]:
    """Return the names of all alternatives of a claim as results have them: ``request`` or ``request/alternative``."""
    return tuple(
        name
        for request in claim.devices.requests or ()
        for name in ([f"{request.name}/{one.name}" for one in request.first_available or ()] or [request.name])
    )


def asked_alternatives(claim: ResourceClaimSpec) -> tuple[ExactDeviceRequest | DeviceSubRequest, ...]:
    """Return all alternatives of a claim, in the order of their names."""
    return tuple(one for request in claim.devices.requests or () for one in _asked(request))


def _asked(request: DeviceRequest) -> Sequence[ExactDeviceRequest | DeviceSubRequest]:
    return request.first_available or tuple(one for one in (request.exactly,) if one is not None)


def _compile(asked: ExactDeviceRequest | DeviceSubRequest, classes: Mapping[str, DeviceClass]) -> Alternative:
    found = classes.get(asked.device_class_name)
    if found is None:
        raise DeviceRequestError(f"device class {asked.device_class_name} does not exist")
    if asked.allocation_mode not in {EXACT_COUNT, ALL_DEVICES}:
        raise DeviceRequestError(f"allocation mode {asked.allocation_mode} is not supported")
    requested = (asked.capacity.requests if asked.capacity is not None else None) or {}
    return Alternative(
        device_class=asked.device_class_name,
        class_selectors=_expressions(found.spec.selectors),
        selectors=_expressions(asked.selectors),
        count=max(1, asked.count) if asked.allocation_mode == EXACT_COUNT else 0,
        is_admin=isinstance(asked, ExactDeviceRequest) and bool(asked.admin_access),
        tolerations=tuple(replace(one, toleration_seconds=None) for one in asked.tolerations or ()),
        capacity=tuple((name, nano_value(quantity)) for name, quantity in sorted(requested.items())),
    )


def _expressions(selectors: Sequence[DeviceSelector] | None) -> tuple[str, ...]:
    expressions = []
    for selector in selectors or ():
        if selector.cel is None:
            raise DeviceRequestError("a selector is of a kind that is not supported")
        expressions.append(selector.cel.expression)
    return tuple(expressions)


def _compile_constraint(constraint: DeviceConstraint, names: Mapping[int, str]) -> Constraint:
    """Compile a constraint; where it names no requests, it applies to all."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    if attribute is None:
        raise DeviceRequestError("a constraint is of a kind that is not supported")
    chosen = constraint.requests
    return Constraint(
        attribute=attribute,
        is_distinct=constraint.match_attribute is None,
        alternatives=tuple(
            index for index, name in names.items() if not chosen or name in chosen or name.partition("/")[0] in chosen
        ),
    )
