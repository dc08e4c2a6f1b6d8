"""Watches the kinds of owners that the API server serves, from when it serves them until it does no longer."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.integrations.trees import OwnerKind
from cpg_api.parsing import Rejected
from cpg_client.connection import Connection
from cpg_client.discovery import served_resources
from cpg_client.errors import ClientError
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import Resource
from cpg_client.stores import Change, Rejection
from cpg_operator.sources.rejections import Rejections
from cpg_operator.view.owner_index import OwnerIndex
from cpg_operator.view.projections import slim_owner

SECONDS_BETWEEN_CHECKS = 15.0
"""CRDs of owners may be installed and removed at any time."""


class OwnerWatches:
    """One reflector for each served kind and namespace."""

    def __init__(
        self,
        connection: Connection,
        index: OwnerIndex,
        kinds: Sequence[OwnerKind],
        *,
        namespaces: Sequence[str],
        rejections: Rejections,
    ) -> None:
        """Watch nothing yet."""
        self._connection = connection
        self._index = index
        self._kinds = kinds
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._rejections = rejections
        self._tasks: dict[str, list[asyncio.Task[NoReturn]]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    self._update(group, await self._served())
                except ClientError as error:
                    self._log.warning("API server not reached", error=str(error))
                await self._connection.timing.sleep(SECONDS_BETWEEN_CHECKS)
        raise AssertionError  # a group with an endless block does not end

    async def _served(self) -> dict[str, tuple[OwnerKind, Resource]]:
        """Return the kinds that are served, each with its preferred version."""
        found = {}
        for kind in self._kinds:
            for version in reversed(kind.versions):
                for resource in await served_resources(self._connection, kind.group, version):
                    if resource.plural == kind.plural:
                        found[kind.kind] = kind, resource
        return found

    def _update(self, group: asyncio.TaskGroup, served: Mapping[str, tuple[OwnerKind, Resource]]) -> None:
        """Start and end reflectors."""
        for name in self._tasks.keys() - served.keys():
            for task in self._tasks.pop(name):
                task.cancel()
            self._index.forget_kind(name)
        for name in served.keys() - self._tasks.keys():
            kind, resource = served[name]
            self._index.add_kind(kind, resource, watches=len(self._namespaces))
            self._tasks[name] = [
                group.create_task(self._reflector(kind, resource, namespace).run(), name=f"watch of {resource.plural}")
                for namespace in self._namespaces
            ]

    def _reflector(self, kind: OwnerKind, resource: Resource, namespace: str | None) -> Reflector[Any, Any]:
        def project(found: Any) -> Any:  # noqa: ANN401  # each kind has a type of its own
            return slim_owner(kind.reduce(found) if kind.reduce is not None else found)

        def on_change(change: Change[Any]) -> None:
            if isinstance(change, Rejection):
                self._rejections.report(kind.type, Rejected(name=change.key, problems=change.problems))
            self._index.take(kind.kind, change, namespace)

        def on_failure(error: ClientError, wait: float) -> None:
            self._log.warning("watch failed", kind=kind.kind, error=str(error), retry_in=wait)

        source = Source[Any, Any](
            resource=resource, kind=kind.type, project=project, namespace=namespace, labels=kind.selector
        )
        return Reflector(self._connection, source, on_change, on_failure=on_failure)
