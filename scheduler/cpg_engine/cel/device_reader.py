"""What an expression reads of a device, as a key for its result, and as the variable ``device``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cpg_api.core.devices import Device, DeviceAttribute, DeviceCapacity
from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.quantities import parse_quantity
from cpg_engine.cel.reads import CAPACITY, Read, Reads
from cpg_engine.cel.semver import parse_semver
from cpg_engine.cel.values import CelMap

Given = DeviceAttribute | DeviceCapacity
Values = tuple[object, ...]
"""What was read of a device: its driver, whether it can be allocated more than once, and the value of each read."""

_NOTHING: Final[Mapping[str, Given]] = {}
_EMPTY: Final = CelMap({})


class Reader:
    """Reads the devices of one driver for one expression."""

    def __init__(self, driver: str, reads: Reads) -> None:
        self._driver = driver
        self._is_everything = reads.is_everything
        parts = sorted(reads.parts, key=str)
        self._named = [part for part in parts if part.name is not None]
        self._domains = [part for part in parts if part.name is None]
        self._names = [(part.map == CAPACITY, *self._spellings(part)) for part in self._named]

    def _spellings(self, part: Read) -> tuple[str, str]:
        """Return the name with its domain, and the one without, which stands for the driver's domain."""
        return f"{part.domain}/{part.name}", str(part.name) if part.domain == self._driver else ""

    def read(self, device: Device) -> Values:
        """Return what the result of the expression depends on."""
        attributes: Mapping[str, Given] = device.attributes or _NOTHING
        capacity: Mapping[str, Given] = device.capacity or _NOTHING
        values: list[object] = [self._driver, device.allow_multiple_allocations]
        if self._is_everything:
            return (*values, frozenset(attributes.items()), frozenset(capacity.items()))
        for is_capacity, full, short in self._names:
            source = capacity if is_capacity else attributes
            value = source.get(full)
            values.append(source.get(short) if value is None and short else value)
        for part in self._domains:
            names = capacity if part.map == CAPACITY else attributes
            values.append(any(_split(name, self._driver)[0] == part.domain for name in names))
        return tuple(values)

    def value(self, values: Values) -> CelMap:
        """Return the variable ``device`` with what ``read`` has returned."""
        maps: dict[object, CelMap] = {kind: CelMap({}, _EMPTY, is_given=True) for kind in ("attributes", "capacity")}
        for kind, domain, name, value in self._found(values[2:]):
            entries = maps[kind].entries
            inner = entries.setdefault(domain, CelMap({}, is_given=True))
            if name is not None and isinstance(inner, CelMap):
                inner.entries[name] = _value(value)
        fields = {**maps, "driver": self._driver, "allowMultipleAllocations": bool(values[1])}
        return CelMap(fields, is_given=True)

    def _found(self, values: Iterable[object]) -> Iterator[tuple[str, str, str | None, object]]:
        """Yield map, domain, name and value of all that the device has; without a name, of a domain that it has."""
        if not self._is_everything:
            for part, value in zip((*self._named, *self._domains), values, strict=True):
                if value:
                    yield (*part, value)
            return
        for kind, items in zip(("attributes", "capacity"), values, strict=True):
            assert isinstance(items, frozenset)  # noqa: S101 - as read above
            # A name without a domain comes before the same one with it, which then counts.
            for name, value in sorted(items, key=lambda item: ("/" in item[0], item[0])):
                yield (kind, *_split(name, self._driver), value)


def _split(name: str, driver: str) -> tuple[str, str]:
    """Return domain and name; a name without a domain is of the driver's."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _value(given: object) -> object:
    """Return the value of an attribute or capacity."""
    if isinstance(given, DeviceCapacity):
        return parse_quantity(given.value)
    assert isinstance(given, DeviceAttribute)  # noqa: S101 - there is nothing else
    for values in (given.ints, given.bools, given.strings):
        if values is not None:
            return list(values)
    if given.versions is not None:
        return [parse_semver(version) for version in given.versions]
    for value in (given.int_value, given.bool_value, given.string):
        if value is not None:
            return value
    if given.version is not None:
        return parse_semver(given.version)
    raise EvaluationError("unsupported attribute value")
