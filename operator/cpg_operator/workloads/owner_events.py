"""Events on the owner of a tree, such as a JobSet: why the tree waits, and when it is placed.

1. **One event for each change of the reason**, however the message changes. The API server keeps one event for each
   reason of an owner, and counts a reason that comes back.
2. **A reason is reported once it has lasted**: while a tree is being made, several follow each other within a second.
3. **A restart repeats nothing.** The first report of a process leaves an event that exists as it is. That a tree was
   placed is reported by a new process only while the API server would still have the event.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.conditions import find_condition, status_since
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.forest import Anchor, Group, TreeNode
from cpg_api.scheduling.health import GroupHealth, HealthReason
from cpg_api.scheduling.names import (
    DISRUPTION_TARGET,
    EVENT_INCOMPLETE,
    EVENT_NOT_ADOPTED,
    EVENT_PREEMPTED,
    EVENT_SCHEDULED,
    REASON_WAITING_FOR_GROUP,
)
from cpg_api.scheduling.workload import Workload
from cpg_api.validity import initially_scheduled_type
from cpg_operator.context import ReconcileContext
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.owner_index import OwnerIndex, ServedOwner
from cpg_operator.workloads.plan import ObstacleReason
from cpg_operator.writes import NOTHING, EventSpec, StepResult, TreeKey, Verb, Write

WAITING_SECONDS = 5.0
"""For so long a tree waits for one reason before its owner gets an event."""

PLACED_SECONDS = 1.0
"""The same for a tree that is placed: by then its last binds are counted."""

EVENT_LIFETIME_SECONDS = 3600.0
"""For so long the API server keeps events by default."""

REPEATED_SECONDS = 60.0
"""For so long each reconcile asks for the event, in case that it was not sent; the writer sends it once."""


class OwnerState(Struct, frozen=True):
    """What the state of a tree means for its owner; the reason is that of the event."""

    reason: str
    note: str


class _ReportedState(Struct):
    """The last state of a tree; one that was due has been reported."""

    reason: str
    since: float
    number: int
    """How many states there were; the first may have been reported by an earlier process."""
    reported_at: float | None = None


class OwnerEvents:
    """What was reported last about each tree that is made for an owner."""

    def __init__(self, owners: OwnerIndex, clock: Callable[[], float]) -> None:
        """Start without reports."""
        self._owners = owners
        self._clock = clock
        self._reports: dict[TreeKey, _ReportedState] = {}

    def report(self, context: ReconcileContext) -> StepResult:
        """Return the event that is due, or the time until it is."""
        found = self._owner(context)
        if found is None:
            self.forget(context.key)
            return NOTHING
        state, now = describe(context), self._clock()
        report = self._next(context, state.reason if state is not None else "", now)
        if state is None:
            return NOTHING
        left = report.since + _seconds_until_due(state) - now
        if left > 0:
            return StepResult(requeue_after=left)
        if report.reported_at is None:
            report.reported_at = now
        if now - report.reported_at > REPEATED_SECONDS:
            return NOTHING
        return StepResult(writes=(_write(*found, state, report.number),))

    def forget(self, tree: TreeKey) -> None:
        """Drop a tree that is gone or has become part of another."""
        self._reports.pop(tree, None)

    def _owner(self, context: ReconcileContext) -> tuple[ServedOwner, ObjectMeta] | None:
        """Return the owner for which a tree was made."""
        if context.tree.anchor is not Anchor.ROOT or context.is_foreign:
            return None
        root = context.tree.root
        name = root.spec.workload_ref.workload_name if root.spec.workload_ref is not None else ""
        workload = context.surroundings.workloads.get((root.metadata.namespace, name))
        return _owner_of(self._owners, workload) if workload is not None else None

    def _next(self, context: ReconcileContext, reason: str, now: float) -> _ReportedState:
        """Return the report about a tree, a new one where the reason has changed."""
        known = self._reports.get(context.key)
        if known is not None and known.reason == reason:
            return known
        report = _ReportedState(reason, now, known.number + 1 if known is not None else 0)
        if known is None and reason == EVENT_SCHEDULED and _was_placed_long_ago(context):
            report.reported_at = now - 2 * REPEATED_SECONDS
        self._reports[context.key] = report
        return report


def forward_obstacles(view: ClusterView, tree: TreeKey, result: StepResult) -> StepResult:
    """Return events on the owner for the warnings about its Workload, which users of the owner do not look at."""
    workload = view.workloads(tree.flavour).get((tree.anchor.namespace, tree.anchor.name))
    found = _owner_of(view.owners, workload) if workload is not None else None
    if found is None:
        return NOTHING
    events = (write.event for write in result.writes if write.event is not None and write.event.warning)
    return StepResult(
        writes=tuple(_obstacle(*found, event) for event in events if event.reason != ObstacleReason.BEING_DELETED)
    )


def describe(context: ReconcileContext) -> OwnerState | None:
    """Return what the state of a tree means for its owner; None without pods, and before the first attempt."""
    root, health = context.tree.root, context.health[0]
    evicted = list(_evicted(context))
    if evicted:
        return _summary(evicted)
    if not health.pods.desired:
        return None
    waiting = list(_waiting(context))
    if waiting:
        return _summary(waiting)
    condition = _condition(root)
    if condition is None or condition.status != "True":
        return None
    where = f", in {health.domain.key} {health.domain.value}" if health.domain is not None else ""
    return OwnerState(EVENT_SCHEDULED, f"{health.pods.scheduled} of {health.pods.desired} pods have nodes{where}")


def _summary(states: Sequence[OwnerState]) -> OwnerState:
    """Return the first state, with the number of the others."""
    first, *others = states
    return replace(first, note=f"{first.note}; and {len(others)} more") if others else first


def _evicted(context: ReconcileContext) -> Iterator[OwnerState]:
    """Yield for which preemptor groups were evicted as a whole."""
    for node in context.tree.nodes:
        condition = find_condition(node.group.status.conditions, DISRUPTION_TARGET)
        if condition is not None and condition.status == "True":
            yield OwnerState(EVENT_PREEMPTED, _about(node, condition.message))


def _waiting(context: ReconcileContext) -> Iterator[OwnerState]:
    """Yield why groups wait: of each branch of a tree, the topmost one."""
    closed = set[int | None]()
    for place, (node, health) in enumerate(zip(context.tree.nodes, context.health, strict=True)):
        state = _state_of(node, health) if node.parent not in closed else None
        if state is not None:
            yield state
        if state is not None or node.parent in closed:
            closed.add(place)


def _state_of(node: TreeNode, health: GroupHealth) -> OwnerState | None:
    """Return why a group waits. Groups below the root may get their pods later, and are not waited for."""
    condition, is_root = _condition(node.group), node.parent is None
    if condition is None:
        return None
    if condition.status == "False" and (is_root or condition.reason != REASON_WAITING_FOR_GROUP):
        return OwnerState(condition.reason, condition.message if is_root else _about(node, condition.message))
    if condition.status == "True" and _lacks_nodes(health):
        counts = f"{health.pods.scheduled} of {health.pods.desired} pods have nodes"
        return OwnerState(EVENT_INCOMPLETE, _about(node, f"{counts}: {health.message}"))
    return None


def _lacks_nodes(health: GroupHealth) -> bool:
    """Return whether a minimum is not met now, and pods wait for nodes."""
    is_short = health.reason in {HealthReason.PARTIAL, HealthReason.PENDING}
    return is_short and health.pods.desired > health.pods.scheduled


def _condition(group: Group) -> Condition | None:
    return find_condition(group.status.conditions, initially_scheduled_type(group))


def _about(node: TreeNode, message: str) -> str:
    return f"{node.group.kind} {node.group.metadata.name}: {message}"


def _was_placed_long_ago(context: ReconcileContext) -> bool:
    root = context.tree.root
    since = status_since(root.status.conditions, initially_scheduled_type(root))
    return since is not None and context.now - since > EVENT_LIFETIME_SECONDS


def _seconds_until_due(state: OwnerState) -> float:
    """Return for how long a state has to last before it is reported; evictions are reported at once."""
    known = {EVENT_SCHEDULED: PLACED_SECONDS, EVENT_PREEMPTED: 0.0}
    return known.get(state.reason, WAITING_SECONDS)


def _owner_of(owners: OwnerIndex, workload: Workload) -> tuple[ServedOwner, ObjectMeta] | None:
    """Return the owner that controls a Workload."""
    key = owners.owner_of(workload)
    served = owners.served(key.kind) if key is not None else None
    if key is None or served is None:
        return None
    owner: ObjectMeta = owners.get(key).metadata
    is_controlled = any(one.uid == owner.uid for one in workload.metadata.owner_references)
    return (served, owner) if is_controlled else None


def _write(served: ServedOwner, owner: ObjectMeta, state: OwnerState, number: int) -> Write:
    event = EventSpec(
        reason=state.reason,
        note=state.note,
        warning=state.reason != EVENT_SCHEDULED,
        cause=state.reason,
        only_new=number == 0,
    )
    body = {"reason": state.reason, "number": number}
    return Write(verb=Verb.EVENT, resource=served.resource, target=owner, part="placement", body=body, event=event)


def _obstacle(served: ServedOwner, owner: ObjectMeta, event: EventSpec) -> Write:
    spec = EventSpec(reason=EVENT_NOT_ADOPTED, note=event.note, warning=True, cause=event.reason)
    body = {"reason": event.reason, "note": event.note}
    return Write(verb=Verb.EVENT, resource=served.resource, target=owner, part="obstacle", body=body, event=spec)
