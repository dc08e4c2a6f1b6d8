"""The server of costly pages: one answer at a time."""

import asyncio
from collections.abc import Iterator

import pytest

from cpg_client.budgeted_server import BudgetedServer
from cpg_client.probe_server import ProbeResponse
from cpg_client.work_budget import WorkBudget


class Pages:
    """Two pages in parts, and a count of the parts that were computed."""

    def __init__(self) -> None:
        """Count from zero."""
        self.computed = 0

    def long(self, _: str) -> ProbeResponse:
        """Return a page of three parts."""
        return ProbeResponse(b"", chunks=self._parts())

    def broken(self, _: str) -> ProbeResponse:
        """Return a page that fails in its second part."""
        return ProbeResponse(b"", chunks=self._broken())

    def _parts(self) -> Iterator[bytes]:
        for piece in (b"", b"", b"whole"):
            self.computed += 1
            yield piece

    def _broken(self) -> Iterator[bytes]:
        yield b""
        raise LookupError("on purpose")


async def answers(pages: Pages, *paths: str) -> list[bytes]:
    """Ask for pages at once on connections of their own; return the responses."""
    server = BudgetedServer({"/long": pages.long, "/broken": pages.broken}, WorkBudget())

    async def ask(address: tuple[str, int], path: str) -> bytes:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async with await asyncio.start_server(server._connected, "127.0.0.1", 0) as listening:
        address = listening.sockets[0].getsockname()
        return list(await asyncio.gather(*(ask(address, path) for path in paths)))


WHOLE = b"\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"
"""The end of the head, one chunk, and the end of the response."""


async def test_of_many_requests_one_is_answered_at_a_time() -> None:
    """The others get 429 and the seconds to wait, and cost nothing."""
    pages = Pages()
    found = await answers(pages, *["/long"] * 50)
    good = [one for one in found if one.startswith(b"HTTP/1.1 200 OK")]
    refused = [one for one in found if one.startswith(b"HTTP/1.1 429 Too Many Requests")]
    assert len(good) + len(refused) == 50
    assert pages.computed == 3 * len(good)
    assert all(b"\r\nRetry-After: 1\r\n" in one for one in refused)
    assert all(one.endswith(WHOLE) for one in good)
    assert len(refused) > len(good)


@pytest.mark.parametrize("path", ["/long", "/broken", "/other"])
async def test_after_any_answer_another_may_be_made(path: str) -> None:
    """Also after a page that fails, which gets 500, and after a page that does not exist."""
    pages = Pages()
    (first,) = await answers(pages, path)
    assert first.split(b" ")[1] == {"/long": b"200", "/broken": b"500", "/other": b"404"}[path]
    assert (b"LookupError: on purpose" in first) == (path == "/broken")
    (second,) = await answers(pages, "/long")
    assert second.endswith(WHOLE)
