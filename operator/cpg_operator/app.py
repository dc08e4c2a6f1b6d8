"""Runs Kopf in the main loop of the process, until the process is asked to stop.

A run of Kopf also ends when the API server serves other kinds than at its start, and upon an error in a watch that Kopf
does not retry. A new run begins then, with a new view: the process stays, with its probes and metrics.
"""

import asyncio
import os

import kopf
import structlog
from kopf._core.engines.peering import Identity

from cpg_client.endpoint import Endpoint
from cpg_client.process import ProcessContext, process_identity, serve_probes
from cpg_client.timing import REAL_TIME, Timing, run_until
from cpg_operator import handlers
from cpg_operator.kopf_settings import less_noise
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.operator_run import SIGNALS, OperatorRun
from cpg_operator.settings import Settings

IDENTITY = Identity("cpg-operator")
"""Unused, because a lease decides which replica works. Kopf would look up the user's name, which a container lacks."""

FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 30.0
"""The back-off after Kopf has failed, which doubles in between."""

STABLE_SECONDS = 60.0
"""After a run of this length the back-off starts from the beginning."""

MAX_END_SECONDS = 20.0
"""How long Kopf may take to end after our run has: a process that hangs would pass its liveness probe for ever."""


async def run(endpoint: Endpoint, settings: Settings, timing: Timing = REAL_TIME) -> None:
    """Work until the process is asked to stop, or until our own code fails."""
    process = ProcessContext(settings=settings, log=structlog.get_logger(), identity=process_identity())
    with less_noise():
        async with serve_probes(process):
            await _run_until_stopped(endpoint, process, timing)


async def _run_until_stopped(endpoint: Endpoint, process: ProcessContext[Settings], timing: Timing) -> None:
    """Run Kopf again and again, with a back-off after each failure of its own."""
    metrics, failures = OperatorMetrics(), 0
    while not process.stopping.is_set():
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, process.stopping.set)
        began = timing.clock()
        error = await run_kopf(endpoint, process, metrics)
        if error is None:
            continue
        failures = 1 if timing.clock() - began >= STABLE_SECONDS else failures + 1
        wait = min(FIRST_RESTART_SECONDS * 2.0 ** min(failures - 1, 20), MAX_RESTART_SECONDS)
        metrics.count_kopf_restart()
        process.log.warning("Kopf has failed", error=repr(error), retry_in=wait)
        await run_until(process.stopping, _pause(timing, wait))


async def run_kopf(endpoint: Endpoint, process: ProcessContext[Settings], metrics: OperatorMetrics) -> Exception | None:
    """Run Kopf once; return its error. Raise the error of our own run, if there is one."""
    stop = asyncio.Event()
    this_run = OperatorRun(endpoint, process, metrics, on_end=lambda _: stop.set())
    limiting = asyncio.create_task(_limit_end(this_run))
    registry = kopf.OperatorRegistry()
    handlers.register(registry)
    error: Exception | None = None
    try:
        await kopf.operator(
            registry=registry,
            memo=kopf.Memo(run=this_run, registry=registry),
            identity=IDENTITY,
            standalone=True,
            clusterwide=not process.settings.namespaces,
            namespaces=sorted(process.settings.namespaces),
            stop_flag=stop,
        )
    except Exception as problem:  # noqa: BLE001  # whatever it is, Kopf is started again
        error = problem
    finally:
        limiting.cancel()
    if this_run.failure is not None:
        raise this_run.failure
    if error is None and this_run.is_stopped:
        process.stopping.set()  # Kopf has ended on a signal that came before our handlers replaced its own
    return error


async def _limit_end(this_run: OperatorRun) -> None:
    """Exit the process where Kopf does not end; the event loop could not end either, because Kopf's tasks stay."""
    await this_run.ended.wait()
    await asyncio.sleep(MAX_END_SECONDS)
    structlog.get_logger().critical("Kopf does not end", seconds=MAX_END_SECONDS)
    os._exit(1)


async def _pause(timing: Timing, seconds: float) -> None:
    await timing.sleep(seconds)
