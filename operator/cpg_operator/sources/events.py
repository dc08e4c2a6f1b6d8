"""Where news come from: Kopf for groups and Workloads, reflectors for pods, nodes and priority classes."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.parsing import Rejected, convert_object
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import Resource
from cpg_client.session_health import SessionHealth
from cpg_client.stores import Change, Rejection, Synced, keep_whole
from cpg_operator.embedding import KopfEndedError, run_kopf
from cpg_operator.handlers import kopf_settings, registry_of
from cpg_operator.metrics import Metrics
from cpg_operator.reconcile import SLICE
from cpg_operator.view.cluster_view import ClusterView, Object, labels_of, slim

AnyReflector: TypeAlias = Reflector[Any, Any]

FIRST_RESTART, LONGEST_RESTART = 1.0, 30.0
"""Seconds after which Kopf is started again when it has ended, doubling in between."""

STEADY = 60.0
"""Seconds for which Kopf has to have run, so that its end is a new trouble and not the same one again."""


class EventSources:
    """Brings what is heard into a view; ``gone`` is told the UID of whatever is no more."""

    def __init__(
        self,
        connection: Connection,
        view: ClusterView,
        *,
        namespaces: Sequence[str],
        gone: Callable[[str], None],
        metrics: Metrics,
    ) -> None:
        """Listen to nothing yet."""
        self._connection = connection
        self._view = view
        self._namespaces = namespaces
        self._gone = gone
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()
        self._timing = connection.timing
        spaces: Sequence[str | None] = namespaces or (None,)
        watched = (resource for kinds in view.kinds.values() for resource in kinds.values())
        self.session_health = SessionHealth(product(watched, spaces), self._timing.clock)
        """How well Kopf hears, in its thread."""
        self._inbox: deque[tuple[str, type, str | None, Object | Rejected]] = deque()
        self._is_postponed = False

    def refuse(self, kind: type, found: Rejected) -> None:
        """Say that an object does not fit its type; it is not there then."""
        self._metrics.refused(kind.__name__)
        self._log.warning("object refused", kind=kind.__name__, name=found.name, problems=[*map(str, found.problems)])

    async def kopf(self) -> None:
        """Run Kopf in its thread, and take over what it hears; whatever ends it, it is started again."""
        loop = asyncio.get_running_loop()

        def take(flavour: str, kind: type, event: str | None, plain: Any) -> None:  # noqa: ANN401  # as JSON is
            found = _converted(plain, cast("type[Object]", kind))
            self._inbox.append((flavour, kind, event, found))
            if len(self._inbox) == 1:  # waking the other loop costs more than the news; who empties the box takes all
                loop.call_soon_threadsafe(self._empty)

        endpoint, view = self._connection.endpoint, self._view
        registry = registry_of(endpoint, view.kinds, take=take, knows=view.knows, session_health=self.session_health)
        failures, clock = 0, self._timing.clock
        while True:
            began = clock()
            try:
                await run_kopf(registry, kopf_settings(scanning=not self._namespaces), self._namespaces)
            except KopfEndedError as error:
                failures = 1 if clock() - began >= STEADY else failures + 1
                wait = min(FIRST_RESTART * 2.0 ** min(failures - 1, 20), LONGEST_RESTART)
                self._metrics.kopf_ended()
                self._log.warning("Kopf has ended", error=str(error), retry_in=wait)
                await self._timing.sleep(wait)

    def _empty(self) -> None:
        """Take what is in the box; where there is much of it, others get their turn on the loop in between."""
        clock = self._timing.clock
        since = clock()
        while self._inbox and not self._is_postponed:
            self._hear(*self._inbox.popleft())
            if clock() - since >= SLICE:
                self._is_postponed = True
                asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_postponed = False
        self._empty()

    def _hear(self, flavour: str, kind: type, event: str | None, found: Object | Rejected) -> None:
        try:
            self._heard(flavour, kind, event, found)
        except Exception:  # noqa: BLE001  # a mistake about one object must not deafen us to the others
            self._metrics.mistaken()
            name = found.name if isinstance(found, Rejected) else found.metadata.key
            self._log.exception("not heard", kind=kind.__name__, name=name)

    def _heard(self, flavour: str, kind: type, event: str | None, found: Object | Rejected) -> None:
        if isinstance(found, Rejected):
            self.refuse(kind, found)
        elif event == "DELETED":
            self._view.drop(flavour, found)
            self._gone(found.metadata.uid)
        else:
            self._view.put(flavour, found)

    async def reflectors(self) -> list[AnyReflector]:
        """Return who brings the other news; of what is the cluster's only where we may see it."""
        view = self._view
        spaces: Sequence[str | None] = self._namespaces or (None,)
        found = [self._reflector(resources.PODS, Pod, slim, view.on_pod, namespace=space) for space in spaces]
        if await self._may_list(resources.NODES):
            found.append(self._reflector(resources.NODES, Node, labels_of, view.on_node))
        view.knows_classes = await self._may_list(resources.PRIORITY_CLASSES)
        if view.knows_classes:
            found.append(self._reflector(resources.PRIORITY_CLASSES, PriorityClass, keep_whole, view.on_class))
        return found

    async def _may_list(self, resource: Resource) -> bool:
        try:
            await self._connection.get(resource.path(), {"limit": 1})
        except ApiError as error:
            if not error.is_forbidden:
                raise
            self._log.warning("may not be listed, so what follows from them is not known", kind=resource.plural)
            return False
        return True

    def _reflector(
        self,
        resource: Resource,
        kind: type[Any],
        project: Callable[[Any], Any],
        take: Callable[[Change[Any]], None],
        *,
        namespace: str | None = None,
    ) -> AnyReflector:
        view = self._view

        def on_change(change: Change[Any]) -> None:
            if isinstance(change, Rejection):
                self.refuse(kind, Rejected(name=change.key, problems=change.problems))
            if isinstance(change, Synced):
                view.read(namespace, kind)
            take(change)

        def on_failure(error: ClientError, wait: float) -> None:
            self._log.warning("watch failed", kind=kind.__name__, error=str(error), retry_in=wait)

        source = Source[Any, Any](resource=resource, kind=kind, project=project, namespace=namespace)
        return Reflector(self._connection, source, on_change, on_failure=on_failure)


def _converted(plain: object, kind: type[Object]) -> Object | Rejected:
    """Return the object; what the API server writes nearly always fits as it is, without a look for nulls."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        return convert_object(plain, kind)
