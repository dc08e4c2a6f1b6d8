"""The step that gives a Workload the groups that it asks for, and says whether it has them.

It is said in the Workload's condition ``Instantiated``. Built-in Workloads have no status; there an annotation says it.
"""

from collections.abc import Mapping, Sequence

from cpg_api.conditions import find_condition, set_condition
from cpg_api.manifests import to_manifest
from cpg_api.meta import Condition
from cpg_api.problems import truncate
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import EVENT_RELEASED, INSTANTIATED
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_client.resources import Resource
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.plan import Obstacle, Plan, Reason, is_marked, plan
from cpg_operator.writes import NOTHING, EventSpec, StepResult, TreeKey, Verb, Write
from cpg_operator.writing.retries import ObjectPart, PartFailure

CONDITION = "Instantiated"
"""Whether a Workload that asks for its groups has all of them."""

COMPLETE = "Instantiated"
"""All of them are there, as the templates say."""

INCOMPLETE = "Incomplete"
"""They are being made, changed or removed."""

REFUSED = "Refused"
"""The API server will not have some of them, or of their changes, by a quota for instance."""

LOOK_AGAIN = 15.0
"""Seconds after which an obstacle is looked at again that says nothing to this Workload when it goes, as a stranger."""

TOLD = ": "
"""Stands between status, reason and message in the annotation."""

MOST_TOLD = 5
"""Obstacles that are spelled out; the others are counted."""

MOST_QUOTED = 1000
"""Characters of what the API server says to what it refuses."""


def workload_key(flavour: str, workload: Workload) -> TreeKey:
    """Return the key under which a Workload stands in the queue, beside the trees."""
    return TreeKey(flavour, GroupKey(Workload.kind, workload.metadata.namespace, workload.metadata.name))


def instantiation(
    view: ClusterView, key: TreeKey, *, stamp: str, troubles: Mapping[ObjectPart, PartFailure]
) -> StepResult:
    """Say what should be written so that a Workload has its groups; nothing of one that is gone or about to go."""
    place = (key.anchor.namespace, key.anchor.name)
    workload = view.workloads[key.flavour].get(place)
    if workload is None or workload.metadata.deletion_timestamp is not None:
        return NOTHING
    kinds, store, ours = view.kinds[key.flavour], view.stores[key.flavour], key.flavour == CRD
    if not is_marked(workload):
        return StepResult(writes=_unmarked(workload, kinds[Workload], ours=ours))
    found = plan(
        workload,
        store.forest.groups,
        store.groups_of_workload(*place),
        api_version=kinds[Workload].api_version,
        native=not ours,
        served=kinds,
    )
    writes = (
        *(_create(group, kinds[type(group)], ours=ours) for group in found.create),
        *(_resize(group, kinds[type(group)]) for group in found.resize),
        *(
            Write(verb=Verb.DELETE, resource=kinds[type(group)], target=group.metadata, part="whole")
            for group in found.remove
        ),
    )
    refusal = next((trouble.words for one in writes if (trouble := troubles.get(one.place)) and trouble.words), "")
    return StepResult(
        writes=(
            *writes,
            *_told(workload, kinds[Workload], _condition(workload, found, refusal), ours=ours, stamp=stamp),
        ),
        again_in=LOOK_AGAIN if found.is_silent else None,
    )


def _create(group: Group, resource: Resource, *, ours: bool) -> Write:
    body = to_manifest(group, native=not ours) | {"apiVersion": resource.api_version}
    return Write(verb=Verb.CREATE, resource=resource, target=group.metadata, part="whole", body=body)


def _resize(group: Group, resource: Resource) -> Write:
    field = "minGroupCount" if isinstance(group, CompositePodGroup) else "minCount"
    body = {"spec": {"schedulingPolicy": {"gang": {field: group.minimum}}}}
    return Write(verb=Verb.MERGE, resource=resource, target=group.metadata, part="minimum", body=body)


