"""LIST, page by page."""

from typing import TYPE_CHECKING

import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.listing import list_all, pages

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

EXPIRED = {"kind": "Status", "reason": "Expired", "message": "The provided continue parameter is too old"}


def page(names: str, version: int, more: str = "") -> object:
    """Build the response to a LIST, with an item for each letter."""
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(names)}


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
    assert [seen.query for seen in server.seen] == [params | {"limit": "500"}, {"limit": "500", "continue": "t1"}]


async def test_an_expired_list_restarts(server: "FakeServer", connection: Connection) -> None:
    """After a 410 everything comes in one page, and its number 0 voids earlier pages."""
    server.answers("GET", "/x", page("ab", 7, "t1"))
    server.answers("GET", "/x", page("c", 7, "t2"))
    server.answers("GET", "/x", EXPIRED, status=410)
    server.answers("GET", "/x", page("xyz", 9))
    assert [one.number async for one in pages(connection, "/x")] == [0, 1, 0]
    assert server.seen[-1].query == {"limit": "0"}


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
