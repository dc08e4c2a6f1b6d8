"""Takes back what attempts that have ended left to pods without a node, such as those of an earlier leader.

A batch that fails releases its claims itself, unless that is refused or its process ends. What is left is found here,
again and again: a claim that is allocated to or reserved for pods of ours that wait, and are part of no batch.

The next attempt may still use such a claim. So it is left alone until it was found twice, and a bind waits for a
release that is under way: see ``ClaimWriter.is_in_doubt``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NoReturn

from cpg_api.core.devices import ResourceClaim
from cpg_client.resources import NATIVE_POD_GROUPS
from cpg_client.stall_guard import StallGuard
from cpg_engine.cluster.device_needs import claim_keys
from cpg_engine.decisions import DeviceAllocation
from cpg_scheduler.binding.claim_writer import ClaimWriter
from cpg_scheduler.binding.claim_writes import ClaimRelease
from cpg_scheduler.binding.extended_claims import ExtendedClaims
from cpg_scheduler.cache.cluster import ClusterCache

SECONDS_BETWEEN_SWEEPS = 5.0
"""Seconds between two searches for claims of attempts that have ended."""


class LeftClaims:
    """Releases claims, and deletes those for extended resources."""

    def __init__(self, writer: ClaimWriter, extended: ExtendedClaims, cache: ClusterCache, guard: StallGuard) -> None:
        """Start with nothing found."""
        self._writer = writer
        self._extended = extended
        self._cache = cache
        self._stalls = guard
        self._found: list[ClaimRelease] = []

    async def run(self) -> NoReturn:
        """Take back what is left, again and again."""
        while True:
            await self._extended.delete_left()
            await self._stalls.wait_current()
            await self.release_left()
            await asyncio.sleep(SECONDS_BETWEEN_SWEEPS)

    async def release_left(self) -> None:
        """Release the claims that are left as they were at the search before."""
        before, self._found = self._found, list(self._left())
        await self._writer.release([one for one in self._found if one in before], only_idle=True)

    def _left(self) -> Iterator[ClaimRelease]:
        waiting: dict[str, set[str]] = defaultdict(set)
        for uid, pod in self._cache.pods.items():
            # Most pods have a node.
            if not pod.spec.node_name and pod.spec.resource_claims and self._is_idle(uid):
                for key in claim_keys(pod):
                    waiting[key].add(uid)
        for key, idle in waiting.items():
            claim = self._cache.devices.claims.get(key)
            if claim is None or claim.status.allocation is None:
                continue
            allocation = DeviceAllocation(key, claim.metadata.uid, claim.status.allocation, is_new=False)
            are_all = len(idle) == len(self._cache.devices.users(key))
            release = ClaimRelease(allocation, _consumers(claim, idle, are_all=are_all), deallocates=are_all)
            if are_all or release.consumers:
                yield release

    def _is_idle(self, uid: str) -> bool:
        """Return whether a pod waits; one for which pods are evicted keeps its devices."""
        return self._writer.is_idle(uid) and self._cache.reservations.get(uid) is None


def _consumers(claim: ResourceClaim, idle: Collection[str], *, are_all: bool) -> frozenset[str]:
    """Return the consumers of a claim that wait; a native group waits if all pods do that use the claim."""
    return frozenset(
        one.uid
        for one in claim.status.reserved_for or ()
        if one.uid in idle or (are_all and one.resource == NATIVE_POD_GROUPS.plural)
    )
