"""The groups and pods of a namespace, as ``tree`` shows them: listed once, then followed by watches.

Nothing else is read, and no cache of the scheduler is built. Of a pod only its membership, owner, node and phase are
kept.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodSpec, PodStatus
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.membership import membership_entries
from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.listing import FORBIDDEN, LISTS_AT_A_TIME, served_kinds
from cpg_cli.failures import CommandError
from cpg_client.errors import ClientError
from cpg_client.resources import PODS, Resource
from cpg_client.watching import read_event

GONE = 410
WATCH_SECONDS = 300
"""After that a watch is asked for again."""
MAX_FAILURES = 5
"""Failures of one watch in a row."""
PLAIN = ""
"""The flavour of pods, which have none."""


@dataclass
class NamespaceObjects:
    """Groups and Workloads by flavour and kind, and pods, each by ``namespace/name``."""

    groups: dict[str, dict[type, dict[str, Any]]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def of(self, flavour: str, kind: type) -> dict[str, Any]:
        """Return the objects of a kind."""
        return self.pods if kind is Pod else self.groups[flavour][kind]


class Listed(Struct, frozen=True):
    """All objects of a kind, in place of those before."""

    flavour: str
    kind: type
    objects: Mapping[str, Any]


class Changed(Struct, frozen=True):
    """An object in place of the one before; None if it is deleted."""

    flavour: str
    kind: type
    key: str
    found: Any


class Stopped(Struct, frozen=True):
    """A watch has ended for good."""

    error: CommandError


class NamespaceReader:
    """Lists and watches the groups and pods of a namespace, or of all."""

    def __init__(self, server: ApiServer, namespace: str | None) -> None:
        """Ask the server for its kinds."""
        self._server = server
        self._namespace = namespace
        self._rules = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)
        served = served_kinds(server)
        self.kinds = [(flavour, kind, one) for flavour, kinds in served.items() for kind, one in kinds.items()]
        self.has_groups = any(kind is PodGroup for _, kind, _ in self.kinds)
        self.kinds.insert(0, (PLAIN, Pod, PODS))
        self._events: queue.SimpleQueue[Listed | Changed | Stopped] = queue.SimpleQueue()
        self._versions: dict[Resource, str] = {}

    def read(self) -> NamespaceObjects:
        """Return the objects; what the user may not list is missing."""
        found = NamespaceObjects({flavour: {} for flavour, _, _ in self.kinds if flavour})
        with ThreadPoolExecutor(LISTS_AT_A_TIME) as pool:
            started = [(one, pool.submit(self._list, *one[1:])) for one in self.kinds]
            for (flavour, kind, resource), listed in started:
                try:
                    objects = listed.result()
                except ApiServerError as error:
                    if error.status != FORBIDDEN or kind is Pod:
                        raise
                    objects, found.unread[resource.plural] = {}, str(error)
                apply(found, Listed(flavour, kind, objects))
        return found

    def follow(self, unread: Mapping[str, str]) -> None:
        """Watch from where ``read`` has ended, on one thread for each kind."""
        for flavour, kind, resource in self.kinds:
            if resource.plural not in unread:
                threading.Thread(target=self._follow, args=(flavour, kind, resource), daemon=True).start()

    def changes(self, seconds: float) -> Iterator[Listed | Changed]:
        """Wait for a change, and yield all that come until the time is up; raise if a watch has ended for good."""
        try:
            event = self._events.get(timeout=seconds)
            while True:
                if isinstance(event, Stopped):
                    raise event.error
                yield event
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _list(self, kind: type, resource: Resource) -> dict[str, Any]:
        found = {}
        for page in self._server.pages(resource, self._namespace):
            for raw in page.items:
                one = self._read(raw, kind)
                if one is not None:
                    found[one.metadata.key] = one
            self._versions[resource] = page.metadata.resource_version
        return found

    def _read(self, raw: msgspec.Raw, kind: type) -> Any:  # noqa: ANN401 - an object of the kind, or None
        parsed: Any = parse_object(raw, kind)
        if isinstance(parsed, Rejected):
            return None
        return slim_member(self._rules.with_group(parsed)) if kind is Pod else parsed

    def _follow(self, flavour: str, kind: type, resource: Resource) -> None:
        failures, is_gone = 0, False
        while True:
            try:
                if is_gone:
                    self._events.put(Listed(flavour, kind, self._list(kind, resource)))
                self._watch(flavour, kind, resource)
                failures, is_gone = 0, False
            except (ApiServerError, ClientError) as error:
                failures, status = failures + 1, getattr(error, "status", 0)
                is_gone = status == GONE
                if status == FORBIDDEN or failures > MAX_FAILURES:
                    self._events.put(Stopped(ApiServerError(str(error), status=status)))
                    return
                time.sleep(failures)

    def _watch(self, flavour: str, kind: type, resource: Resource) -> None:
        lines = self._server.watch(
            resource,
            self._namespace,
            since=self._versions[resource],
            seconds=WATCH_SECONDS,
            allowWatchBookmarks="true",
        )
        for line in lines:
            event = read_event(line)
            self._versions[resource] = event.resource_version
            one = self._read(event.object, kind) if event.type != "BOOKMARK" else None
            if one is not None:
                self._events.put(Changed(flavour, kind, one.metadata.key, None if event.type == "DELETED" else one))


def apply(objects: NamespaceObjects, change: Listed | Changed) -> None:
    """Bring objects up to date with a change."""
    if isinstance(change, Listed):
        if change.kind is Pod:
            objects.pods = dict(change.objects)
        else:
            objects.groups[change.flavour][change.kind] = dict(change.objects)
    elif change.found is None:
        objects.of(change.flavour, change.kind).pop(change.key, None)
    else:
        objects.of(change.flavour, change.kind)[change.key] = change.found


def slim_member(pod: Pod) -> Pod:
    """Return of a pod what a tree shows of it."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    annotation = meta.annotations.get(POD_GROUP_LABEL)
    return replace(
        pod,
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels=membership_entries(meta.labels),
            annotations={POD_GROUP_LABEL: annotation} if annotation is not None else {},
            owner_references=tuple(one for one in meta.owner_references if one.controller),
        ),
        spec=PodSpec(
            node_name=spec.node_name, scheduler_name=spec.scheduler_name, scheduling_group=spec.scheduling_group
        ),
        status=PodStatus(phase=status.phase),
    )
