"""The catalog of devices: what drivers offer, what claims ask for, and what they have.

It changes between cycles only. ``version`` is incremented with every change that matters to scheduling.
"""

from typing import TypeVar

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

S = TypeVar("S")


class DeviceCatalog:
    """All objects of dynamic resource allocation, by name; claims by ``namespace/name``."""

    def __init__(self) -> None:
        """Start empty."""
        self.version = 0
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.taint_rules: dict[str, DeviceTaintRule] = {}

    def put_claim(self, claim: ResourceClaim) -> None:
        """Add a claim or its new state."""
        self._put(self.claims, claim.metadata.key, claim)

    def remove_claim(self, namespace: str, name: str) -> None:
        """Remove a claim."""
        self._remove(self.claims, f"{namespace}/{name}")

    def put_slice(self, found: ResourceSlice) -> None:
        """Add a slice or its new state."""
        self._put(self.slices, found.metadata.name, found)

    def remove_slice(self, name: str) -> None:
        """Remove a slice."""
        self._remove(self.slices, name)

    def put_class(self, found: DeviceClass) -> None:
        """Add a device class or its new state."""
        self._put(self.classes, found.metadata.name, found)

    def remove_class(self, name: str) -> None:
        """Remove a device class."""
        self._remove(self.classes, name)

    def put_taint_rule(self, rule: DeviceTaintRule) -> None:
        """Add a taint rule or its new state."""
        self._put(self.taint_rules, rule.metadata.name, rule)

    def remove_taint_rule(self, name: str) -> None:
        """Remove a taint rule."""
        self._remove(self.taint_rules, name)

    def _put(self, table: dict[str, S], key: str, found: S) -> None:
        if table.get(key) != found:
            table[key] = found
            self.version += 1

    def _remove(self, table: dict[str, S], key: str) -> None:
        if table.pop(key, None) is not None:
            self.version += 1
