"""What claims have: by the API, assumed until the API shows it, or reserved in a simulation.

A claim that the API shows with an allocation takes those devices, whichever scheduler allocated them. If all of its
consumers are ignored, as victims are, its devices are free in the simulation.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from cpg_api.core.devices import AllocationResult, ResourceClaim
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation, extended_key
from cpg_engine.devices.catalog import DeviceCatalog, extended_owner
from cpg_engine.devices.results import taken_by

PODS = "pods"
"""The resource of a consumer that is a pod."""


class HeldClaim(Struct, frozen=True):
    """A claim with devices; ``assumed`` is the decision where the API does not show it yet."""

    result: AllocationResult
    assumed: DeviceAllocation | ExtendedAllocation | None = None


class DeviceClaims:
    """The claims that have devices."""

    def __init__(self, catalog: DeviceCatalog, stock: DeviceStock) -> None:
        """Start without claims."""
        self._catalog = catalog
        self._stock = stock
        self.held: dict[str, HeldClaim] = {}
        """The claims with devices, between cycles."""
        self.simulated: dict[str, AllocationResult] = {}
        """The claims of several pods that have devices in the simulation alone."""
        self._users: dict[str, set[str]] = {}
        """The held pods that use a claim, by UID."""
        self._unused: set[str] = set()
        """The claims with devices that no held pod uses."""
        self._claims_of: dict[str, tuple[str, ...]] = {}
        self._absent: set[str] = set()
        """The held pods that are ignored."""
        self._lifted: set[str] = set()
        """The claims whose devices are free, because all consumers are ignored."""

    # Between cycles.

    def refresh(self) -> None:
        """Take the changes of claims from the catalog."""
        self._stock.refresh()
        if self._catalog.changed_claims:
            changed = tuple(self._catalog.changed_claims)
            self._catalog.changed_claims.clear()
            for key in changed:
                self._read(key, self._catalog.claims.get(key))

    def assume(self, allocations: Iterable[DeviceAllocation | ExtendedAllocation]) -> None:
        """Count allocations until the API shows or contradicts them."""
        self.refresh()
        for allocation in allocations:
            if allocation.claim in self.held or not self._is_open(allocation):
                continue
            self._set(allocation.claim, HeldClaim(allocation.result, allocation))

    def forget(self, allocations: Iterable[DeviceAllocation | ExtendedAllocation]) -> None:
        """Stop counting allocations that were not carried out."""
        self.refresh()
        for allocation in allocations:
            found = self.held.get(allocation.claim)
            if found is not None and found.assumed == allocation:
                self._set(allocation.claim, None)

    def used_by_none_but(self, keys: Iterable[str], uids: Collection[str]) -> tuple[DeviceAllocation, ...]:
        """Return what those of some claims have by the API that no other pod uses than these."""
        self.refresh()
        found = []
        for key in keys:
            held, claim = self.held.get(key), self._catalog.claims.get(key)
            if held is None or held.assumed is not None or claim is None or key in self._users:
                continue
            if all(one.resource == PODS and one.uid in uids for one in claim.status.reserved_for or ()):
                found.append(DeviceAllocation(key, claim.metadata.uid, held.result, is_new=False))
        return tuple(found)

    def put_user(self, uid: str, claims: tuple[str, ...]) -> None:
        """Note the claims of a held pod."""
        if self._claims_of.get(uid, ()) == claims:
            return
        self.remove_user(uid)
        self._claims_of[uid] = claims
        for key in claims:
            self._users.setdefault(key, set()).add(uid)
            self._unused.discard(key)

    def remove_user(self, uid: str) -> None:
        """Note that a pod is not held any more."""
        for key in self._claims_of.pop(uid, ()):
            users = self._users[key]
            users.discard(uid)
            if not users:
                del self._users[key]
                self._note_use(key)

    def contested(self, keys: Iterable[str]) -> str | None:
        """Return the first of some claims whose devices another claim has as well, or None."""
        self.refresh()
        return next((key for key in keys if self._stock.is_contested(key)), None)

    # Within a cycle.

    def result_of(self, key: str) -> AllocationResult | None:
        """Return what a claim has, in the simulation too."""
        found = self.held.get(key)
        return found.result if found is not None else self.simulated.get(key)

    def consumers(self, key: str) -> int:
        """Return how many consumers a claim has."""
        claim = self._catalog.claims.get(key)
        reserved = () if claim is None else claim.status.reserved_for or ()
        return len({one.uid for one in reserved} | self._users.get(key, set()))

    def is_reserved_for_group(self, key: str) -> bool:
        """Return whether a consumer that is no pod has a claim, so that its pods need no entries."""
        claim = self._catalog.claims.get(key)
        return claim is not None and any(one.resource != PODS for one in claim.status.reserved_for or ())

    def lift(self, uids: Iterable[str]) -> None:
        """Free the devices of the claims all of whose consumers are ignored now."""
        self.refresh()
        for key in self._note(uids, absent=True):
            if key not in self._lifted and key in self.held and self._is_abandoned(key):
                self._lifted.add(key)
                self._stock.release(key)

    def put_back(self, uids: Iterable[str]) -> None:
        """Have the claims of pods that are not ignored any more take their devices again."""
        for key in self._note(uids, absent=False):
            if key in self._lifted and not self._is_abandoned(key):
                self._lifted.discard(key)
                self._stock.hold(key, taken_by(self.held[key].result))

    @contextmanager
    def without(self, keys: Iterable[str]) -> Iterator[None]:
        """Have some claims without devices for as long as the block runs."""
        found = {key: self.held.pop(key) for key in keys}
        for key in found:
            self._stock.release(key)
        try:
            yield
        finally:
            self.held.update(found)
            for key, held in found.items():
                self._stock.hold(key, taken_by(held.result))

    def released(self) -> list[str]:
        """Return the claims that still have devices, and of which all consumers are pods that are gone."""
        self.refresh()
        return [key for key in sorted(self._unused - self._lifted) if self._is_released(key)]

    @contextmanager
    def without_released(self) -> Iterator[None]:
        """Take the devices of released claims for free, for as long as the block runs.

        kube-controller-manager deallocates them a moment after the pods.
        """
        found = self.released()
        for key in found:
            self._stock.release(key)
        try:
            yield
        finally:
            for key in found:
                self._stock.hold(key, taken_by(self.held[key].result))

    def _is_open(self, allocation: DeviceAllocation | ExtendedAllocation) -> bool:
        """Return whether the API shows that an allocation is still to be written."""
        if isinstance(allocation, ExtendedAllocation):
            claim = self._catalog.claims.get(self._catalog.extended_claims.get(allocation.owner, ""))
            return claim is None or claim.status.allocation is None
        claim = self._catalog.claims.get(allocation.claim)
        return claim is not None and claim.metadata.uid == allocation.uid

    def _is_released(self, key: str) -> bool:
        claim = self._catalog.claims.get(key)
        reserved = (claim.status.reserved_for or ()) if claim is not None else ()
        is_known = any(one.resource != PODS or one.uid in self._claims_of for one in reserved)
        return bool(reserved) and not is_known

    def _note(self, uids: Iterable[str], *, absent: bool) -> Collection[str]:
        concerned = [uid for uid in uids if uid in self._claims_of]
        (self._absent.update if absent else self._absent.difference_update)(concerned)
        return dict.fromkeys(key for uid in concerned for key in self._claims_of[uid])

    def _is_abandoned(self, key: str) -> bool:
        users = self._users.get(key, set())
        claim = self._catalog.claims.get(key)
        reserved = {one.uid for one in (claim.status.reserved_for or ())} if claim is not None else set()
        return users | reserved <= self._absent

    def _read(self, key: str, claim: ResourceClaim | None) -> None:
        """Take the state of a claim from the API."""
        before = self.held.get(key)
        if claim is not None and claim.status.allocation is not None:
            if (owner := extended_owner(claim)) is not None:
                self._set(extended_key(owner), None)
            self._set(key, HeldClaim(claim.status.allocation))
        elif before is not None and (before.assumed is None or not self._is_open(before.assumed)):
            self._set(key, None)

    def _note_use(self, key: str) -> None:
        (self._unused.add if key in self.held and key not in self._users else self._unused.discard)(key)

    def _set(self, key: str, found: HeldClaim | None) -> None:
        if found is None:
            self.held.pop(key, None)
        else:
            self.held[key] = found
        self._note_use(key)
        taken = () if found is None else tuple(one for one in taken_by(found.result) if not one.is_admin)
        if key in self._lifted or taken != self._stock.held_by(key):
            self._lifted.discard(key)
            self._stock.release(key)
            self._stock.hold(key, taken)
