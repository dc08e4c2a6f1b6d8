"""A testbed with devices: nodes, slices and claims of a test, and checks of all claims at any moment."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec
from tests.e2e.devices.device_rules import Device, device_of, given_twice, results_of, unusable
from tests.e2e.scheduler.crashes.conftest import CreateRequest, Plain, Testbed

from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, STATUS, Resource
from cpg_client.watching import watch
from cpg_lab import devices
from cpg_lab.devices import CLAIM_TEMPLATES
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import Replica

TEMPLATE = "gpu"


class DeviceTestbed(Testbed):
    """A namespace, and a cluster whose nodes and slices belong to the test alone."""

    async def offer(self, nodes: str, each: int = 0, **of_node: int) -> list[str]:
        """Create nodes of this description, with so many devices each, and others on single nodes; return the names.

        The first call also creates a class of all devices and a template of claims for one of them.
        """
        pool = NodePool.parse(nodes)
        await asyncio.to_thread(self.cluster.add_nodes, pool)
        counts = {name: of_node.get(name.replace("-", "_"), each) for name in pool.names()}
        slices = [one for name, count in counts.items() if count for one in devices.slices_of_nodes([name], count)]
        await self.try_to_create(*map(devices.create_request, (devices.device_class(), self.template(TEMPLATE))))
        await self.create(*map(devices.create_request, slices))
        return pool.names()

    def template(self, name: str, *requests: Plain, **claim: Any) -> Plain:
        """Return a template of claims."""
        return devices.claim_template(name, *requests, namespace=self.namespace, **claim)

    def worker(
        self,
        name: str,
        group: str = "",
        *,
        template: str = "",
        claims: Iterable[str] = (),
        cpu: str = "100m",
        **spec: object,
    ) -> CreateRequest:
        """Return a small pod with claims by name and one from a template, by default for one device."""
        claimed = devices.pod_claims(*claims, template=template or ("" if claims else TEMPLATE))
        return self.pod(name, group=group, cpu=cpu, terminationGracePeriodSeconds=0, **claimed, **spec)

    def gang(self, name: str, size: int, *, parent: str = "", key: str = "", **worker: Any) -> list[CreateRequest]:
        """Return a gang whose pods have claims."""
        priority = {"priorityClassName": worker["priorityClassName"]} if "priorityClassName" in worker else {}
        members = (self.worker(f"{name}-{number}", name, **worker) for number in range(size))
        return [self.group(name, size, parent=parent, key=key, **priority), *members]

    async def claims(self) -> dict[str, Plain]:
        """Return all claims of the namespace by name."""
        return {one["metadata"]["name"]: one for one in await self.list_objects(RESOURCE_CLAIMS)}

    async def devices_of(self, prefix: str = "") -> list[Device]:
        """Return the devices of all claims whose name begins with the prefix, sorted."""
        found = await self.claims()
        return sorted(
            device_of(result)
            for name, claim in found.items()
            if name.startswith(prefix)
            for result in results_of(claim)
        )

    async def pods_per_node(self, prefix: str = "") -> Counter[str]:
        """Return the number of bound pods on each node whose name begins with the prefix."""
        found = await self.pod_nodes()
        return Counter(node for name, node in found.items() if node and name.startswith(prefix))

    async def device_problems(self) -> list[str]:
        """Return devices that are given twice, and bound pods that cannot use their claims."""
        claims, slices, pods, nodes = [
            await self.list_objects(kind, everywhere=True) for kind in (RESOURCE_CLAIMS, RESOURCE_SLICES, PODS, NODES)
        ]
        return [*given_twice(claims, slices), *unusable(pods, claims, nodes)]

    async def wait_for_devices(self, prefix: str, number: int, seconds: float = 20.0) -> None:
        """Wait until the claims with this prefix have so many devices."""

        async def have_devices() -> bool:
            return len(await self.devices_of(prefix)) == number

        await self.wait_until(have_devices, seconds, f"{number} devices of {prefix or 'all claims'}")

    async def wait_until_killed(self, replica: Replica) -> None:
        """Wait until a replica has been killed."""
        await self.wait_until(lambda: not replica.process.is_running, what="kill")

    async def report_condition(self, claim: str, condition: str) -> None:
        """Report a condition of all devices of a claim, as their driver does."""
        now = self.connection.timing.whole_seconds()
        met = {"type": condition, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
        shown = [
            {**{key: one[key] for key in ("driver", "pool", "device")}, "conditions": [met]}
            for one in results_of((await self.claims())[claim])
        ]
        path = RESOURCE_CLAIMS.path(self.namespace, claim, STATUS)
        await self.connection.patch(path, {"status": {"devices": shown}})

    @contextlib.asynccontextmanager
    async def claims_watched(self) -> AsyncIterator[list[str]]:
        """Check the devices of all claims after each change of one; the list has what was wrong at any moment."""
        problems: list[str] = []
        listed = await list_all(self.connection, RESOURCE_CLAIMS.path())
        claims = {one["metadata"]["uid"]: one for one in map(msgspec.json.decode, listed.items)}
        slices = await self.list_objects(RESOURCE_SLICES)

        async def check() -> None:
            events = watch(self.connection, RESOURCE_CLAIMS.path(), listed.resource_version)
            async with contextlib.aclosing(events):
                async for event in events:
                    if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
                        continue
                    claim = msgspec.json.decode(event.object)
                    claims[claim["metadata"]["uid"]] = claim
                    if event.type == "DELETED":
                        del claims[claim["metadata"]["uid"]]
                    problems.extend(given_twice(claims.values(), slices))

        checking = asyncio.create_task(check())
        try:
            yield problems
            if checking.done():
                checking.result()
        finally:
            checking.cancel()

    async def try_to_delete(self, kind: Resource, name: str) -> None:
        """Delete an object without a grace period, if it exists."""
        try:
            await self.delete(kind, name)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def merge(self, kind: Resource, name: str, body: Mapping[str, Any]) -> None:
        """Merge fields into an object."""
        await self.connection.patch(kind.path(self.namespace if kind.namespaced else None, name), body)

    async def clean_up(self) -> None:
        """Delete the claims, the slices and the nodes as well."""
        await super().clean_up()
        for claim in await self.claims():
            with contextlib.suppress(ApiError):  # the controller may have deleted it
                await self.merge(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": None}})
        for kind in (RESOURCE_CLAIMS, CLAIM_TEMPLATES, RESOURCE_SLICES, DEVICE_CLASSES, NODES):
            await self.connection.delete(kind.path(self.namespace if kind.namespaced else None))
