"""Creates, resizes and removes the groups of a Workload, and reports whether it has all of them.

The report is the Workload's condition ``Instantiated``. Built-in Workloads have no status: an annotation takes its
place.
"""

from collections.abc import Mapping, Sequence

from cpg_api.conditions import find_condition, set_condition
from cpg_api.manifests import to_manifest
from cpg_api.meta import Condition
from cpg_api.problems import truncate
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import EVENT_RELEASED, EXPECTED_PODS, FINALIZER, INSTANTIATED, MAX_REPLICAS, REPLICAS
from cpg_api.scheduling.replicas import with_replicas
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_client.resources import Resource
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.tree_index import is_instantiated
from cpg_operator.workloads.plan import GroupPlan, Obstacle, ObstacleReason, plan_groups
from cpg_operator.writes import NOTHING, EventSpec, ObjectPart, StepResult, TreeKey, Verb, Write
from cpg_operator.writing.retries import PartFailure

CONDITION = "Instantiated"
"""Whether a Workload that asks for its groups has all of them."""

COMPLETE = "Instantiated"
"""All of them are there, as the templates say."""

INCOMPLETE = "Incomplete"
"""They are being created, changed or removed."""

REFUSED = "Refused"
"""The API server refuses some of them, or some of their changes, because of a quota for instance."""

POLLING_SECONDS = 15.0
"""After this time an obstacle is checked again that may vanish without an event, such as a foreign group."""

SEPARATOR = ": "
"""Separates status, reason and message in the annotation."""

MAX_SPELLED_OBSTACLES = 5
"""Further obstacles are counted only."""

MAX_REFUSAL_LENGTH = 1000
"""Characters of the API server's message about what it refuses."""

UNREADABLE_REPLICAS = Obstacle(
    ObstacleReason.INVALID_REPLICAS,
    f"the annotation {REPLICAS} has to name templates and numbers up to {MAX_REPLICAS}, such as workers=2,driver=1",
)


def instantiate(
    view: ClusterView, key: TreeKey, *, timestamp: str, failures: Mapping[ObjectPart, PartFailure]
) -> StepResult:
    """Return the writes that give a Workload its groups; none for one that is deleted or being deleted."""
    place = (key.anchor.namespace, key.anchor.name)
    workload = view.workloads(key.flavour).get(place)
    if workload is None or workload.metadata.deletion_timestamp is not None:
        return NOTHING
    kinds, store, is_crd = view.kinds[key.flavour], view.groups(key.flavour), key.flavour == CRD
    report = _Report(workload, kinds[Workload], timestamp=timestamp, is_crd=is_crd)
    if not is_instantiated(workload):
        return StepResult(writes=report.withdraw())
    counted = workload if is_crd else with_replicas(workload)
    if counted is None:
        plan = GroupPlan(obstacles=(UNREADABLE_REPLICAS,))
    else:
        plan = plan_groups(
            counted,
            store.forest.groups,
            store.groups_of_workload(*place),
            api_version=kinds[Workload].api_version,
            native=not is_crd,
            served=kinds,
        )
    writes = _group_writes(plan, kinds, is_crd=is_crd)
    failed = (failures.get(one.object_part) for one in writes)
    refusal = report.choose_refusal([one.message for one in failed if one is not None and one.message])
    return StepResult(
        writes=(*writes, *report.update(_condition(workload, plan, refusal))),
        requeue_after=POLLING_SECONDS if plan.needs_polling else None,
    )


def _group_writes(plan: GroupPlan, kinds: Mapping[type, Resource], *, is_crd: bool) -> tuple[Write, ...]:
    return (
        *(_create(group, kinds[type(group)], is_crd=is_crd) for group in plan.create),
        *(_resize(group, kinds[type(group)]) for group in plan.resize),
        *(
            Write(verb=Verb.DELETE, resource=kinds[type(group)], target=group.metadata, part="whole")
            for group in plan.remove
        ),
        *(_release(group, kinds[type(group)]) for group in plan.replace if _is_ours_to_release(group)),
    )


def _is_ours_to_release(group: Group) -> bool:
    return group.metadata.deletion_timestamp is not None and FINALIZER in group.metadata.finalizers


def _release(group: Group, resource: Resource) -> Write:
    """Return the write that lets a group go although pods need it: it is created again at once."""
    left = [name for name in group.metadata.finalizers if name != FINALIZER]
    body = {"metadata": {"finalizers": left}}
    return Write(
        verb=Verb.MERGE, resource=resource, target=group.metadata, part="finalizers", body=body, unchanged=True
    )


def _create(group: Group, resource: Resource, *, is_crd: bool) -> Write:
    body = to_manifest(group, native=not is_crd) | {"apiVersion": resource.api_version}
    return Write(verb=Verb.CREATE, resource=resource, target=group.metadata, part="whole", body=body)


def _resize(group: Group, resource: Resource) -> Write:
    field = "minGroupCount" if isinstance(group, CompositePodGroup) else "minCount"
    body: dict[str, object] = {}
    if group.spec.scheduling_policy is not None and group.spec.scheduling_policy.gang is not None:
        body["spec"] = {"schedulingPolicy": {"gang": {field: group.minimum}}}
    if EXPECTED_PODS in group.metadata.annotations:
        body["metadata"] = {"annotations": {EXPECTED_PODS: group.metadata.annotations[EXPECTED_PODS]}}
    return Write(verb=Verb.MERGE, resource=resource, target=group.metadata, part="minimum", body=body)


