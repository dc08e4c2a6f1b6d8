"""LIST whole collections, page by page.

**A list may restart.** The pages of a list are one snapshot, identified by the continue token. The server drops the
snapshot after some minutes (410). Its remaining pages are lost then, and a new list does not match the pages that were
read. So the list restarts, and the reader must drop what it has: a page with ``number`` 0 begins a snapshot. The second
attempt requests everything in one page (limit 0), which cannot expire, so a list restarts at most once.

Items stay bytes. The reader decodes each by itself, so one item that does not fit its type does not fail the page.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from cpg_client.answers import read_answer
from cpg_client.connection import Connection, Params
from cpg_client.errors import ApiError


class _PageMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True)
class ListPage:
    """One page of a LIST; number 0 begins a snapshot and voids all pages before it.

    The items are views into the response, not copies, and keep it in memory.
    """

    number: int
    items: list[msgspec.Raw]
    resource_version: str


@dataclass(frozen=True)
class Listing:
    """A collection as of ``resource_version``, from which a watch can start."""

    items: list[msgspec.Raw]
    resource_version: str


async def pages(
    connection: Connection, path: str, params: Params | None = None, *, limit: int = 500
) -> AsyncIterator[ListPage]:
    """Yield the collection at ``path`` in pages of ``limit``; ``params`` may hold selectors."""
    number, token, restarted = 0, "", False
    while True:
        try:
            body = await connection.get(path, _query(params or {}, 0 if restarted else limit, token))
        except ApiError as error:
            if restarted or not (error.is_gone and token):
                raise
            number, token, restarted = 0, "", True
            continue
        answer = read_answer(body, _List, request=f"GET {path}", expected="a list")
        yield ListPage(number, answer.items or [], answer.metadata.resource_version)
        if not answer.metadata.more:
            return
        number, token = number + 1, answer.metadata.more


def _query(params: Params, limit: int, token: str) -> Params:
    """Return the query of one page. A continue token replaces the resourceVersion: the server refuses both together."""
    if not token:
        return {**params, "limit": limit}
    kept = {key: value for key, value in params.items() if not key.startswith("resourceVersion")}
    return {**kept, "limit": limit, "continue": token}


async def list_all(connection: Connection, path: str, params: Params | None = None, *, limit: int = 500) -> Listing:
    """Return all items of the collection, undecoded, and their resourceVersion."""
    items: list[msgspec.Raw] = []
    version = ""
    async for page in pages(connection, path, params, limit=limit):
        if page.number == 0:
            items.clear()
        items.extend(page.items)
        version = page.resource_version
    return Listing(items, version)
