"""The PreBind plugin for devices: allocates claims, reserves them for pods, and waits for binding conditions.

All claims of a batch are written before its first bind, and a bind waits until the watch shows them: when it confirms
the bind, the ledger no longer assumes the devices, so the claims have to show them by then.

The claim for extended resources of a pod is created first, and named in the status of the pod last.

A batch that fails releases what is reserved for its unbound pods alone. A replica that is killed releases nothing: the
next leader finds claims that are allocated to pods without a node, and completes them or takes them back
(``left_claims``).
"""

import asyncio
from collections.abc import Collection, Sequence

from msgspec import Struct

from cpg_api.core.devices import ResourceClaim
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import NATIVE
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.binding.claim_writer import ClaimWriter
from cpg_scheduler.binding.claim_writes import (
    ClaimRelease,
    ClaimUser,
    DeviceStates,
    allocation_write,
    consumer_of,
    device_states,
    has_devices,
    is_gone,
    is_reserved,
    named,
)
from cpg_scheduler.binding.extended_claims import ExtendedClaims, key_for
from cpg_scheduler.binding.prebind import PreBindError, first_of, watch_pods
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.observability.device_metrics import ERROR, FAILED, READY, TIMEOUT, DeviceMetrics

ALL_READY = DeviceStates((), ())


class DeviceFailedError(PreBindError):
    """A driver says that a device will never be ready."""


class _ClaimOrder(Struct, frozen=True):
    """What a batch allocates to a claim, and the pods of the batch that use it."""

    allocation: DeviceAllocation
    users: Sequence[ClaimUser]

    def is_reserved(self, claim: ResourceClaim) -> bool:
        """Return whether the claim is reserved for all of them."""
        return all(is_reserved(claim, user.pod) for user in self.users)


class _ExtendedOrder(Struct, frozen=True):
    """The claim to make for the extended resources of a pod."""

    pod: Pod
    allocation: ExtendedAllocation

    @property
    def key(self) -> str:
        """Return the key of the claim."""
        return key_for(self.pod, self.allocation)


_Order = _ClaimOrder | _ExtendedOrder