def _condition(workload: Workload, found: Plan, refusal: str) -> Condition:
    """Return what is so now: what cannot be done first, then what is still to be done."""
    status, reason, message = "True", COMPLETE, f"all {found.wanted} groups are there"
    there = f"{found.wanted - found.missing} of {found.wanted} groups are there"
    if found.obstacles:
        status, reason = "False", found.obstacles[0].reason.value
        message = _spelled(found.obstacles)
    elif found.create or found.resize or found.remove:
        status, reason = "False", REFUSED if refusal else INCOMPLETE
        message = f"{there}, {len(found.resize)} to be changed, {len(found.remove)} to be removed"
        if refusal:
            what = "the others" if found.create else "what is to be changed or removed"
            message = f"{there}; the API server refuses {what}: {truncate(refusal, MOST_QUOTED)}"
    return Condition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=message,
        observed_generation=workload.metadata.generation,
    )


def _spelled(obstacles: Sequence[Obstacle]) -> str:
    """Spell the first obstacles out and count the others; of many groups that go none, whose number falls by itself."""
    going = sum(one.reason is Reason.BEING_DELETED for one in obstacles)
    words = []
    if going > MOST_TOLD:
        words.append(f"more than {MOST_TOLD} groups are on their way out, and are made anew when they have gone")
        obstacles = [one for one in obstacles if one.reason is not Reason.BEING_DELETED]
    words += [one.message for one in obstacles[:MOST_TOLD]]
    more = len(obstacles) - MOST_TOLD
    return "; ".join([*words, f"and {more} more"] if more > 0 else words)


def _told(workload: Workload, resource: Resource, condition: Condition, *, ours: bool, stamp: str) -> tuple[Write, ...]:
    """Write the condition down where it is news."""
    said = _said(workload, ours=ours)
    word = _word(said, condition)
    if not ours:
        text = TOLD.join((condition.status, condition.reason, condition.message))
        return (_annotate(workload, resource, text, word),) if TOLD.join(said) != text else ()
    merged, changed = set_condition(workload.status.conditions, condition, stamp)
    conditions = [find_condition(merged, CONDITION)]
    return (_say(workload, resource, Verb.APPLY_STATUS, conditions, word),) if changed else ()


def _said(workload: Workload, *, ours: bool) -> list[str]:
    """Return status, reason and message as they were said last; nothing where nothing was."""
    if not ours:
        return workload.metadata.annotations.get(INSTANTIATED, "").split(TOLD, 2)
    found = find_condition(workload.status.conditions, CONDITION)
    return [found.status, found.reason, found.message] if found is not None else []


def _word(said: list[str], condition: Condition) -> EventSpec | None:
    """Return the event about a condition: one for each reason, however the words change; none while work is under way.

    That all is there is told again where it is another number of groups.
    """
    is_complete = condition.status == "True"
    if condition.reason == INCOMPLETE or said[1:] == [condition.reason, condition.message]:
        return None
    if not is_complete and said[1:2] == [condition.reason]:
        return None
    return EventSpec(reason=condition.reason, note=condition.message, warning=not is_complete)


def _unmarked(workload: Workload, resource: Resource, *, ours: bool) -> tuple[Write, ...]:
    """Take the condition back where the mark has been taken away: the groups stay as they are, in the user's hands.

    Whoever has written it too: an apply would leave it standing, and have its end told again at each later look.
    """
    word = EventSpec(
        reason=EVENT_RELEASED, note="no longer marked: its groups stay as they are, and nobody keeps them so"
    )
    if not ours:
        is_told = INSTANTIATED in workload.metadata.annotations
        return (_annotate(workload, resource, None, word),) if is_told else ()
    if find_condition(workload.status.conditions, CONDITION) is None:
        return ()
    left = [one for one in workload.status.conditions or () if one.type != CONDITION]
    return (_say(workload, resource, Verb.MERGE_STATUS, left, word),)


def _say(
    workload: Workload, resource: Resource, verb: Verb, conditions: Sequence[Condition | None], word: EventSpec | None
) -> Write:
    """Write conditions; who merges replaces all of them, and so goes over the very state that was seen."""
    return Write(
        verb=verb,
        resource=resource,
        target=workload.metadata,
        part="instantiated",
        body={"conditions": conditions},
        unchanged=verb is Verb.MERGE_STATUS,
        word=word,
    )


def _annotate(workload: Workload, resource: Resource, text: str | None, word: EventSpec | None) -> Write:
    body = {"metadata": {"annotations": {INSTANTIATED: text}}}
    return Write(
        verb=Verb.MERGE, resource=resource, target=workload.metadata, part="instantiated", body=body, word=word
    )
