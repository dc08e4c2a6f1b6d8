"""A server for pages that are costly to compute: one at a time, in parts, within a budget of the event loop's time."""

import asyncio
import math

from cpg_client.probe_server import ProbeResponse, ProbeServer, Route, encode, send
from cpg_client.work_budget import WorkBudget


class BudgetedServer(ProbeServer):
    """Answers within a budget; a request beyond it gets 429 and the seconds to wait."""

    def __init__(self, routes: dict[str, Route], budget: WorkBudget) -> None:
        """Take the routes; ``serve`` starts to listen."""
        super().__init__(routes)
        self._budget = budget

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
            while (piece := budget.next_part(pieces)) is not None:
                await send(writer, piece)
                await asyncio.sleep(budget.rest())
        finally:
            budget.release()


def _refusal(seconds: int) -> ProbeResponse:
    text = f"one answer at a time, and rest after each, so that scheduling is not slowed: retry in {seconds} s\n"
    return ProbeResponse(text.encode(), status=429, retry_after=seconds)
