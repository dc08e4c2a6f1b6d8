"""The objects of the cluster as the watches of the API server show them."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpg_api.decoding import decode
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.listing import list_all
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, LEASES, PODS, Resource
from cpg_client.watching import watch

Plain = dict[str, Any]
FOLLOWED = (PODS, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS, LEASES)
SECONDS_UNTIL_RELIST = 0.2
Listener = Callable[[Plain | None, Plain, bool], None]
"""Gets an object as it was known, as it is now or was at last, and whether it is gone."""


@dataclass
class History:
    """Objects by UID; a listener of a resource is called after each change."""

    connection: Connection
    listeners: Mapping[Resource, Listener] = field(default_factory=dict)
    objects: dict[Resource, dict[str, Plain]] = field(default_factory=lambda: {one: {} for one in FOLLOWED})

    async def follow(self) -> None:
        """Follow all resources, without end."""
        async with asyncio.TaskGroup() as tasks:
            for resource in FOLLOWED:
                tasks.create_task(self._follow(resource))

    async def load(self) -> None:
        """Read the present objects as if there had been none before."""
        for resource in FOLLOWED:
            self.objects[resource].clear()
            self._replace(resource, (await self._list(resource))[0])

    async def _follow(self, resource: Resource) -> None:
        while True:
            present, version = await self._list(resource)
            self._replace(resource, present)
            with contextlib.suppress(ClientError):
                async with contextlib.aclosing(watch(self.connection, resource.path(), version)) as events:
                    async for event in events:
                        if event.type != "BOOKMARK":
                            one = decode(event.object)
                            new = None if event.type == "DELETED" else one
                            self._apply(resource, {one["metadata"]["uid"]: (new, one)})
            await asyncio.sleep(SECONDS_UNTIL_RELIST)

    async def _list(self, resource: Resource) -> tuple[dict[str, Plain], str]:
        """Return all objects by UID and their version, when the API server answers again."""
        while True:
            with contextlib.suppress(ClientError):
                found = await list_all(self.connection, resource.path())
                return {one["metadata"]["uid"]: one for one in map(decode, found.items)}, found.resource_version
            await asyncio.sleep(SECONDS_UNTIL_RELIST)

    def _replace(self, resource: Resource, present: dict[str, Plain]) -> None:
        known = self.objects[resource]
        gone = {uid: (None, known[uid]) for uid in known.keys() - present.keys()}
        changed = {
            uid: (one, one)
            for uid, one in present.items()
            if known.get(uid, {}).get("metadata", {}).get("resourceVersion") != one["metadata"]["resourceVersion"]
        }
        self._apply(resource, {**gone, **changed})

    def _apply(self, resource: Resource, changes: Mapping[str, tuple[Plain | None, Plain]]) -> None:
        """Take over all changes, then report each."""
        known = self.objects[resource]
        before = {uid: known.get(uid) for uid in changes}
        for uid, (new, _) in changes.items():
            if new is None:
                known.pop(uid, None)
            else:
                known[uid] = new
        if resource in self.listeners:
            for uid, (new, last) in changes.items():
                self.listeners[resource](before[uid], last, new is None)
