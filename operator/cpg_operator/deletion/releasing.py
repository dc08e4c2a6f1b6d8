"""The way out: take our finalizer off every group, for an operator that is about to go and will not come back.

Nothing but a list and a patch per group, so that it works whatever state the groups are in. An operator that still runs
would put the finalizers back; hence the passes go on until several in a row have found nothing to do, which is the case
when the operator has been stopped before or is being stopped meanwhile.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import FINALIZER
from cpg_api.scheduling.workload import Workload
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import flavours
from cpg_client.listing import pages
from cpg_client.patching import merge
from cpg_client.resources import Resource

IN_FLIGHT = 32
CLEAN_PASSES = 3
PAUSE = 0.5
PATIENCE = 60.0


class StillHeldError(Exception):
    """Somebody keeps putting the finalizers back."""


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def release_finalizers(
    connection: Connection, namespaces: Sequence[str] = (), *, patience: float = PATIENCE
) -> None:
    """Release every group of both flavours, of these namespaces or of all.

    Raises ``StillHeldError`` when some are held again after ``patience`` seconds.
    """
    timing, log = connection.timing, structlog.get_logger()
    deadline = timing.clock() + patience
    clean = 0
    while clean < CLEAN_PASSES:
        found = await _release_once(connection, namespaces or (None,))
        log.info("released", groups=found)
        clean = 0 if found else clean + 1
        if found and timing.clock() > deadline:
            raise StillHeldError("finalizers keep coming back: stop the operator first (kubectl scale --replicas=0)")
        await timing.sleep(PAUSE)


async def _release_once(connection: Connection, namespaces: Sequence[str | None]) -> int:
    """Go once over all groups that are served; return how many were found with the finalizer."""
    found = 0
    for kinds in (await flavours(connection, "auto")).values():
        for kind, resource in kinds.items():
            if kind is Workload:
                continue
            for namespace in namespaces:
                async for page in pages(connection, resource.path(namespace)):
                    held = [meta for meta in map(_metadata, page.items) if FINALIZER in meta.finalizers]
                    await _release(connection, resource, held)
                    found += len(held)
    return found


def _metadata(item: msgspec.Raw) -> ObjectMeta:
    return msgspec.json.decode(item, type=_Object).metadata


async def _release(connection: Connection, resource: Resource, held: list[ObjectMeta]) -> None:
    """Release the groups of one page; one that has changed or gone meanwhile is for the next pass."""
    queue = iter(held)

    async def work() -> None:
        for meta in queue:
            body = {"metadata": {"finalizers": [name for name in meta.finalizers if name != FINALIZER]}}
            try:
                await merge(connection, resource, meta, body=body, unchanged=True)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    raise

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
