"""The binder: decided binds become bound pods, many at a time, while the next cycle runs.

Binding the pods of a tree is not one transaction in Kubernetes. So nothing here tries to undo: a bind that fails is
told to the state, which stops assuming it, and the root is attempted again. Its bound members then pin the tree's
domains, and the rest is placed beside them.
"""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.patching import bind
from cpg_scheduler.caches.state import State
from cpg_scheduler.metrics import Metrics


class Order(Struct, frozen=True):
    """Pods to bind, to which nodes, and whom to tell."""

    pods: Mapping[str, Pod]
    nodes: Mapping[str, str]
    placed: Callable[[], None]
    failed: Callable[[], None]


class Binder:
    """Performs orders, each on a task of its own."""

    def __init__(
        self,
        connection: Connection,
        state: State,
        tasks: asyncio.TaskGroup,
        *,
        metrics: Metrics,
        log: FilteringBoundLogger,
        in_flight: int,
    ) -> None:
        """Bind with so many requests in flight at the most."""
        self._connection = connection
        self._state = state
        self._tasks = tasks
        self._metrics = metrics
        self._log = log
        self._slots = asyncio.Semaphore(in_flight)
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, order: Order) -> None:
        """Begin to bind; who waits for the outcome is told by the order's callbacks."""
        self.under_way += 1
        self._idle.clear()
        self._tasks.create_task(self._perform(order))

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    async def _perform(self, order: Order) -> None:
        try:
            done = await asyncio.gather(*(self._bind(order.pods[uid], node) for uid, node in order.nodes.items()))
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()
        if all(done):
            order.placed()
        else:
            order.failed()

    async def _bind(self, pod: Pod, node: str) -> bool:
        """Bind one pod; return whether it worked."""
        async with self._slots:
            try:
                await bind(self._connection, pod.metadata, node)
            except ClientError as error:
                self._log.warning("bind failed", pod=pod.metadata.key, node=node, error=str(error))
                self._metrics.bound(worked=False)
                self._state.unassume(pod.metadata.uid)
                return False
        self._metrics.bound(worked=True)
        return True
