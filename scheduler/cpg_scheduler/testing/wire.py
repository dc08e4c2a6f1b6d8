"""A connection that leads nowhere: it notes what is written, answers what it was told to, and fails where it should."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cpg_client.errors import ApiError
from cpg_client.timing import REAL_TIME, Timing


class Write(NamedTuple):
    """A request that was sent."""

    method: str
    path: str
    body: Any


class Wire:
    """Takes the place of a ``Connection``; ``objects`` are what can be read, by path, and what a patch answers."""

    def __init__(self, timing: Timing = REAL_TIME) -> None:
        """Let everything work at once."""
        self.timing = timing
        self.writes: list[Write] = []
        self.reads: list[str] = []
        self.objects: dict[str, object] = {}
        self.error: Callable[[Write], Exception | None] = lambda _: None
        self.open = asyncio.Event()
        self.open.set()
        self.in_flight = self.most_in_flight = 0

    async def get(self, path: str, params: object = None) -> bytes:
        """Read something."""
        answer = await self._send(Write("GET", path, None), params)
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return answer

    async def post(self, path: str, body: object, params: object = None) -> bytes:
        """Create something."""
        return await self._send(Write("POST", path, body), params)

    async def patch(self, path: str, body: object, content_type: str = "", *, params: object = None) -> bytes:
        """Change something."""
        return await self._send(Write("PATCH", path, body), content_type, params)

    async def delete(self, path: str, body: object = None, params: object = None) -> bytes:
        """Delete something."""
        return await self._send(Write("DELETE", path, body), params)

    async def _send(self, write: Write, *_: object) -> bytes:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        error = self.error(write)
        if error is not None:
            raise error
        if write.method == "GET":
            self.reads.append(write.path)
        else:
            self.writes.append(write)
        return msgspec.json.encode(self.objects.get(write.path, {}))
