"""The reflectors of pods, nodes and priority classes. A pod through Kopf would cost 0.7 ms of CPU."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.integrations.registry import Integrations
from cpg_api.parsing import Rejected
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import NODES, PODS, PRIORITY_CLASSES, Resource
from cpg_client.stores import Change, Rejection, Synced, keep_whole
from cpg_operator.sources.rejections import Rejections
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.projections import slim_node, slim_pod

AnyReflector: TypeAlias = Reflector[Any, Any]
LOG: FilteringBoundLogger = structlog.get_logger()


class ClusterAccess(Struct, frozen=True, kw_only=True):
    """Which cluster-wide objects may be listed."""

    nodes: bool = True
    priority_classes: bool = True


async def find_access(connection: Connection) -> ClusterAccess:
    """Ask the API server what may be listed."""
    return ClusterAccess(
        nodes=await _may_list(connection, NODES), priority_classes=await _may_list(connection, PRIORITY_CLASSES)
    )


async def _may_list(connection: Connection, resource: Resource) -> bool:
    try:
        await connection.get(resource.path(), {"limit": 1})
    except ApiError as error:
        if not error.is_forbidden:
            raise
        LOG.warning("cannot list the resource; continuing without it", kind=resource.plural)
        return False
    return True


class Reflectors:
    """Builds the reflectors that fill the view."""

    def __init__(
        self, connection: Connection, view: ClusterView, rejections: Rejections, integrations: Integrations
    ) -> None:
        """Watch nothing yet."""
        self._connection = connection
        self._view = view
        self._rejections = rejections
        self._integrations = integrations

    def build(self, namespaces: Sequence[str], access: ClusterAccess) -> Iterator[AnyReflector]:
        """Yield a reflector of pods for each namespace, or for all, and those of the cluster-wide objects."""
        for namespace in namespaces or (None,):
            yield self._reflector(PODS, Pod, self._read_pod, self._view.on_pod, namespace=namespace)
        if access.nodes:
            yield self._reflector(NODES, Node, slim_node, self._view.on_node)
        if access.priority_classes:
            yield self._reflector(PRIORITY_CLASSES, PriorityClass, keep_whole, self._view.on_class)

    def _read_pod(self, pod: Pod) -> Pod:
        return slim_pod(self._integrations.with_group(pod))

    def _reflector(
        self,
        resource: Resource,
        kind: type[Any],
        project: Callable[[Any], Any],
        take: Callable[[Change[Any]], None],
        *,
        namespace: str | None = None,
    ) -> AnyReflector:
        def on_change(change: Change[Any]) -> None:
            if isinstance(change, Rejection):
                self._rejections.report(kind, Rejected(name=change.key, problems=change.problems))
            if isinstance(change, Synced):
                self._view.mark_read(namespace, kind)
            take(change)

        def on_failure(error: ClientError, wait: float) -> None:
            LOG.warning("watch failed", kind=kind.__name__, error=str(error), retry_in=wait)

        source = Source[Any, Any](resource=resource, kind=kind, project=project, namespace=namespace)
        return Reflector(self._connection, source, on_change, on_failure=on_failure)
