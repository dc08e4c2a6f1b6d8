"""LIST whole collections, page by page.

**A page is bounded by bytes.** An object has up to 1.5 MB, so 500 pods can be more than the memory of this process. The
first page is small; the size of its items gives the ``limit`` of the next page, which grows step by step. Where a page
is longer than the client accepts, since its items are larger than those before, it is requested again with a smaller
limit. Usual pods have a few kB, so their pages have the most items from the third page on.

**A list may restart.** The pages of a list are one snapshot, identified by the continue token. The server drops the
snapshot after some minutes (410). Its remaining pages are lost then, and a new list does not match the pages that were
read. So the list restarts once, and the reader must drop what it has: a page with ``number`` 0 begins a snapshot. The
second attempt has larger pages, so that it ends sooner.

Items stay bytes. The reader decodes each by itself, so one item that does not fit its type does not fail the page.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import msgspec

from cpg_client.answers import read_answer
from cpg_client.connection import Connection, Params
from cpg_client.errors import AnswerTooLargeError, ApiError

PAGE_BYTES: Final = 8 << 20
"""Bytes of a page that are aimed at. A page may be larger where its items are larger than those before."""
FIRST_ITEMS: Final = 10
"""Items of the first page, whose size is unknown: 14 MB where each has the largest size that etcd takes."""
MAX_ITEMS: Final = 500
"""Items of a page, as in client-go."""
_GROWTH: Final = 10
"""The most by which a page has more items than the one before, and by which a page that was too large has fewer."""
_AFTER_RESTART: Final = 10
"""The factor of ``MAX_ITEMS`` after a restart."""


class _PageMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True)
class ListPage:
    """One page of a LIST; number 0 begins a snapshot and voids all pages before it.

    The items are views into the response, not copies, and keep it in memory. So drop a page before the next is taken.
    """

    number: int
    items: list[msgspec.Raw]
    resource_version: str


@dataclass(frozen=True)
class Listing:
    """A collection as of ``resource_version``, from which a watch can start."""

    items: list[msgspec.Raw]
    resource_version: str


class _PageSize:
    """The ``limit`` of the next page."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(FIRST_ITEMS, most)

    def learn(self, size: int, items: int) -> None:
        """Adapt the limit to a page with this number of bytes and items."""
        if items:
            self.limit = max(1, min(PAGE_BYTES * items // size, self.limit * _GROWTH, self._most))

    def shrink(self) -> bool:
        """Reduce the limit after a page that was too large; return whether that is possible."""
        is_possible = self.limit > 1
        self.limit = max(1, self.limit // _GROWTH)
        return is_possible

    def restart(self) -> None:
        """Allow more items."""
        self._most *= _AFTER_RESTART


async def pages(
    connection: Connection, path: str, params: Params | None = None, *, limit: int = MAX_ITEMS
) -> AsyncIterator[ListPage]:
    """Yield the collection at ``path`` in pages of at most ``limit`` items; ``params`` may hold selectors."""
    number, token, restarted, size = 0, "", False, _PageSize(limit)
    while True:
        try:
            answer = await _get_page(connection, path, params or {}, token=token, size=size)
        except ApiError as error:
            if restarted or not (error.is_gone and token):
                raise
            number, token, restarted = 0, "", True
            size.restart()
            continue
        page, token = ListPage(number, answer.items or [], answer.metadata.resource_version), answer.metadata.more
        del answer
        yield page
        del page  # the next one takes its place in memory
        if not token:
            return
        number += 1


async def _get_page(connection: Connection, path: str, params: Params, *, token: str, size: _PageSize) -> _List:
    """Return the page after a token, with as many items as its bytes allow."""
    while True:
        try:
            body = await connection.get(path, _query(params, size.limit, token))
        except AnswerTooLargeError:
            if not size.shrink():
                raise
            continue
        answer = read_answer(body, _List, request=f"GET {path}", expected="a list")
        size.learn(len(body), len(answer.items or ()))
        return answer


def _query(params: Params, limit: int, token: str) -> Params:
    """Return the query of one page. A continue token replaces the resourceVersion: the server refuses both together."""
    if not token:
        return {**params, "limit": limit}
    kept = {key: value for key, value in params.items() if not key.startswith("resourceVersion")}
    return {**kept, "limit": limit, "continue": token}


async def list_all(
    connection: Connection, path: str, params: Params | None = None, *, limit: int = MAX_ITEMS
) -> Listing:
    """Return all items of the collection, undecoded, and their resourceVersion. All of it is in memory at once."""
    items: list[msgspec.Raw] = []
    version = ""
    async for page in pages(connection, path, params, limit=limit):
        if page.number == 0:
            items.clear()
        items.extend(page.items)
        version = page.resource_version
    return Listing(items, version)
