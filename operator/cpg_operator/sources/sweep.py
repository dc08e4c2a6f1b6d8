"""A LIST of everything that Kopf watches: first of all, and then now and again.

Kopf says what happens but not what has happened while it was not listening: an object deleted between a watch that was
refused (410) and the list that follows is never heard of again. A sweep compares the view with what is there. The first
one fills it, so that no tree is judged before all of it is known; Kopf's own listing then brings no news. What is heard
to have gone while a list is under way stays gone, though the list may have it: Kopf will not say it twice. A list may
be long, so others get their turn on the loop while it is gone through.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import product
from typing import TypeVar, cast

from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import Resource
from cpg_operator.reconcile import SLICE
from cpg_operator.view.cluster_view import ClusterView, Object

T = TypeVar("T")


class Sweeper:
    """Compares the view with what is there."""

    def __init__(
        self,
        connection: Connection,
        view: ClusterView,
        namespaces: Sequence[str],
        refuse: Callable[[type, Rejected], None],
    ) -> None:
        """Look into these namespaces, or all; ``refuse`` is told of what does not fit its type."""
        self._connection = connection
        self._view = view
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._refuse = refuse

    async def sweep(self) -> int:
        """Bring the view to what is there; return how many objects it had wrong.

        What cannot be listed is left as it is known. A namespace that we may not read is no matter while there is one
        that we may; any other trouble is raised once the rest has been looked at.
        """
        wrong, refused = 0, dict[str | None, ApiError]()
        trouble: ApiError | None = None
        for namespace, (flavour, kinds) in product(self._namespaces, self._view.kinds.items()):
            for kind, resource in kinds.items():
                try:
                    wrong += await self._sweep(flavour, kind, resource, namespace)
                    self._view.read(namespace, (flavour, kind))
                except ApiError as error:
                    if error.is_forbidden:
                        refused[namespace] = error
                    else:
                        trouble = error
        if len(refused) == len(self._namespaces):
            trouble = next(iter(refused.values()))
        if trouble is not None:
            raise trouble
        return wrong

    async def _sweep(self, flavour: str, kind: type, resource: Resource, namespace: str | None) -> int:
        before = self._view.known(flavour, kind)
        self._view.dropped.clear()
        listing = await list_all(self._connection, resource.path(namespace))
        there: set[str] = set()
        wrong = 0
        async for item in self._in_turns(listing.items):
            found: Object | Rejected = parse_object(item, cast("type[Object]", kind))
            if isinstance(found, Rejected):
                self._refuse(kind, found)
                continue
            there.add(found.metadata.uid)
            if found.metadata.uid not in self._view.dropped:
                wrong += self._view.put(flavour, found)
        async for uid, known in self._in_turns(before.items()):
            if uid not in there and namespace in {None, known.metadata.namespace}:
                wrong += self._view.drop(flavour, known)
        return wrong

    async def _in_turns(self, found: Iterable[T]) -> AsyncIterator[T]:
        """Yield each of them, with turns for others on the loop in between."""
        clock = self._connection.timing.clock
        since = clock()
        for one in found:
            yield one
            if clock() - since >= SLICE:
                await asyncio.sleep(0)
                since = clock()