class DeviceBinder:
    """Allocates the devices that were chosen for claims."""

    name = "devices"

    def __init__(
        self,
        writer: ClaimWriter,
        extended: ExtendedClaims,
        cache: ClusterCache,
        metrics: DeviceMetrics,
        *,
        timeout: float,
    ) -> None:
        """Wait for the devices of a batch at most ``timeout`` seconds."""
        self._extended = extended
        self._metrics = metrics
        self._writer = writer
        self._cache = cache
        self._claims = cache.devices.claims
        self._timeout = timeout

    def unready(self, batch: BindBatch) -> list[str]:
        """Return the claims of a batch that are not ready for all of its pods, by kind and name."""
        found = [order.allocation.claim for order in self._unready(batch)]
        found += [order.key for order in _extended_orders(batch) if not self._is_published(order)]
        return [named(key) for key in found]

    async def prebind(self, batch: BindBatch) -> str:
        """Return as soon as all claims of a batch are ready, or the problem that prevents it."""
        orders: list[_Order] = [*self._unready(batch)]
        orders += [order for order in _extended_orders(batch) if not self._is_published(order)]
        if not orders:
            return ""
        clock = asyncio.get_running_loop().time
        began = clock()
        result, problem = await self._make_all_ready(batch, orders)
        chosen = (device for order in orders for device in order.allocation.result.devices.results or ())
        self._metrics.ended(result, claims=len(orders), devices=chosen, seconds=clock() - began)
        return problem

    async def _make_all_ready(self, batch: BindBatch, orders: Sequence[_Order]) -> tuple[str, str]:
        """Return how it ended to make claims ready, and the problem."""
        result, problem = READY, ""
        try:
            async with asyncio.timeout(self._timeout), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch_pods(self._cache, batch.pods))
                await asyncio.wait([tasks.create_task(self._make_ready(order)) for order in orders])
                watching.cancel()
        except* DeviceFailedError as group:
            result, problem = FAILED, str(group.exceptions[0])
        except* PreBindError as group:
            result, problem = ERROR, str(group.exceptions[0])
        except* TimeoutError:
            result, problem = TIMEOUT, f"{first_of(self.unready(batch))} not ready within {self._timeout:g} s"
        return result, problem

    async def release(self, batch: BindBatch, uids: Collection[str]) -> None:
        """Release the claims that are reserved for these pods of a batch."""
        await self._writer.release([self._release(order, uids) for order in self._orders(batch)])
        extended = [order for order in _extended_orders(batch) if order.pod.metadata.uid in uids]
        if extended:
            await asyncio.gather(*(self._extended.delete(order.pod, order.allocation) for order in extended))

    async def deallocate(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Deallocate claims whose devices keep a unit from its place, if no pods but these use them."""
        await self._writer.release([ClaimRelease(one, frozenset(pods)) for one in claims], only_idle=True)

    def _release(self, order: _ClaimOrder, uids: Collection[str]) -> ClaimRelease:
        """Return a release; an earlier allocation stays for the next attempt, unless its devices do not get ready."""
        allocation = order.allocation
        unbound = [user for user in order.users if user.pod.metadata.uid in uids]
        consumers = {user.consumer.uid for user in unbound if not self._has_other_pods(user, uids)}
        claim = self._claims.get(allocation.claim)
        is_stuck = claim is not None and device_states(claim) != ALL_READY
        return ClaimRelease(allocation, frozenset(consumers), allocation.is_new or is_stuck)

    def _has_other_pods(self, user: ClaimUser, uids: Collection[str]) -> bool:
        """Return whether the consumer of a pod is its group, and stands for other pods with a node as well."""
        group = self._native_group(user.pod)
        if group is None or user.consumer.uid != group.metadata.uid:
            return False
        members = self._cache.members(NATIVE, key_of(group))
        return any(pod.spec.node_name and pod.metadata.uid not in uids for pod in members)

    def _native_group(self, pod: Pod) -> PodGroup | None:
        """Return the native group that a pod names."""
        name = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else None
        if name is None or NATIVE not in self._cache.stores:
            return None
        found = self._cache.stores[NATIVE].forest.groups.get(GroupKey(PodGroup.kind, pod.metadata.namespace, name))
        return found if isinstance(found, PodGroup) else None

    async def _make_ready(self, order: _Order) -> None:
        """Write a claim, and wait until its drivers have its devices ready."""
        if isinstance(order, _ExtendedOrder):
            made = await self._extended.create(order.pod, order.allocation)
            await self._make_ready(_ClaimOrder(made, [ClaimUser(order.pod, consumer_of(order.pod))]))
            await self._extended.publish(order.pod, order.allocation)
            return
        allocation, now = order.allocation, self._writer.now()
        await self._writer.write(
            allocation.claim, allocation.uid, lambda claim: allocation_write(claim, allocation, order.users, now)
        )
        with self._cache.versions.watching((allocation.uid,)) as change:
            while not self._is_ready(order):
                self._check(order)
                change.clear()
                await change.wait()

    def _check(self, order: _ClaimOrder) -> None:
        """Raise if a claim that was written has no longer what was chosen, or if a device has failed."""
        claim, allocation = self._claims.get(order.allocation.claim), order.allocation
        if claim is None or is_gone(claim, allocation):
            raise PreBindError(f"{named(allocation.claim)} is gone or terminating")
        if not (has_devices(claim, allocation) and order.is_reserved(claim)):
            raise PreBindError(f"{named(allocation.claim)} has lost its devices")
        if failures := device_states(claim).failures:
            raise DeviceFailedError(f"{named(allocation.claim)}: device {failures[0]}")

    def _unready(self, batch: BindBatch) -> list[_ClaimOrder]:
        """Return what is not ready in a batch, or may not be for long: a release may be under way."""
        return [
            order
            for order in self._orders(batch)
            if not self._is_ready(order) or self._writer.is_in_doubt(order.allocation.uid)
        ]

    def _is_ready(self, order: _ClaimOrder) -> bool:
        """Return whether a claim needs no write and no wait."""
        claim, allocation = self._claims.get(order.allocation.claim), order.allocation
        if claim is None or is_gone(claim, allocation) or not has_devices(claim, allocation):
            return False
        return order.is_reserved(claim) and device_states(claim) == ALL_READY

    def _is_published(self, order: _ExtendedOrder) -> bool:
        """Return whether the status of a pod names its claim, which is the last write."""
        pod = self._cache.pods.get(order.pod.metadata.uid)
        made = pod.status.extended_resource_claim_status if pod is not None else None
        return made is not None and made.resource_claim_name == order.key.split("/")[1] and order.key in self._claims

    def _orders(self, batch: BindBatch) -> list[_ClaimOrder]:
        """Return what a batch allocates to each claim, with its users."""
        allocations: dict[str, DeviceAllocation] = {}
        users: dict[str, list[ClaimUser]] = {}
        for uid, allocated in batch.allocations.items():
            pod = batch.pods[uid]
            for one in allocated:
                if isinstance(one, DeviceAllocation):
                    if one.is_new or one.claim not in allocations:
                        allocations[one.claim] = one
                    consumer = consumer_of(pod, one.claim, self._native_group(pod))
                    users.setdefault(one.claim, []).append(ClaimUser(pod, consumer))
        return [_ClaimOrder(one, users[key]) for key, one in sorted(allocations.items())]


def _extended_orders(batch: BindBatch) -> list[_ExtendedOrder]:
    """Return the claims to make for pods of a batch."""
    return [
        _ExtendedOrder(batch.pods[uid], one)
        for uid, allocated in batch.allocations.items()
        for one in allocated
        if isinstance(one, ExtendedAllocation)
    ]
