"""Many objects at once: a cluster's worth of nodes or a workload's worth of pods.

A fixed crew of workers draws from one iterator, so that memory and open requests stay bounded however
many objects there are, and the iterator may make them on the way. A refused object is recorded and the
rest goes on: with thousands of creates, the caller wants all the failures and not the first.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cpg_client.connection import Connection
from cpg_client.errors import ClientError


@dataclass(frozen=True)
class CreateFailure:
    """One object that was not created, or of which that is not known; ``error`` says which."""

    path: str
    body: object
    error: ClientError


@dataclass(frozen=True)
class BulkCreateResult:
    """How many objects now exist because of the call, and which do not."""

    created: int
    failures: tuple[CreateFailure, ...]


async def create_all(
    connection: Connection,
    objects: Iterable[tuple[str, object]],
    *,
    in_flight: int = 128,
    progress: Callable[[int], None] | None = None,
) -> BulkCreateResult:
    """POST every ``(path, body)``, at most ``in_flight`` at a time; order is not kept.

    ``progress`` gets the number of requests answered so far, after each. Throttling by the server is
    waited out below, in the connection.
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

    async with asyncio.TaskGroup() as crew:
        for _ in range(in_flight):
            crew.create_task(work())
    return BulkCreateResult(created, tuple(failures))
