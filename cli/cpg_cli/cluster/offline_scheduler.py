"""A view of a cluster that decides as the scheduler does: its cache and explanations, over any source of objects."""

import time

import structlog
from msgspec.structs import replace

from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_scheduler.debug.dump import Dump, restored
from cpg_scheduler.debug.explain import MAX_DOMAINS_EXPLAINED, Explainer
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.units import SchedulableUnit


class OfflineScheduler:
    """The scheduler's parts, without the loop and without a connection."""

    def __init__(self, dump: Dump) -> None:
        """Decide on the objects of a dump."""
        self.cache = restored(dump)
        self.options = dump.options
        self.preemption = PreemptionMachine(
            self.cache,
            metrics=SchedulerMetrics(self.cache.scheduler_name, lambda: 0.0),
            options=dump.options,
            max_units_in_flight=0,
            clock=time.monotonic,
            log=structlog.wrap_logger(structlog.ReturnLogger(), processors=[]),
        )
        queue = SchedulingQueue(RequeueBackoff())
        self.explainer = Explainer(self.cache, queue, self.preemption, options=dump.options, clock=time.monotonic)
        self.preemption.recover()  # nothing performs the instructions that it returns

    def decide(self, key: UnitKey, unit: SchedulableUnit, *, detail: bool = False) -> Decision:
        """Decide about a unit in the present state of the cache; with ``detail``, also why it has no place."""
        options = replace(self.options, detail=True, candidates=MAX_DOMAINS_EXPLAINED) if detail else self.options
        ignored = self.preemption.ignored_by(key, unit)
        return decide(self.cache.snapshot, unit.unit, options, ignored=ignored)
