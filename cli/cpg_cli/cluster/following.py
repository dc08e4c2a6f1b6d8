"""Follow objects by watches, which are opened again when they end."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import msgspec

from cpg_api.decoding import decode
from cpg_api.integrations.registry import Integrations
from cpg_api.parsing import Rejected, parse_object
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.listing import FORBIDDEN, projection_of
from cpg_client.resources import Resource

WATCH_SECONDS = 240
SECONDS_BETWEEN_TRIES = 1.0
GONE = 410


class ObjectKind(NamedTuple):
    """A kind of a flavour; pods have none."""

    flavour: str
    kind: type


@dataclass(frozen=True)
class ListedObjects:
    """All objects of a kind, as a list has them."""

    what: ObjectKind
    objects: tuple[Any, ...]


@dataclass(frozen=True)
class WatchedObject:
    """A new version of an object, or its last one if it is deleted."""

    what: ObjectKind
    found: Any
    is_deleted: bool = False


@dataclass(frozen=True)
class UnreadObjects:
    """The user may not read a kind."""

    what: ObjectKind
    error: ApiServerError


Followed = ListedObjects | WatchedObject | UnreadObjects


class WatchLine(msgspec.Struct, frozen=True):
    """A line of a watch; the object is not decoded yet."""

    type: str
    object: msgspec.Raw


class _VersionMeta(msgspec.Struct, frozen=True):
    version: str = msgspec.field(name="resourceVersion", default="")


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _VersionMeta = _VersionMeta()


class ObjectFollower:
    """Follows some resources of a namespace, each on a thread of its own that ends with the process."""

    def __init__(
        self, server: ApiServer, resources: Mapping[ObjectKind, Resource], namespace: str, rules: Integrations
    ) -> None:
        """Start to follow."""
        self._server = server
        self._namespace = namespace
        self._rules = rules
        self._found: SimpleQueue[Followed] = SimpleQueue()
        for what, resource in resources.items():
            Thread(target=self._follow, args=(what, resource), daemon=True).start()

    def take(self, seconds: float) -> Iterator[Followed]:
        """Yield what has changed; wait for so long if nothing has."""
        try:
            yield self._found.get(timeout=max(seconds, 0.0))
            while True:
                yield self._found.get_nowait()
        except Empty:
            return

    def _follow(self, what: ObjectKind, resource: Resource) -> None:
        while True:
            try:
                since = self._list(what, resource)
                while since:
                    since = self._watch(what, resource, since)
            except ApiServerError as error:
                if error.status == FORBIDDEN:
                    self._found.put(UnreadObjects(what, error))
                    return
            except msgspec.MsgspecError:
                pass  # an answer that was cut, or that a proxy has written
            time.sleep(SECONDS_BETWEEN_TRIES)

    def _list(self, what: ObjectKind, resource: Resource) -> str:
        """Report all objects, and return the version from which to watch."""
        objects: list[Any] = []
        version = ""
        for page in self._server.pages(resource, self._namespace):
            version = page.metadata.resource_version
            objects += filter(None, (self._parsed(what, raw) for raw in page.items))
        self._found.put(ListedObjects(what, tuple(objects)))
        return version

    def _watch(self, what: ObjectKind, resource: Resource, since: str) -> str:
        """Report changes until the watch ends, and return where to go on; empty if a new list is needed."""
        for raw in self._server.watch(
            resource, self._namespace, since=since, seconds=WATCH_SECONDS, allowWatchBookmarks="true"
        ):
            line = decode(raw, WatchLine)
            if line.type == "ERROR":
                return ""
            since = decode(line.object, _Versioned).metadata.version or since
            found = None if line.type == "BOOKMARK" else self._parsed(what, line.object)
            if found is not None:
                self._found.put(WatchedObject(what, found, is_deleted=line.type == "DELETED"))
        return since

    def _parsed(self, what: ObjectKind, raw: msgspec.Raw) -> Any:  # noqa: ANN401 - an object of that kind
        parsed: Any = parse_object(raw, what.kind)
        return None if isinstance(parsed, Rejected) else projection_of(what.kind, self._rules)(parsed)
