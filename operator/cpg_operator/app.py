"""The operator, wired together: news go into the view, trees that are due through the steps, writes out of the door."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import structlog

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.flavours import FlavourNotServedError, served_flavours
from cpg_client.informers import Informers
from cpg_client.probe_server import ProbeResponse
from cpg_client.process import ProcessContext, process_identity, run_process, run_until, with_election_metric
from cpg_client.resources import Resource
from cpg_client.timing import REAL_TIME, Timing
from cpg_client.webhook_server import ServingCertificate, serve_webhook
from cpg_operator.admission.certifier import Certifier
from cpg_operator.admission.review import Reviewer
from cpg_operator.metrics import PAGE, Facts, Metrics
from cpg_operator.reconcile import Reconciler
from cpg_operator.settings import Settings, Webhook
from cpg_operator.sources.events import EventSources
from cpg_operator.sources.sweep import Sweeper
from cpg_operator.steps import STEPS
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey
from cpg_operator.writing.writer import Writer

DRAIN = 5.0
"""Seconds that writes under way are given at the end."""

FIRST_LOOK, SETTLING = 3.0, 45.0
"""Seconds until the first sweep after the start, and for which there is one with every look for kinds: what is deleted
before Kopf has begun to listen, perhaps because we let it go ourselves, it never hears of."""

LOOK_FOR_KINDS = 15.0
"""Seconds between two questions for what the API server serves: kinds may come and go while we run."""

RETRY = 2.0
"""Seconds between two attempts to reach the API server at the start."""

Kinds: TypeAlias = dict[str, dict[type, Resource]]
T = TypeVar("T")


async def run(endpoint: Endpoint, settings: Settings) -> None:
    """Work until the process is told to end, or until something fails that must not."""
    shell = ProcessContext(settings=settings, log=structlog.get_logger(), identity=process_identity())
    metrics = Metrics()
    gate = Reviewer(metrics)
    async with _asked(settings.webhook, gate, shell):
        await run_process(endpoint, shell, lambda connection: Operator(connection, shell, gate, metrics).run())


def _asked(
    webhook: Webhook, gate: Reviewer, shell: ProcessContext[Settings]
) -> contextlib.AbstractAsyncContextManager[None]:
    """Answer the API server's questions, if that is wanted."""
    address = webhook.address()
    if address is None:
        return contextlib.nullcontext()

    def told(words: str) -> None:
        shell.log.info("webhook", told=words)

    return serve_webhook(address, ServingCertificate(Path(webhook.certificates)), gate.answer, log=told)


