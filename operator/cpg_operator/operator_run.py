"""One run of the operator: from taking the lease until giving it back. Kopf's startup and cleanup handlers drive it."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import kopf

from cpg_client import garbage
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.flavours import FlavourNotServedError, served_flavours
from cpg_client.freshness import Freshness
from cpg_client.informers import Informers
from cpg_client.probe_server import ProbeResponse
from cpg_client.process import (
    METRICS_CONTENT_TYPE,
    LeaderWork,
    ProcessContext,
    run_leading,
    serve_probes,
    with_election_metric,
)
from cpg_client.readiness import Readiness
from cpg_client.shared_session import open_shared_session
from cpg_client.timing import REAL_TIME, Timing, run_until
from cpg_client.versions import VersionsWentBackError
from cpg_operator.admission.certifier import Certifier
from cpg_operator.components import Components, Kinds, build_components
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.settings import Settings
from cpg_operator.sources.reflectors import find_access

DRAIN_SECONDS = 5.0
"""How long pending writes may take at the end."""

RETRY_SECONDS = 2.0
"""Between two attempts to reach the API server at the start."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

T = TypeVar("T")


class OperatorRun:
    """Takes the lease, reads the cluster, and then reconciles until it is stopped or other kinds are served."""

    def __init__(
        self,
        endpoint: Endpoint,
        process: ProcessContext[Settings],
        metrics: OperatorMetrics,
        *,
        on_end: Callable[["OperatorRun"], None],
        owns_process: bool = True,
        timing: Timing = REAL_TIME,
    ) -> None:
        """Run nothing yet.

        ``on_end`` is called when the run has ended. Where it does not own the process (``kopf run``), signals are
        Kopf's, and the run serves the probes itself.
        """
        self.endpoint = endpoint
        self.settings = process.settings
        self.metrics = metrics
        self._process = process
        self._context = replace(process, stopping=asyncio.Event(), readiness=Readiness())
        self._readiness = self._context.readiness
        self._on_end = on_end
        self._owns_process = owns_process
        self._timing = timing
        self._components: Components | None = None
        self.ended = asyncio.Event()
        """Set once the run has ended, for whatever reason."""
        self.is_stopped = False
        """Whether Kopf has stopped the run, which had not ended by itself."""
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def components(self) -> Components | None:
        """The parts, once the cluster has been read; None where the run ended before that."""
        return self._components

    @property
    def failure(self) -> BaseException | None:
        """Why the run has ended, if not in order."""
        task = self._task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def readiness(self) -> str:
        """Return in words whether this replica is ready."""
        return self._readiness.page("").body.decode().strip()

    def open_session(self) -> kopf.AiohttpSession:
        """Return a session for Kopf that shares our credentials; its requests count for our readiness."""
        health = self._components.watch_health if self._components is not None else None
        return kopf.AiohttpSession(
            server=self.endpoint.server,
            default_namespace=self.endpoint.namespace,
            aiohttp_session=open_shared_session(self.endpoint, session_health=health),
        )

    async def start(self) -> None:
        """Return once this replica leads and the cluster has been read, or once the run has ended."""
        self._task = asyncio.create_task(self._run(), name="operator")
        self._task.add_done_callback(self._on_done)
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait((self._task, started), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            started.cancel()

    async def stop(self) -> None:
        """Send pending writes, give back the lease, and return."""
        self.is_stopped = self.is_stopped or not self.ended.is_set()
        self._context.stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _on_done(self, _: asyncio.Task[None]) -> None:
        self.ended.set()
        self._on_end(self)

    async def _run(self) -> None:
        if not self._owns_process:
            async with serve_probes(self._context):
                await self._lead()
            return
        # Kopf has installed its signal handlers by now. It forgets a signal that arrives while it ends; ours do not.
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        self._context.probes.add({"/readyz": self._readiness.page})
        await self._lead()

    def _on_signal(self) -> None:
        self._process.stopping.set()
        self._context.stopping.set()

    async def _lead(self) -> None:
        @asynccontextmanager
        async def standby(connection: Connection) -> AsyncIterator[LeaderWork]:
            yield lambda: self._work(connection)

        await run_leading(self.endpoint, self._context, standby)
        self._context.probes.add({"/readyz": lambda _: ProbeResponse(b"ending\n", status=503)})

    async def _work(self, connection: Connection) -> None:
        """Read the cluster, and reconcile until stopped or until other kinds are served."""
        stopping = self._context.stopping
        kinds = await run_until(stopping, self._wait_for_kinds(connection))
        if kinds is None:
            return
        access = await run_until(stopping, self._retrying(lambda: find_access(connection)))
        if access is None:
            return
        timing = replace(self._timing, wall=connection.timing.wall)
        parts = build_components(
            connection,
            kinds,
            access,
            settings=self.settings,
            identity=self._context.identity,
            metrics=self.metrics,
            timing=timing,
        )
        async with Informers(*parts.reflectors) as informers:
            self._serve_metrics(parts, timing)
            if await run_until(stopping, self._fill(informers, parts)) is None:
                return
            self._become_ready(informers, parts)
            await self._reconcile(connection, kinds, parts, Freshness(connection, informers, self._context.log))

    async def _wait_for_kinds(self, connection: Connection) -> Kinds:
        """Return the served kinds, as soon as there are any."""
        while True:
            try:
                if kinds := await served_flavours(connection, self.settings.api):
                    return kinds
                self._context.log.warning("no groups are served", retry_in=RETRY_SECONDS)
            except FlavourNotServedError as error:
                self._context.log.warning(str(error), retry_in=RETRY_SECONDS)
            except ClientError as error:
                self._context.log.warning("API server not reached", error=str(error))
            await self._timing.sleep(RETRY_SECONDS)

    async def _retrying(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of an attempt, once the API server can be reached."""
        while True:
            try:
                return await attempt()
            except VersionsWentBackError:
                raise
            except ClientError as error:
                self._context.log.warning("API server not reached", error=str(error))
                await self._timing.sleep(RETRY_SECONDS)

    async def _fill(self, informers: Informers, parts: Components) -> bool:
        """Return once the view is complete: a tree that is known in part would be judged wrongly."""
        await informers.wait_synced()
        await self._retrying(parts.sweeper.sweep)
        return True

    def _become_ready(self, informers: Informers, parts: Components) -> None:
        self._readiness = Readiness(
            elector=self._context.readiness.elector, informers=informers, session_health=parts.watch_health
        )
        self._context.probes.add({"/readyz": self._readiness.page})
        garbage.exclude_cache()
        self._context.log.info("ready", flavours=sorted(parts.view.kinds), trees=parts.view.count_trees())
        self._components = parts
        self._started.set()

    def _serve_metrics(self, parts: Components, timing: Timing) -> None:
        def page(_: str) -> ProbeResponse:
            snapshot = parts.snapshot(
                timing.wall(), watch_age=self._readiness.age(), watch_silences=self._readiness.ages()
            )
            return ProbeResponse(self.metrics.page(snapshot), content_type=METRICS_CONTENT_TYPE)

        self._context.probes.add({"/metrics": with_election_metric(self._context, page)})

    async def _reconcile(self, connection: Connection, kinds: Kinds, parts: Components, freshness: Freshness) -> None:
        """Reconcile and write until stopped or until other kinds are served; then send the pending writes."""
        async with asyncio.TaskGroup() as tasks:
            works = (parts.writer.run(), parts.owner_watches.run(), freshness.run(), connection.pauses.run())
            others = [tasks.create_task(work) for work in (*works, *self._certify(connection))]
            reconciling = tasks.create_task(parts.reconciler.run())
            await run_until(self._context.stopping, parts.resync.run(kinds))
            reconciling.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await parts.writer.drain()
            for task in others:
                task.cancel()

    def _certify(self, connection: Connection) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the task that keeps the webhook's certificate, if that is ours to keep."""
        webhook = self.settings.webhook
        if webhook.secret:
            yield Certifier(connection, webhook, self.settings.lease_namespace, self._timing).run()
