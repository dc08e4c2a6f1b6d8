"""What lower layers need of higher ones, as protocols."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from cpg_api.core.pod import Pod


class Nominator(Protocol):
    """Nominates pods, and may write their conditions in the same request."""

    async def nominate(self, pod: Pod, node: str) -> None:
        """Write the node to which a pod is nominated."""


class EventSink(Protocol):
    """Takes writes of events, which have the lowest priority."""

    def later(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write when there is time, or never."""
