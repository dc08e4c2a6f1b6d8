"""The programs that the simulated processes run: our scheduler and our operator, as their commands would run them."""

import asyncio
import json
from collections.abc import Callable, Coroutine, MutableMapping
from contextlib import aclosing
from typing import Any, cast
from unittest import mock

import kopf
import structlog

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.listing import list_all
from cpg_client.resources import Resource
from cpg_client.timing import cancel_and_wait, run_until
from cpg_client.watching import watch
from cpg_operator import app as operator
from cpg_operator import handlers
from cpg_operator.operator_run import OperatorRun
from cpg_operator.settings import Settings as OperatorSettings
from cpg_scheduler import app as scheduler
from cpg_scheduler.observability import loop_lag
from cpg_scheduler.settings import SchedulerSettings
from cpg_simulation.virtual.process import RUNNING

Main = Callable[[], Coroutine[Any, Any, object]]
ENDPOINT = Endpoint(server="http://api-server:80")
SECONDS_BETWEEN_LISTS = 1.0
SECONDS_BETWEEN_LAG_CHECKS = 20.0
"""Every wake-up costs time, and no decision depends on these."""

LogLine = tuple[str, dict[str, Any]]
"""The process that logged, and what."""


def scheduler_main(settings: SchedulerSettings) -> Main:
    """Return the program of the scheduler."""
    return lambda: scheduler.run(ENDPOINT, settings)


def operator_main(settings: OperatorSettings) -> Main:
    """Return the program of the operator."""
    return lambda: operator.run(ENDPOINT, settings)


def install(take: Callable[[LogLine], None]) -> None:
    """Let an event source take Kopf's place, take what the programs log, and measure the lag of loops rarely."""
    mock.patch.object(kopf, "operator", _run_without_kopf).start()
    mock.patch.object(loop_lag, "SECONDS_BETWEEN_CHECKS", SECONDS_BETWEEN_LAG_CHECKS).start()

    def keep(_: object, level: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
        thread = RUNNING.thread
        take((thread.process.name if thread is not None else "", {"level": level, **event}))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.format_exc_info, keep], cache_logger_on_first_use=False)


async def _run_without_kopf(*, memo: kopf.Memo, stop_flag: asyncio.Event, **_: object) -> None:
    """Do what Kopf does with our handlers: start, send each event of the watches to them, and clean up at the end."""
    run: OperatorRun = memo.run
    async with Connection(ENDPOINT) as connection:
        starting = asyncio.create_task(handlers.startup(memo=memo, settings=kopf.OperatorSettings()))
        watching: list[asyncio.Task[None]] = []
        try:
            await run_until(stop_flag, _done(starting))
            if run.components is not None:
                watching += [
                    asyncio.create_task(_watch(connection, run, resource, (flavour, kind)))
                    for flavour, served in run.components.view.kinds.items()
                    for kind, resource in served.items()
                ]
                await stop_flag.wait()
        finally:
            for task in (starting, *watching):
                await cancel_and_wait(task)
            await handlers.cleanup(memo=memo)


async def _done(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


async def _watch(connection: Connection, run: OperatorRun, resource: Resource, watched: handlers.WatchedKind) -> None:
    """List and watch one kind without end."""
    while True:
        try:
            listing = await list_all(connection, resource.path())
            for item in listing.items:
                _observe(run, watched, {"type": None, "object": json.loads(bytes(item))})
            async with aclosing(watch(connection, resource.path(), listing.resource_version)) as events:
                async for event in events:
                    if event.type != "BOOKMARK":
                        _observe(run, watched, {"type": event.type, "object": json.loads(bytes(event.object))})
        except ClientError:
            await asyncio.sleep(SECONDS_BETWEEN_LISTS)


def _observe(run: OperatorRun, watched: handlers.WatchedKind, event: dict[str, Any]) -> None:
    found = cast("kopf.RawEvent", event)
    if run.components is not None and run.components.events.is_new(*watched, found):
        run.components.events.take(*watched, found)