def _condition(workload: Workload, plan: GroupPlan, refusal: str) -> Condition:
    """Return the condition: obstacles first, then what is still to be done."""
    status, reason, message = "True", COMPLETE, f"all {plan.wanted} groups are there"
    existing = f"{plan.wanted - plan.missing} of {plan.wanted} groups are there"
    if plan.obstacles:
        status, reason = "False", plan.obstacles[0].reason.value
        message = _spelled(plan.obstacles)
    elif plan.create or plan.resize or plan.remove or plan.replace:
        status, reason = "False", REFUSED if refusal else INCOMPLETE
        message = f"{existing}, {len(plan.resize)} to be changed, {len(plan.remove)} to be removed"
        if plan.replace:
            message += f", {len(plan.replace)} to be created again once they are gone"
        if refusal:
            what = "the others" if plan.create else "what is to be changed or removed"
            message = f"{existing}; the API server refuses {what}: {truncate(refusal, MAX_REFUSAL_LENGTH)}"
    return Condition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=message,
        observed_generation=workload.metadata.generation,
    )


def _spelled(obstacles: Sequence[Obstacle]) -> str:
    """Return the first obstacles in full and the number of the others.

    Many groups that are being deleted get no number, which would change with each of them.
    """
    deleted = sum(one.reason is ObstacleReason.BEING_DELETED for one in obstacles)
    messages = []
    if deleted > MAX_SPELLED_OBSTACLES:
        messages.append(
            f"more than {MAX_SPELLED_OBSTACLES} groups are being deleted and will be created again afterwards"
        )
        obstacles = [one for one in obstacles if one.reason is not ObstacleReason.BEING_DELETED]
    messages += [one.message for one in obstacles[:MAX_SPELLED_OBSTACLES]]
    more = len(obstacles) - MAX_SPELLED_OBSTACLES
    return "; ".join([*messages, f"and {more} more"] if more > 0 else messages)


class _Report:
    """The condition of a Workload, or the annotation in its place."""

    def __init__(self, workload: Workload, resource: Resource, *, timestamp: str, is_crd: bool) -> None:
        self._workload = workload
        self._resource = resource
        self._timestamp = timestamp
        self._is_crd = is_crd

    def update(self, condition: Condition) -> tuple[Write, ...]:
        """Return the write that reports a condition, if it differs from the last report."""
        reported = self._reported()
        event = _event(reported, condition)
        if not self._is_crd:
            text = SEPARATOR.join((condition.status, condition.reason, condition.message))
            return (self._annotate(text, event),) if SEPARATOR.join(reported) != text else ()
        merged, changed = set_condition(self._workload.status.conditions, condition, self._timestamp)
        conditions = [find_condition(merged, CONDITION)]
        return (self._write_conditions(Verb.APPLY_STATUS, conditions, event),) if changed else ()

    def choose_refusal(self, messages: Sequence[str]) -> str:
        """Return the message to report: the reported one while some group still fails with it, else the first.

        A quota refuses different groups at each retry, and each message has the name of its group.
        """
        reported = self._reported()[-1:]
        standing = (one for one in messages if reported and reported[0].endswith(truncate(one, MAX_REFUSAL_LENGTH)))
        return next(standing, messages[0] if messages else "")

    def withdraw(self) -> tuple[Write, ...]:
        """Return the write that removes the report of a Workload that is no longer to be instantiated.

        Its groups stay as they are. A merge removes the condition whichever manager wrote it: an apply might leave it
        standing, and every later reconcile would record the event again.
        """
        event = EventSpec(
            reason=EVENT_RELEASED, note="no longer instantiated: its groups stay and are no longer updated"
        )
        if not self._is_crd:
            is_reported = INSTANTIATED in self._workload.metadata.annotations
            return (self._annotate(None, event),) if is_reported else ()
        conditions = self._workload.status.conditions
        if find_condition(conditions, CONDITION) is None:
            return ()
        left = [one for one in conditions or () if one.type != CONDITION]
        return (self._write_conditions(Verb.MERGE_STATUS, left, event),)

    def _reported(self) -> list[str]:
        """Return status, reason and message of the last report; nothing where there was none."""
        if not self._is_crd:
            return self._workload.metadata.annotations.get(INSTANTIATED, "").split(SEPARATOR, 2)
        found = find_condition(self._workload.status.conditions, CONDITION)
        return [found.status, found.reason, found.message] if found is not None else []

    def _write_conditions(self, verb: Verb, conditions: Sequence[Condition | None], event: EventSpec | None) -> Write:
        """Return a write of conditions; a merge replaces all of them, so it carries the version that was seen."""
        return Write(
            verb=verb,
            resource=self._resource,
            target=self._workload.metadata,
            part="instantiated",
            body={"conditions": conditions},
            unchanged=verb is Verb.MERGE_STATUS,
            event=event,
        )

    def _annotate(self, text: str | None, event: EventSpec | None) -> Write:
        return Write(
            verb=Verb.MERGE,
            resource=self._resource,
            target=self._workload.metadata,
            part="instantiated",
            body={"metadata": {"annotations": {INSTANTIATED: text}}},
            event=event,
        )


def _event(reported: list[str], condition: Condition) -> EventSpec | None:
    """Return the event about a condition: one for each reason, however the message changes; none during the work.

    A complete set of groups gets another event where its number has changed.
    """
    is_complete = condition.status == "True"
    if condition.reason == INCOMPLETE or reported[1:] == [condition.reason, condition.message]:
        return None
    if not is_complete and reported[1:2] == [condition.reason]:
        return None
    return EventSpec(reason=condition.reason, note=condition.message, warning=not is_complete)
