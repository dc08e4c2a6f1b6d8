"""The parts of the operator for the kinds that the API server serves, put together by their constructors."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from cpg_api.integrations.registry import Integrations, owner_kinds
from cpg_client.connection import Connection
from cpg_client.resources import Resource
from cpg_client.session_health import SessionHealth
from cpg_client.timing import Timing
from cpg_operator.admission.review import Reviewer
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.reconcile import Reconciler, StepRunner
from cpg_operator.settings import Settings
from cpg_operator.sources.owner_watches import OwnerWatches
from cpg_operator.sources.reflectors import AnyReflector, ClusterAccess, Reflectors
from cpg_operator.sources.rejections import Rejections
from cpg_operator.sources.resync import Resync
from cpg_operator.sources.sweep import Sweeper
from cpg_operator.sources.watch_events import WatchEvents
from cpg_operator.steps import STEPS
from cpg_operator.tree_states import TreeStates
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey
from cpg_operator.writing.creations import RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.sender import Sender
from cpg_operator.writing.writer import Writer

Kinds = dict[str, dict[type, Resource]]
"""The resources of the kinds that are served, by flavour."""


@dataclass(frozen=True, kw_only=True)
class Components:
    """What one run of the operator consists of."""

    view: ClusterView
    queue: WorkQueue[TreeKey]
    reconciler: Reconciler
    states: TreeStates
    writer: Writer
    events: WatchEvents
    reflectors: Sequence[AnyReflector]
    owner_watches: OwnerWatches
    sweeper: Sweeper
    resync: Resync
    watch_health: SessionHealth
    reviewer: Reviewer

    def snapshot(self, now: float, *, watch_age: float, watch_silences: dict[str, float]) -> MetricsSnapshot:
        """Return what the gauges show."""
        return MetricsSnapshot(
            states=self.states,
            queued=len(self.queue),
            pending_writes=len(self.writer),
            watch_age=watch_age,
            watch_silences=watch_silences,
            partial=self.states.longest_partial(now),
            overdue=self.states.release_overdue(now),
        )


def build_components(
    connection: Connection,
    kinds: Kinds,
    access: ClusterAccess,
    *,
    settings: Settings,
    identity: str,
    metrics: OperatorMetrics,
    timing: Timing,
) -> Components:
    """Connect the parts: sources -> view -> work queue -> reconciler -> writer."""
    clock, namespaces = timing.clock, settings.namespaces
    queue: WorkQueue[TreeKey] = WorkQueue(clock, quiet=settings.quiet, longest=settings.longest_delay)
    retries, expectations, states = RetryState[TreeKey](), Expectations(clock), TreeStates()
    view = ClusterView(kinds, queue, namespaces=namespaces, knows_classes=access.priority_classes)
    writer = Writer(
        Sender(connection, instance=identity),
        view=view,
        queue=queue,
        expectations=expectations,
        creations=RecentCreations(clock),
        retries=retries,
        metrics=metrics,
        in_flight=settings.writes_in_flight,
    )
    steps = _build_steps(view, states, settings=settings, timing=timing)
    reconciler = Reconciler(
        view, queue=queue, steps=steps, writer=writer, retries=retries, metrics=metrics, clock=clock
    )
    rejections = Rejections(metrics)
    owners = owner_kinds(settings.integrations, settings.custom_integrations)
    integrations = Integrations(settings.scheduler_names(), settings.integrations, settings.custom_integrations)
    sweeper = Sweeper(connection, view, namespaces=namespaces, rejections=rejections)
    watched = product((one for served in kinds.values() for one in served.values()), namespaces or (None,))
    watch_health = SessionHealth(watched, clock)
    return Components(
        view=view,
        queue=queue,
        reconciler=reconciler,
        states=states,
        writer=writer,
        events=WatchEvents(view, expectations=expectations, rejections=rejections, metrics=metrics),
        reflectors=tuple(Reflectors(connection, view, rejections, integrations).build(namespaces, access)),
        owner_watches=OwnerWatches(connection, view.owners, owners, namespaces=namespaces, rejections=rejections),
        sweeper=sweeper,
        resync=Resync(
            connection,
            sweeper,
            watch_health,
            api=settings.api,
            period=settings.sweep_period,
            metrics=metrics,
            timing=timing,
        ),
        watch_health=watch_health,
        reviewer=Reviewer(view, metrics),
    )


def _build_steps(view: ClusterView, states: TreeStates, *, settings: Settings, timing: Timing) -> StepRunner:
    return StepRunner(
        view,
        steps=STEPS,
        states=states,
        timing=timing,
        partial_after=settings.partial_after,
        scheduler_names=settings.scheduler_names(),
    )
