"""Compares the view with a LIST of everything that Kopf watches: at the start, and regularly after that.

Kopf never reports a deletion between a refused watch (410) and the LIST that follows it: the sweep finds it. The first
sweep fills the view, so that no tree is judged on partial data; Kopf's own LIST brings nothing new after that. If Kopf
reports a deletion during a sweep, the object stays deleted although the LIST may have it, because Kopf will not report
the deletion again. A LIST may be long, so other tasks run while it is processed. It is processed page by page, and of
each object only what the steps read is kept.

An object that is listed at an older version than it had in the view before the LIST shows that etcd was restored from a
backup. The view would keep the newer state for ever, so the sweep raises ``VersionsWentBackError``, as reflectors do.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import product
from typing import TypeVar, cast

from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.listing import pages
from cpg_client.resources import Resource
from cpg_client.versions import VersionsWentBackError, is_older
from cpg_operator.sources.rejections import Rejections
from cpg_operator.turns import MAX_SECONDS_PER_TURN
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.projections import slim_managed
from cpg_operator.view.tree_index import ManagedObject

T = TypeVar("T")


class Sweeper:
    """Compares the view with the API server."""

    def __init__(
        self, connection: Connection, view: ClusterView, *, namespaces: Sequence[str], rejections: Rejections
    ) -> None:
        """Compare nothing yet, and later these namespaces, or all."""
        self._connection = connection
        self._view = view
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._rejections = rejections

    async def sweep(self) -> int:
        """Bring the view up to date; return for how many objects it was wrong.

        What cannot be listed stays as it is known. A namespace that may not be read is ignored while another one may;
        any other error is raised after the rest has been compared.
        """
        wrong, forbidden = 0, dict[str | None, ApiError]()
        failure: ApiError | None = None
        for namespace, (flavour, kinds) in product(self._namespaces, self._view.kinds.items()):
            for kind, resource in kinds.items():
                try:
                    wrong += await self._sweep(flavour, kind, resource, namespace)
                    self._view.mark_read(namespace, (flavour, kind))
                except ApiError as error:
                    if error.is_forbidden:
                        forbidden[namespace] = error
                    else:
                        failure = error
        if len(forbidden) == len(self._namespaces):
            failure = next(iter(forbidden.values()))
        if failure is not None:
            raise failure
        return wrong

    async def _sweep(self, flavour: str, kind: type, resource: Resource, namespace: str | None) -> int:
        known_before = self._view.by_uid(flavour, kind)
        voided: dict[str, ManagedObject] = {}
        self._view.track_deletions()
        listed: set[str] = set()
        wrong = 0
        async for page in pages(self._connection, resource.path(namespace)):
            if page.number == 0:  # the pages before are void: their objects may be gone
                voided |= {uid: one for uid, one in self._view.by_uid(flavour, kind).items() if uid in listed}
                listed.clear()
            async for item in self._in_turns(page.items):
                found = parse_object(item, cast("type[ManagedObject]", kind))
                _refuse_older(resource.path(namespace), known_before, found)
                wrong += self._compare(flavour, kind, found, listed)
        async for uid, known in self._in_turns((known_before | voided).items()):
            if uid not in listed and namespace in {None, known.metadata.namespace}:
                wrong += self._view.remove(flavour, known)
        return wrong

    def _compare(self, flavour: str, kind: type, found: ManagedObject | Rejected, listed: set[str]) -> bool:
        """Compare the view with one object; return whether it was wrong."""
        if isinstance(found, Rejected):
            self._rejections.report(kind, found)
            return False
        listed.add(found.metadata.uid)
        return not self._view.was_deleted(found.metadata.uid) and self._view.put(flavour, slim_managed(found))

    async def _in_turns(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield each item; other tasks run in between."""
        clock = self._connection.timing.clock
        since = clock()
        for item in items:
            yield item
            if clock() - since >= MAX_SECONDS_PER_TURN:
                await asyncio.sleep(0)
                since = clock()


def _refuse_older(path: str, known_before: Mapping[str, ManagedObject], found: ManagedObject | Rejected) -> None:
    """Raise ``VersionsWentBackError`` if an object is older than it was in the view before the LIST."""
    if isinstance(found, Rejected) or (known := known_before.get(found.metadata.uid)) is None:
        return
    before, listed = known.metadata.resource_version, found.metadata.resource_version
    if is_older(listed, before):
        raise VersionsWentBackError(f"{path} {found.metadata.key}", before, listed)
