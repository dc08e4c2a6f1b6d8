"""A slow, obvious model of an allocation: it tries every combination, and checks each as a whole."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

from cpg_api.core.devices import (
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from cpg_api.quantity import nano_value
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.devices.capacity import CapacityError, consumption
from cpg_engine.devices.constraints import attribute_value
from cpg_engine.devices.pools import PoolDevice, PoolTarget
from cpg_engine.devices.values import UNKNOWN, DeviceId
from cpg_engine.devices.views import SelectorError
from cpg_engine.testing.device_case import DeviceCase, compile_case

Asked = ExactDeviceRequest | DeviceSubRequest
Choice = tuple[str, Asked, tuple[PoolDevice, ...]]
"""The name of an alternative, what it asks for, and its devices."""
MAX_COMBINATIONS = 3000


class TooManyError(Exception):
    """A case has more combinations than a test can try."""


class AllocationModel:
    """All ways to allocate a case."""

    def __init__(self, case: DeviceCase) -> None:
        """Read the case; the pools are judged by the code under test."""
        self.case = case
        self.targets = compile_case(case).targets
        self.devices = [device for target in self.targets if not target.problem for device in target.devices]
        self.exclusive = {id_of(one) for one in case.allocated if one.share_id is None and not one.admin_access}
        self.shares = [one for one in case.allocated if one.share_id is not None and not one.admin_access]

    def is_possible(self) -> bool:
        """Return whether some combination is valid."""
        ways = [list(self.ways(claim)) for claim in self.case.claims]
        if sum(map(len, ways)) > MAX_COMBINATIONS:
            raise TooManyError
        claims = [[way for way in found if self.is_valid([way])] for found in ways]
        count = 1
        for found in claims:
            count *= len(found)
        if count > MAX_COMBINATIONS:
            raise TooManyError
        return any(self.is_valid(combination) for combination in product(*claims))

    def ways(self, claim: ResourceClaim) -> Iterator[tuple[Choice, ...]]:
        """Yield all choices for the requests of a claim."""
        choices = []
        for request in claim.spec.devices.requests or ():
            found: list[Choice] = []
            alternatives: list[tuple[str, Asked]] = [
                (f"{request.name}/{one.name}", one) for one in request.first_available or ()
            ]
            for name, asked in alternatives or [(request.name, request.exactly or ExactDeviceRequest())]:
                matching = [device for device in self.devices if self.matches(asked, device)]
                count = len(matching) if asked.allocation_mode == "All" else asked.count
                chosen = combinations(matching, count) if count else ()
                for number, one in enumerate(chosen):
                    if number > MAX_COMBINATIONS:
                        raise TooManyError
                    found.append((name, asked, one))
            choices.append(found)
        count = 1
        for found in choices:
            count *= len(found)
        if count > MAX_COMBINATIONS:
            raise TooManyError
        return product(*choices)

    def chosen(self, claim: ResourceClaim, results: Sequence[DeviceResult]) -> tuple[Choice, ...]:
        """Return results of a claim as choices."""
        devices = {device.id: device for device in self.devices}
        asked: dict[str, Asked] = {}
        for request in claim.spec.devices.requests or ():
            asked[request.name] = request.exactly or ExactDeviceRequest()
            asked.update({f"{request.name}/{one.name}": one for one in request.first_available or ()})
        names = dict.fromkeys(one.request for one in results)
        return tuple(
            (name, asked[name], tuple(devices[id_of(one)] for one in results if one.request == name)) for name in names
        )

    def matches(self, asked: Asked, device: PoolDevice) -> bool:
        """Return whether a device is what is asked for; taints are left out, because "all" includes tainted devices."""
        found = next(one for one in self.case.classes if one.metadata.name == asked.device_class_name)
        selectors = [*(found.spec.selectors or ()), *(asked.selectors or ())]
        try:
            return (
                all(
                    one.cel is not None and selects(one.cel.expression, device.id.driver, device.device)
                    for one in selectors
                )
                and consumption(requested(asked), device.device.capacity or {}) is not None
            )
        except (SelectorError, CapacityError):
            return False

    def is_valid(self, claims: Sequence[tuple[Choice, ...]]) -> bool:
        """Return whether all choices for some claims can be allocated together."""
        taken: Counter[DeviceId] = Counter()
        for choices in claims:
            own: set[DeviceId] = set()
            for _, asked, devices in choices:
                for device in devices:
                    if device.device.allow_multiple_allocations:
                        if not is_admin(asked) and device.id in self.exclusive:
                            return False
                    elif device.id in own or (
                        not is_admin(asked) and (taken[device.id] or device.id in self.exclusive)
                    ):
                        return False
                    if not tolerates_all(asked, device):
                        return False
                    own.add(device.id)
                    taken[device.id] += 1
            if sum(len(devices) for _, _, devices in choices) > 32:
                return False
        every = [choice for choices in claims for choice in choices]
        return (
            all(
                is_met(constraint, choices)
                for claim, choices in zip(self.case.claims, claims, strict=False)
                for constraint in claim.spec.devices.constraints or ()
            )
            and self.has_capacity(every)
            and all(self.has_counters(target, every) for target in self.targets)
        )

    def has_capacity(self, choices: Sequence[Choice]) -> bool:
        """Return whether no device is shared beyond its capacity."""
        consumed: Counter[tuple[DeviceId, str]] = Counter()
        for share in self.shares:
            for name, amount in (share.consumed_capacity or {}).items():
                consumed[id_of(share), name] += nano_value(amount)
        found = {}
        for _, asked, devices in choices:
            for device in devices:
                if device.device.allow_multiple_allocations:
                    found[device.id] = device
                    for name, nanos in consumption(requested(asked), device.device.capacity or {}) or ():
                        consumed[device.id, name] += nanos
        return all(
            consumed[device.id, name] <= nano_value(capacity.value)
            for device in found.values()
            for name, capacity in (device.device.capacity or {}).items()
        )

    def has_counters(self, target: PoolTarget, choices: Sequence[Choice]) -> bool:
        """Return whether the counters of a pool suffice, if a device that was chosen consumes some."""
        names = {
            id_of(one).device
            for one in self.case.allocated
            if not one.admin_access and id_of(one)[:2] == target.pool.id
        }
        sharing = {id_of(one) for one in self.shares}
        left = dict(zip(target.counter_indexes, target.counters, strict=True))
        new = []
        for _, _, devices in choices:
            for device in devices:
                if device.id[:2] != target.pool.id or not device.device.consumes_counters:
                    continue
                if device.device.allow_multiple_allocations and device.id in sharing:
                    continue
                sharing.add(device.id)
                new.append(device)
        for device in (*(one for one in (*target.devices, *target.others) if one.id.device in names), *new):
            for one in device.device.consumes_counters or ():
                for name, counter in (one.counters or {}).items():
                    left[one.counter_set, name] -= nano_value(counter.value)
        return not new or min(left.values()) >= 0


def id_of(result: DeviceResult) -> DeviceId:
    """Return the device of a result."""
    return DeviceId(result.driver, result.pool, result.device)


def is_admin(asked: Asked) -> bool:
    """Return whether admin access is asked for."""
    return isinstance(asked, ExactDeviceRequest) and bool(asked.admin_access)


def requested(asked: Asked) -> dict[str, int]:
    """Return the amounts that are asked for."""
    amounts = (asked.capacity.requests if asked.capacity is not None else None) or {}
    return {name: nano_value(amount) for name, amount in amounts.items()}


def tolerates_all(asked: Asked, device: PoolDevice) -> bool:
    """Return whether each taint that prevents an allocation is tolerated."""
    return all(
        any(
            (not one.key or one.key == taint.key)
            and (not one.effect or one.effect == taint.effect)
            and (one.operator == "Exists" or one.value == taint.value)
            for one in asked.tolerations or ()
        )
        for taint in device.taints
        if taint.effect in {"NoSchedule", "NoExecute"}
    )


def is_met(constraint: DeviceConstraint, choices: Sequence[Choice]) -> bool:
    """Return whether the devices that a constraint applies to share its attribute, or differ in it."""
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    values = [
        attribute_value(device.id.driver, device.device, name)
        for request, _, devices in choices
        if not constraint.requests or request in constraint.requests or request.split("/", 1)[0] in constraint.requests
        for device in devices
    ]
    if None in values:
        return False
    if constraint.match_attribute is not None:
        return len(values) < 2 or (len(set(values)) == 1 and UNKNOWN not in values)
    return len(set(values)) == len(values) and UNKNOWN not in values[1:]
