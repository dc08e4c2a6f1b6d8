"""Whole collections, page by page.

**The rule of the restart.** The pages of one list are one snapshot, held together by the continue
token; the server forgets the snapshot after some minutes (410). The rest can then no longer be had, and
what a fresh list returns does not fit to what was read before. So the list starts over, and the reader
must drop what it has: a page whose ``number`` is 0 is always the first of a snapshot. The second try
asks for everything in one page (limit 0), which cannot expire, so a list restarts at most once.

Items stay bytes because a reader with a typed decoder wants to decode each by itself, straight from the wire,
so that one that does not fit its type does not take the page with it.
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
    """One answer to a LIST; number 0 begins a snapshot and voids all pages before it.

    The items are views into the bytes of the answer, not copies, and keep these alive.
    """

    number: int
    items: list[msgspec.Raw]
    resource_version: str


@dataclass(frozen=True)
class Listing:
    """A collection as of ``resource_version``, from where a watch may go on."""

    items: list[msgspec.Raw]
    resource_version: str


async def pages(
    connection: Connection, path: str, params: Params | None = None, *, limit: int = 500
) -> AsyncIterator[ListPage]:
    """Yield the collection at ``path`` in pages of ``limit``; ``params`` may select."""
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
    """Return one page's query; a token stands for a resourceVersion and may not come with one."""
    if not token:
        return {**params, "limit": limit}
    kept = {key: value for key, value in params.items() if not key.startswith("resourceVersion")}
    return {**kept, "limit": limit, "continue": token}


async def list_all(connection: Connection, path: str, params: Params | None = None, *, limit: int = 500) -> Listing:
    """Return every item of the collection, undecoded, and the resourceVersion they are from."""
    items: list[msgspec.Raw] = []
    version = ""
    async for page in pages(connection, path, params, limit=limit):
        if page.number == 0:
            items.clear()
        items.extend(page.items)
        version = page.resource_version
    return Listing(items, version)
