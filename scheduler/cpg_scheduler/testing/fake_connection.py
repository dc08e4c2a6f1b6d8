"""A fake connection: it keeps the requests, answers with given objects, and fails where a test says so."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cpg_client.errors import ApiError
from cpg_client.loop_pauses import LoopPauses
from cpg_client.timing import REAL_TIME, Timing


class SentRequest(NamedTuple):
    """A request that was sent."""

    method: str
    path: str
    body: Any


class FakeConnection:
    """A connection to no server; ``objects``, by path, are what can be read and what a patch returns."""

    def __init__(self, timing: Timing = REAL_TIME) -> None:
        """Let every request succeed; ``error`` returns the error of a request, and ``open`` can hold all of them."""
        self.timing = timing
        self.pauses = LoopPauses(timing.elapsed)
        self.writes: list[SentRequest] = []
        self.reads: list[str] = []
        self.objects: dict[str, object] = {}
        self.error: Callable[[SentRequest], Exception | None] = lambda _: None
        self.open = asyncio.Event()
        self.open.set()
        self.in_flight = self.most_in_flight = 0

    async def get(self, path: str, params: object = None) -> bytes:
        """Read an object."""
        answer = await self._send(SentRequest("GET", path, None), params)
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return answer

    async def post(self, path: str, body: object, params: object = None) -> bytes:
        """Create an object."""
        return await self._send(SentRequest("POST", path, body), params)

    async def patch(self, path: str, body: object, content_type: str = "", *, params: object = None) -> bytes:
        """Change an object."""
        return await self._send(SentRequest("PATCH", path, body), content_type, params)

    async def delete(self, path: str, body: object = None, params: object = None) -> bytes:
        """Delete an object."""
        return await self._send(SentRequest("DELETE", path, body), params)

    async def _send(self, write: SentRequest, *_: object) -> bytes:
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
