"""``cpg-scheduler --replay FILE``: decides again from a dump, without a cluster.

All parts are those of a running scheduler, but nothing performs the instructions of the preemption machine. Of an
active plan it knows what a new leader would know: the victims and their preemptor, and not the reasons. As for a new
leader, no terminating pod is overdue yet.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.dump import UnreadableDumpError, load
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.units import queue_key_of


class ReplayError(Exception):
    """The dump cannot be read, or has no such unit."""


def replay(file: Path, root: str = "") -> Iterator[Mapping[str, object]]:
    """Yield the explanations of all pending units of a dump, in queue order, or of one root, group or pod."""
    try:
        loaded = load(file.read_bytes())
    except (OSError, UnreadableDumpError) as error:
        raise ReplayError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    cache = loaded.cache
    queue = SchedulingQueue(RequeueBackoff())
    preemption = PreemptionMachine(
        cache,
        metrics=SchedulerMetrics(cache.scheduler_name, lambda: 0.0),
        options=loaded.options,
        max_units_in_flight=0,
        clock=time.monotonic,
        log=structlog.wrap_logger(structlog.ReturnLogger(), processors=[]),
    )
    explainer = Explainer(cache, queue, preemption, options=loaded.options, clock=time.monotonic)
    units = _named(explainer, cache, root) if root else pending_units(cache)
    preemption.recover()  # nothing performs the instructions that it returns
    return map(explainer.explain, units)


def pending_units(cache: ClusterCache) -> list[UnitKey]:
    """Return the pending units in queue order."""
    keys = (queue_key_of(cache, unit) for unit in {cache.unit_of(pod) for pod in cache.pods.values()})
    return [key.unit for key in sorted(key for key in keys if key is not None)]


def _named(explainer: Explainer, cache: ClusterCache, name: str) -> list[UnitKey]:
    """Return the units, in all flavours, that have a group or pod of a name."""
    namespace, slash, rest = name.partition("/")
    if not (namespace and slash and rest):
        raise ReplayError(f"{name!r} is not NAMESPACE/NAME")
    found = {explainer.unit_of(kind, namespace, rest): None for kind in (*cache.stores, "pod")}
    units = [unit for unit in found if unit is not None]
    if not units:
        raise ReplayError(f"no group or pod {name} in this dump")
    return units
