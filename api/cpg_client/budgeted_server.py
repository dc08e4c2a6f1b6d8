"""A server for pages that are costly to compute: one at a time, in parts, within a budget of the event loop's time."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from cpg_client.probe_server import ProbeResponse, ProbeServer, Route, encode, send
from cpg_client.work_budget import WorkBudget


async def _at_once() -> None:
    """Wait for nothing: the default of ``before_part``."""


class BudgetedServer(ProbeServer):
    """Answers within a budget; a request beyond it gets 429 and the seconds to wait.

    ``before_part`` waits until a part may be computed; there is no turn of the event loop between the two.
    """

    def __init__(
        self, routes: dict[str, Route], budget: WorkBudget, *, before_part: Callable[[], Awaitable[None]] = _at_once
    ) -> None:
        """Take the routes; ``serve`` starts to listen."""
        super().__init__(routes)
        self._budget = budget
        self._before_part = before_part

    async def _respond(self, request: str, writer: asyncio.StreamWriter) -> None:
        """Send the response to a request, with a rest after each piece."""
        budget = self._budget
        if seconds := budget.seconds_to_wait():
            await send(writer, encode(_refusal(math.ceil(seconds))))
            return
        budget.take()
        try:
            await asyncio.sleep(budget.rest())
            pieces = self.pieces(request)
            await self._before_part()
            while (piece := budget.next_part(pieces)) is not None:
                await send(writer, piece)
                await asyncio.sleep(budget.rest())
                await self._before_part()
        finally:
            budget.release()


def _refusal(seconds: int) -> ProbeResponse:
    text = f"one answer at a time, and rest after each, so that scheduling is not slowed: retry in {seconds} s\n"
    return ProbeResponse(text.encode(), status=429, retry_after=seconds)
