"""A dump decided again, with no cluster: ``cpg-scheduler --replay FILE``.

All parts are those of a scheduler at work but for the one that evicts, which does nothing, and the time of day is that
of the dump: so an explanation says what the scheduler would have said then. Of a plan under way it says what a new
leader would know, which is who goes for whom, and not why.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

import structlog

from cpg_api.core.pod import Pod
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.dump import UnreadableDumpError, load
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.preemption.executor import EvictionJob, Evictor
from cpg_scheduler.preemption.machine import Preemption
from cpg_scheduler.queueing.scheduling_queue import RequeueBackoff, SchedulingQueue
from cpg_scheduler.units import queue_key_of


class ReplayError(Exception):
    """What was asked for cannot be replayed."""


class _Idle:
    """Evicts nobody."""

    def start(self, order: EvictionJob) -> None:
        """Leave an order alone."""

    def clear(self, pods: Iterable[Pod]) -> None:
        """Leave pods nominated."""

    def retract(self, pods: Iterable[Pod]) -> None:
        """Leave pods with what they were told."""


def replay(file: Path, root: str = "") -> Iterator[Mapping[str, object]]:
    """Yield the explanation of whoever waits in a dump, in the order of the queue, or of one root, group or pod."""
    try:
        loaded = load(file.read_bytes())
    except (OSError, UnreadableDumpError) as error:
        raise ReplayError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    state = loaded.state
    pending = SchedulingQueue(RequeueBackoff())
    preemption = Preemption(
        state,
        cast("Evictor", _Idle()),
        metrics=Metrics(state.scheduler_name, pending, lambda: 0.0),
        options=loaded.options,
        clock=time.monotonic,
        wall=lambda: loaded.taken,
        log=structlog.wrap_logger(structlog.ReturnLogger(), processors=[]),
    )
    explainer = Explainer(state, pending, preemption, options=loaded.options, clock=time.monotonic)
    roots = _named(explainer, state, root) if root else _waiting(state)
    preemption.recover()
    return map(explainer.explain, roots)


def _waiting(state: ClusterCache) -> list[UnitKey]:
    """Return who waits, the first in the queue first."""
    orders = (queue_key_of(state, root) for root in {state.unit_of(pod) for pod in state.pods.values()})
    return [order.key for order in sorted(order for order in orders if order is not None)]


def _named(explainer: Explainer, state: ClusterCache, name: str) -> list[UnitKey]:
    """Return what has a name, in all flavours, by the root that it belongs to."""
    namespace, slash, rest = name.partition("/")
    if not (namespace and slash and rest):
        raise ReplayError(f"{name!r} is not NAMESPACE/NAME")
    found = {explainer.root_of(kind, namespace, rest): None for kind in (*state.stores, "pod")}
    roots = [root for root in found if root is not None]
    if not roots:
        raise ReplayError(f"there is no group and no pod {name} in this dump")
    return roots