class Operator:
    """Everything that runs while we are the one that works."""

    def __init__(
        self,
        connection: Connection,
        shell: ProcessContext[Settings],
        gate: Reviewer,
        metrics: Metrics,
        timing: Timing = REAL_TIME,
    ) -> None:
        """Run nothing yet; the gate is told what is known."""
        self._connection = connection
        self._gate = gate
        self._shell = shell
        self._settings = shell.settings
        self._timing = timing
        self._metrics = metrics

    async def run(self) -> None:
        """Work until told to end; start afresh whenever the API server serves other kinds than before."""
        ended = self._shell.stopping
        while not ended.is_set():
            kinds = await run_until(ended, self._kinds())
            if kinds is not None:
                await self._work(kinds)
        self._shell.readiness.is_stopping = True

    async def _kinds(self) -> Kinds:
        """Return what is served, as soon as anything is."""
        while True:
            try:
                if kinds := await served_flavours(self._connection, self._settings.api):
                    return kinds
                self._shell.log.warning("no groups are served", retry_in=RETRY)
            except FlavourNotServedError as error:
                self._shell.log.warning(str(error), retry_in=RETRY)
            except ClientError as error:
                self._unreached(error)
            await self._timing.sleep(RETRY)

    async def _work(self, kinds: Kinds) -> None:
        """Look after these kinds until they change, or we are told to end."""
        parts = self._parts(kinds)
        reflectors = await run_until(self._shell.stopping, self._insisting(parts.hearing.reflectors))
        if reflectors is None:
            return
        self._serve(parts)
        async with Informers(*reflectors) as informers:
            if await run_until(self._shell.stopping, self._filled(informers, parts.sweeper)) is None:
                return
            readiness = self._shell.readiness
            readiness.informers, readiness.session_health = informers, parts.hearing.session_health
            self._gate.view = parts.view
            self._shell.log.info("ready", flavours=sorted(kinds), trees=parts.view.trees())
            async with asyncio.TaskGroup() as tasks:
                works = (*self._certifying(), parts.hearing.kopf(), parts.door.run(), parts.reconciler.run())
                running = [tasks.create_task(work) for work in works]
                await self._until_other_kinds(kinds, parts)
                running.pop().cancel()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN):
                        await parts.door.drained()
                for task in running:
                    task.cancel()

    def _certifying(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what keeps a certificate, if that is ours to do."""
        webhook, settings = self._settings.webhook, self._settings
        if webhook.secret:
            yield Certifier(self._connection, webhook, settings.lease_namespace, self._timing).run()

    def _parts(self, kinds: Kinds) -> "_Parts":
        """Put together what looks after these kinds."""
        settings, connection, metrics = self._settings, self._connection, self._metrics
        dirty: WorkQueue[TreeKey] = WorkQueue(self._timing.clock, quiet=settings.quiet, longest=settings.longest_delay)
        view = ClusterView(kinds, dirty.mark, dirty.mark_paced, settings.namespaces)
        door = Writer(
            connection,
            dirty,
            instance=self._shell.identity,
            metrics=metrics,
            answered=view.answered,
            missed=view.missed,
            in_flight=settings.writes_in_flight,
        )
        hearing = EventSources(connection, view, namespaces=settings.namespaces, gone=door.forget, metrics=metrics)
        reconciler = Reconciler(
            view, dirty, door, steps=STEPS, metrics=metrics, partial_after=settings.partial_after, timing=self._timing
        )
        sweeper = Sweeper(connection, view, settings.namespaces, hearing.refuse)
        return _Parts(dirty=dirty, view=view, door=door, hearing=hearing, reconciler=reconciler, sweeper=sweeper)

    async def _filled(self, informers: Informers, sweeper: Sweeper) -> bool:
        """Return once all that is there is known: who knows only a part of a tree would judge it wrongly."""
        await informers.wait_synced()
        await self._insisting(sweeper.sweep)
        return True

    async def _until_other_kinds(self, kinds: Kinds, parts: "_Parts") -> None:
        """Return when the API server serves other kinds than these, or we are told to end; sweep meanwhile.

        Where Kopf has listed anew, what was deleted before is known by a sweep alone.
        """
        clock, ended = self._timing.clock, self._shell.stopping
        began = swept = clock()
        while await run_until(ended, self._rested(FIRST_LOOK if clock() - began < FIRST_LOOK else LOOK_FOR_KINDS)):
            try:
                if await served_flavours(self._connection, self._settings.api) != kinds:
                    return
                is_due = (
                    clock() - swept >= self._settings.sweep_period or parts.hearing.session_health.last_listed() > swept
                )
                if is_due or clock() - began < SETTLING:
                    now = clock()
                    wrong, swept = await parts.sweeper.sweep(), now
                    self._metrics.behind(wrong)
                    if wrong:
                        self._shell.log.info("the view was behind", objects=wrong)
            except FlavourNotServedError:
                return
            except ClientError as error:
                self._unreached(error)

    async def _rested(self, seconds: float) -> bool:
        await self._timing.sleep(seconds)
        return True

    async def _insisting(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what comes of some work, trying until the API server lets it."""
        while True:
            try:
                return await work()
            except ClientError as error:
                self._unreached(error)
                await self._timing.sleep(RETRY)

    def _unreached(self, error: ClientError) -> None:
        self._shell.log.warning("API server not reached", error=str(error))

    def _serve(self, parts: "_Parts") -> None:
        """Show what is so on the page of metrics."""

        def page(_: str) -> ProbeResponse:
            facts = Facts(
                states=((key.flavour, state) for key, state in parts.reconciler.states.items()),
                queued=len(parts.dirty),
                unwritten=len(parts.door),
                age=self._shell.readiness.age(),
                silences=self._shell.readiness.ages(),
                partial=parts.reconciler.partial(),
                overdue=parts.reconciler.overdue(),
            )
            return ProbeResponse(self._metrics.page(facts), content_type=PAGE)

        self._shell.probes.add({"/metrics": with_election_metric(self._shell, page)})


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What looks after some kinds, for as long as these are what is served."""

    dirty: WorkQueue[TreeKey]
    view: ClusterView
    door: Writer
    hearing: EventSources
    reconciler: Reconciler
    sweeper: Sweeper
