"""Sweeps regularly, and checks regularly which kinds the API server serves."""

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.flavours import FlavourNotServedError, served_flavours
from cpg_client.resources import Resource
from cpg_client.session_health import SessionHealth
from cpg_client.timing import Timing
from cpg_client.versions import VersionsWentBackError
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.sources.sweep import Sweeper

SECONDS_UNTIL_FIRST_CHECK, SETTLING_SECONDS = 3.0, 45.0
"""The first check follows soon after the start, and for a while each check sweeps: Kopf never reports what is deleted
before it watches, perhaps because we have just removed the last finalizer."""

SECONDS_BETWEEN_CHECKS = 15.0
"""Kinds may be installed and removed while the operator runs."""


class Resync:
    """Corrects what Kopf does not report."""

    def __init__(
        self,
        connection: Connection,
        sweeper: Sweeper,
        health: SessionHealth,
        *,
        api: str,
        period: float,
        metrics: OperatorMetrics,
        timing: Timing,
    ) -> None:
        """Check nothing yet; ``health`` says when Kopf may have missed changes, ``period`` how often to sweep."""
        self._connection = connection
        self._sweeper = sweeper
        self._health = health
        self._api = api
        self._period = period
        self._metrics = metrics
        self._timing = timing
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def run(self, kinds: dict[str, dict[type, Resource]]) -> None:
        """Return once the API server serves other kinds than these; raise ``VersionsWentBackError`` if a sweep does."""
        clock = self._timing.clock
        began = swept = clock()
        while True:
            is_first = clock() - began < SECONDS_UNTIL_FIRST_CHECK
            await self._timing.sleep(SECONDS_UNTIL_FIRST_CHECK if is_first else SECONDS_BETWEEN_CHECKS)
            try:
                if await served_flavours(self._connection, self._api) != kinds:
                    return
                now = clock()
                is_due = now - swept >= self._period or self._health.last_gap() > swept
                if is_due or now - began < SETTLING_SECONDS:
                    await self._sweep()
                    swept = now
            except FlavourNotServedError:
                return
            except VersionsWentBackError:
                raise
            except ClientError as error:
                self._log.warning("API server not reached", error=str(error))

    async def _sweep(self) -> None:
        missed = await self._sweeper.sweep()
        self._metrics.count_missed(missed)
        if missed:
            self._log.info("the view was behind", objects=missed)
