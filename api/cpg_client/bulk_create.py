"""Create many objects at once, such as the nodes of a cluster or the pods of a workload.

A fixed number of workers draws from one iterator, so memory and open requests stay bounded, and the iterator may build
objects on the way. A refused object is recorded and the others continue: with thousands of objects, the caller wants
all failures and not the first.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cpg_client.connection import Connection
from cpg_client.errors import ClientError


@dataclass(frozen=True)
class CreateFailure:
    """An object that was not created, or for which that is unknown; ``error`` tells the two apart."""

    path: str
    body: object
    error: ClientError


@dataclass(frozen=True)
class BulkCreateResult:
    """The number of objects created by the call, and the failures."""

    created: int
    failures: tuple[CreateFailure, ...]


async def create_all(
    connection: Connection,
    objects: Iterable[tuple[str, object]],
    *,
    in_flight: int = 128,
    progress: Callable[[int], None] | None = None,
) -> BulkCreateResult:
    """POST every ``(path, body)``, at most ``in_flight`` at a time, in no particular order.

    ``progress`` is called after each answer, with the number of answers so far. The connection waits out throttling by
    the server.
    """
    queue = iter(objects)
    created = 0
    failures: list[CreateFailure] = []

    async def work() -> None:
        nonlocal created
        for path, body in queue:
            try:
                await connection.post(path, body)
                created += 1
            except ClientError as error:
                failures.append(CreateFailure(path, body, error))
            if progress is not None:
                progress(created + len(failures))

    async with asyncio.TaskGroup() as workers:
        for _ in range(in_flight):
            workers.create_task(work())
    return BulkCreateResult(created, tuple(failures))
