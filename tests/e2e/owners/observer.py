"""What the API server's watches show: pods and groups as they are, and the history of binds and minimums."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from cpg_client.connection import Connection
from cpg_client.listing import list_all
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, PODS, Resource
from cpg_client.watching import watch

Plain = dict[str, Any]
WATCHED = (PODS, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)


class Seen(NamedTuple):
    """A change, in the order of resource versions, which is the same for all kinds."""

    version: int
    kind: str
    name: str
    at: float
    """Seconds of the monotonic clock when it was seen."""
    object: Plain | None
    """None if it was deleted."""
    uid: str


class Observer:
    """Objects by namespace, kind and name, and all their changes by namespace."""

    def __init__(self) -> None:
        """See nothing yet."""
        self.objects: dict[str, dict[tuple[str, str], Plain]] = defaultdict(dict)
        self.history: dict[str, list[Seen]] = defaultdict(list)
        self.on_pod_gone: Callable[[str, str], None] = lambda _namespace, _uid: None

    def pods(self, namespace: str) -> dict[str, Plain]:
        """Return the pods of a namespace by uid."""
        found = (one for (kind, _), one in self.objects[namespace].items() if kind == PODS.kind)
        return {one["metadata"]["uid"]: one for one in found}

    def groups(self, namespace: str) -> dict[str, Plain]:
        """Return the groups of a namespace."""
        return {name: one for (kind, name), one in self.objects[namespace].items() if kind != PODS.kind}

    def forget(self, namespace: str) -> None:
        """Forget a namespace."""
        self.objects.pop(namespace, None)
        self.history.pop(namespace, None)

    @asynccontextmanager
    async def watching(self, connection: Connection) -> AsyncIterator["Observer"]:
        """Watch while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            running = []
            for resource in WATCHED:
                version = (await list_all(connection, resource.path())).resource_version
                running.append(tasks.create_task(self._watch(connection, resource, version)))
            yield self
            for task in running:
                task.cancel()

    async def _watch(self, connection: Connection, resource: Resource, version: str) -> None:
        async with aclosing(watch(connection, resource.path(), version)) as events:
            async for event in events:
                if event.type != "BOOKMARK":
                    self._take(resource.kind, msgspec.json.decode(event.object), is_deleted=event.type == "DELETED")

    def _take(self, kind: str, one: Plain, *, is_deleted: bool) -> None:
        meta = one["metadata"]
        namespace, name, version = meta["namespace"], meta["name"], int(meta["resourceVersion"])
        seen = Seen(version, kind, name, time.monotonic(), None if is_deleted else one, meta["uid"])
        self.history[namespace].append(seen)
        if not is_deleted:
            self.objects[namespace][kind, name] = one
            return
        self.objects[namespace].pop((kind, name), None)
        if kind == PODS.kind:
            self.on_pod_gone(namespace, meta["uid"])
