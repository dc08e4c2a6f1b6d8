"""The scheduler's cache of a namespace, kept up to date by watches."""

from collections.abc import Callable, Iterable
from typing import Any

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.workload import Workload
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.following import Followed, ListedObjects, ObjectFollower, ObjectKind, UnreadObjects, WatchedObject
from cpg_cli.cluster.listing import served_kinds
from cpg_client.resources import PODS
from cpg_client.stores import Added, Deleted, Modified
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache

ANY_POD = ObjectKind(SINGLE_POD, Pod)


class LiveCache:
    """The groups, Workloads and pods of a namespace."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        """Start to follow them."""
        served = served_kinds(server)
        resources = {ObjectKind(flavour, kind): one for flavour, kinds in served.items() for kind, one in kinds.items()}
        rules = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)
        self.cache = ClusterCache(new_snapshot(), served, SCHEDULER_NAME)
        self._follower = ObjectFollower(server, {**resources, ANY_POD: PODS}, namespace, rules)
        self._missing = {*resources, ANY_POD}
        self._objects: dict[ObjectKind, dict[str, Any]] = {what: {} for what in self._missing}
        self.unread: dict[str, str] = {}
        """What the user may not read, with the reason."""

    @property
    def is_complete(self) -> bool:
        """Whether every kind has been listed, as far as the rights of the user go."""
        return not self._missing

    def refresh(self, seconds: float) -> None:
        """Take the changes since the last call; wait for so long if there are none."""
        for found in self._follower.take(seconds):
            self._take(found)
        self.cache.take_events()

    def _take(self, found: Followed) -> None:
        match found:
            case UnreadObjects(what, error):
                self.unread[f"{what.kind.__name__}s"] = str(error)
                self._missing.discard(what)
            case ListedObjects(what, objects):
                self._missing.discard(what)
                uids = {one.metadata.uid for one in objects}
                gone = [one for uid, one in self._objects[what].items() if uid not in uids]
                self._apply(what, gone, is_deleted=True)
                self._apply(what, objects)
            case WatchedObject(what, one, is_deleted):
                self._apply(what, (one,), is_deleted=is_deleted)

    def _apply(self, what: ObjectKind, objects: Iterable[Any], *, is_deleted: bool = False) -> None:
        handle, known = self._handler(what), self._objects[what]
        for one in objects:
            uid, key = one.metadata.uid, one.metadata.key
            old = known.pop(uid, None)
            if not is_deleted:
                known[uid] = one
                handle(Added(key, one) if old is None else Modified(key, old, one))
            elif old is not None:
                handle(Deleted(key, old))

    def _handler(self, what: ObjectKind) -> Callable[[Any], None]:
        if what.kind is Pod:
            return self.cache.on_pod
        return self.cache.on_workload(what.flavour) if what.kind is Workload else self.cache.on_group(what.flavour)
