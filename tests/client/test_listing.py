"""LIST, page by page."""

from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Endpoint
from cpg_client.errors import AnswerTooLargeError, ApiError
from cpg_client.listing import PAGE_BYTES, list_all, pages

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

EXPIRED = {"kind": "Status", "reason": "Expired", "message": "The provided continue parameter is too old"}


def page(names: str, version: int, more: str = "") -> object:
    """Build the response to a LIST, with an item for each letter."""
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(names)}


class Collection:
    """A collection of items with given sizes, which a handler serves page by page."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.limits: list[int] = []
        self.pages: list[int] = []

    async def handle(self, request: web.Request) -> web.Response:
        """Answer with the page after the token."""
        start, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        end = start + limit
        self.limits.append(limit)
        self.pages.append(sum(self.sizes[start:end]))
        items = ",".join(f'"{"x" * size}"' for size in self.sizes[start:end])
        more = str(end) if end < len(self.sizes) else ""
        return web.Response(
            text=f'{{"metadata": {{"resourceVersion": "7", "continue": "{more}"}}, "items": [{items}]}}'
        )


async def test_small_items_come_in_large_pages(server: "FakeServer", connection: Connection) -> None:
    """After two small pages, which show the size of the items."""
    collection = Collection(*[5_000] * 1_600)
    server.handles("GET", "/x", collection.handle)
    assert len((await list_all(connection, "/x")).items) == 1_600
    assert collection.limits == [10, 100, 500, 500, 500]


async def test_large_items_come_in_small_pages(server: "FakeServer", connection: Connection) -> None:
    """So a page stays close to its bound, whatever the number of items."""
    collection = Collection(*[1_400_000] * 60)
    server.handles("GET", "/x", collection.handle)
    counts = [len(page.items) async for page in pages(connection, "/x")]
    assert sum(counts) == 60
    assert collection.limits[:3] == [10, 5, 5]
    assert max(collection.pages[1:]) <= PAGE_BYTES


async def test_a_page_that_is_too_large_is_requested_again(server: "FakeServer") -> None:
    """With fewer items: the large ones follow many small ones, so nothing announced them."""
    collection = Collection(*[100] * 110, *[900_000] * 30)
    server.handles("GET", "/x", collection.handle)
    settings = ConnectionSettings(max_answer_bytes=10_000_000)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        assert len((await list_all(connection, "/x")).items) == 140
    assert collection.limits[:4] == [10, 100, 500, 50]
    assert collection.limits[4] == 5


async def test_an_item_that_is_too_large_is_an_error(server: "FakeServer") -> None:
    """No limit makes its page smaller."""
    collection = Collection(2_000_000)
    server.handles("GET", "/x", collection.handle)
    settings = ConnectionSettings(max_answer_bytes=1_000_000)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        with pytest.raises(AnswerTooLargeError, match="GET /x"):
            await list_all(connection, "/x")
    assert collection.limits == [10, 1]


async def test_pages_follow_the_continue_token(server: "FakeServer", connection: Connection) -> None:
    """Each has the token of the page before, with the same selectors and limit."""
    for answer in (page("ab", 7, "t1"), page("cd", 7, "t2"), page("e", 7)):
        server.answers("GET", "/x", answer)
    got = [one async for one in pages(connection, "/x", {"labelSelector": "a=b"}, limit=2)]
    assert [(one.number, one.resource_version) for one in got] == [(0, "7"), (1, "7"), (2, "7")]
    assert [[bytes(item) for item in one.items] for one in got] == [[b'"a"', b'"b"'], [b'"c"', b'"d"'], [b'"e"']]
    always = {"labelSelector": "a=b", "limit": "2"}
    assert [seen.query for seen in server.seen] == [always, always | {"continue": "t1"}, always | {"continue": "t2"}]


async def test_only_the_first_page_has_a_version(server: "FakeServer", connection: Connection) -> None:
    """The server refuses a resourceVersion beside a token."""
    server.answers("GET", "/x", page("a", 7, "t1"))
    server.answers("GET", "/x", page("b", 7))
    params = {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}
    await list_all(connection, "/x", params)
    assert [seen.query for seen in server.seen] == [params | {"limit": "10"}, {"limit": "100", "continue": "t1"}]


async def test_an_expired_list_restarts(server: "FakeServer", connection: Connection) -> None:
    """After a 410 it begins again, and the number 0 of the first page voids earlier ones."""
    server.answers("GET", "/x", page("ab", 7, "t1"))
    server.answers("GET", "/x", page("c", 7, "t2"))
    server.answers("GET", "/x", EXPIRED, status=410)
    server.answers("GET", "/x", page("xyz", 9))
    assert [one.number async for one in pages(connection, "/x")] == [0, 1, 0]
    assert server.seen[-1].query == {"limit": "500"}


async def test_items_of_an_expired_list_are_dropped(server: "FakeServer", connection: Connection) -> None:
    """The collected items are one snapshot."""
    server.answers("GET", "/x", page("ab", 7, "t1"))
    server.answers("GET", "/x", EXPIRED, status=410)
    server.answers("GET", "/x", page("xyz", 9))
    listing = await list_all(connection, "/x")
    assert [bytes(item) for item in listing.items] == [b'"x"', b'"y"', b'"z"']
    assert listing.resource_version == "9"


async def test_a_list_restarts_once(server: "FakeServer", connection: Connection) -> None:
    """If the second attempt expires as well, the error is raised."""
    server.answers("GET", "/x", page("ab", 7, "t1"))
    server.answers("GET", "/x", EXPIRED, status=410)
    server.answers("GET", "/x", page("ab", 9, "t2"))
    server.answers("GET", "/x", EXPIRED, status=410)
    with pytest.raises(ApiError, match="410 Expired"):
        await list_all(connection, "/x")


@pytest.mark.parametrize("status", [403, 410])
async def test_a_refused_first_page_is_raised(server: "FakeServer", connection: Connection, status: int) -> None:
    """Without a token nothing has expired."""
    server.answers("GET", "/x", status=status)
    with pytest.raises(ApiError, match=str(status)):
        await list_all(connection, "/x")
    assert len(server.seen) == 1


async def test_another_refusal_of_a_later_page_is_raised(server: "FakeServer", connection: Connection) -> None:
    """Only expiry restarts a list."""
    server.answers("GET", "/x", page("ab", 7, "t1"))
    server.answers("GET", "/x", status=403)
    with pytest.raises(ApiError, match="403"):
        await list_all(connection, "/x")


async def test_an_empty_collection_may_be_null(server: "FakeServer", connection: Connection) -> None:
    """Go sometimes encodes an empty list as null."""
    server.answers("GET", "/x", {"metadata": {"resourceVersion": "3"}, "items": None})
    listing = await list_all(connection, "/x")
    assert listing.items == []
    assert listing.resource_version == "3"
