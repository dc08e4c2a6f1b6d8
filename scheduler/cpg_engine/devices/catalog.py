"""The catalog of devices: what drivers offer, what claims ask for, and what they have.

It changes between cycles only. ``version`` is incremented with every change that matters to scheduling,
``class_version`` with those of device classes. Claims and slices are many, so what is derived from them takes those
that have changed from ``changed_claims`` and ``changed_pools``.
"""

import hashlib
from collections import Counter

import msgspec

from cpg_api.core.devices import (
    EXTENDED_RESOURCE_CLAIM,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from cpg_engine.devices.extended import backed_resources
from cpg_engine.devices.values import PoolId


class DeviceCatalog:
    """All objects of dynamic resource allocation, by name; claims by ``namespace/name``."""

    def __init__(self) -> None:
        """Start empty."""
        self.version = 0
        self.class_version = 0
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.taint_rules: dict[str, DeviceTaintRule] = {}
        self.backing: dict[str, str] = {}
        """The class of each extended resource that is backed by one."""
        self.extended_claims: dict[str, str] = {}
        """The claim for the extended resources of a pod, by the pod as ``namespace/uid``."""
        self._backs_resources = True
        self.slices_of: dict[PoolId, dict[str, ResourceSlice]] = {}
        self.changed_pools: set[PoolId] = set()
        self.changed_claims: dict[str, None] = {}
        self.specs: dict[str, ResourceClaimSpec] = {}
        """The distinct specs of claims, by code."""
        self.spec_of: dict[str, str] = {}
        """The code of each claim's spec."""
        self._uses: Counter[str] = Counter()
        """How many claims have a spec, by code."""

    def put_claim(self, claim: ResourceClaim) -> None:
        """Add a claim or its new state."""
        key = claim.metadata.key
        before = self.claims.get(key)
        if before is None or before.metadata.uid != claim.metadata.uid:
            self._forget_spec(key)
            code = self.spec_of[key] = code_of(claim.spec)
            self.specs[code] = claim.spec
            self._uses[code] += 1
        if before is None or _relevant(before) != _relevant(claim):
            self.version += 1
            self.changed_claims[key] = None
        self.claims[key] = claim
        if (owner := extended_owner(claim)) is not None:
            self.extended_claims[owner] = key

    def remove_claim(self, namespace: str, name: str) -> None:
        """Remove a claim."""
        key = f"{namespace}/{name}"
        claim = self.claims.pop(key, None)
        if claim is not None:
            owner = extended_owner(claim)
            if owner is not None and self.extended_claims.get(owner) == key:
                del self.extended_claims[owner]
            self._forget_spec(key)
            self.version += 1
            self.changed_claims[key] = None

    def put_slice(self, found: ResourceSlice) -> None:
        """Add a slice or its new state."""
        before = self.slices.get(found.metadata.name)
        self.slices[found.metadata.name] = found
        if before is not None:
            if before.spec == found.spec:
                return
            self._leave_pool(before)
        pool = pool_of(found)
        self.slices_of.setdefault(pool, {})[found.metadata.name] = found
        self.changed_pools.add(pool)
        self.version += 1

    def remove_slice(self, name: str) -> None:
        """Remove a slice."""
        before = self.slices.pop(name, None)
        if before is not None:
            self._leave_pool(before)
            self.version += 1

    def put_class(self, found: DeviceClass) -> None:
        """Add a device class or its new state."""
        before = self.classes.get(found.metadata.name)
        self.classes[found.metadata.name] = found
        if before is None or (before.spec, _age(before)) != (found.spec, _age(found)):
            self._change_classes()

    def remove_class(self, name: str) -> None:
        """Remove a device class."""
        if self.classes.pop(name, None) is not None:
            self._change_classes()

    def back_resources(self, *, backs: bool) -> None:
        """Set whether devices stand for extended resources: an API server before 1.36 keeps no trace of that."""
        if self._backs_resources != backs:
            self._backs_resources = backs
            self._change_classes()

    def put_taint_rule(self, rule: DeviceTaintRule) -> None:
        """Add a taint rule or its new state."""
        before = self.taint_rules.get(rule.metadata.name)
        self.taint_rules[rule.metadata.name] = rule
        if before is None or before.spec != rule.spec:
            self._change_taints()

    def remove_taint_rule(self, name: str) -> None:
        """Remove a taint rule."""
        if self.taint_rules.pop(name, None) is not None:
            self._change_taints()

    def _forget_spec(self, key: str) -> None:
        """Drop the spec of a claim, unless another claim has it, too."""
        code = self.spec_of.pop(key, None)
        if code is not None:
            self._uses[code] -= 1
            if not self._uses[code]:
                del self._uses[code], self.specs[code]

    def _leave_pool(self, found: ResourceSlice) -> None:
        pool = pool_of(found)
        others = self.slices_of[pool]
        del others[found.metadata.name]
        if not others:
            del self.slices_of[pool]
        self.changed_pools.add(pool)

    def _change_classes(self) -> None:
        self.version += 1
        self.class_version += 1
        self.backing = backed_resources(self.classes.values()) if self._backs_resources else {}

    def _change_taints(self) -> None:
        self.version += 1
        self.changed_pools.update(self.slices_of)


def code_of(spec: ResourceClaimSpec) -> str:
    """Return a short text that is equal for equal specs."""
    return hashlib.blake2b(msgspec.json.encode(spec), digest_size=12).hexdigest()


def pool_of(found: ResourceSlice) -> PoolId:
    """Return the pool of a slice."""
    return PoolId(found.spec.driver, found.spec.pool.name)


def extended_owner(claim: ResourceClaim) -> str | None:
    """Return the pod for whose extended resources a claim was made, as ``namespace/uid``, or None."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owner = next((one.uid for one in claim.metadata.owner_references if one.controller), None)
    return None if owner is None else owner_key(claim.metadata.namespace, owner)


def owner_key(namespace: str, uid: str) -> str:
    """Return what stands for a pod as the owner of a claim: a claim of another namespace is none of its own."""
    return f"{namespace}/{uid}"


def _age(found: DeviceClass) -> str | None:
    return found.metadata.creation_timestamp


def _relevant(claim: ResourceClaim) -> tuple[object, ...]:
    meta, status = claim.metadata, claim.status
    return meta.uid, meta.deletion_timestamp, meta.owner_references, status.allocation, status.reserved_for
