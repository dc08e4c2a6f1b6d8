"""What our processes may write about objects: their own fields, forward only, and no finalizer too early."""

from collections.abc import Iterator, Mapping

from cpg_api.conditions import FINAL_ONCE_TRUE
from cpg_api.drift import MATCHES_TEMPLATE
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.health import HEALTHY
from cpg_api.scheduling.names import DISRUPTION_TARGET, FINALIZER, POD_SCHEDULED
from cpg_api.scheduling.partial_release import PARTIAL
from cpg_api.scheduling.protection import names_group
from cpg_simulation.checks.changes import OPERATOR, SCHEDULER, Change
from cpg_simulation.checks.cluster import GROUP_KINDS, is_deleting
from cpg_simulation.checks.values import Expectation, Finding, Object, RecordedWrite, Rule

Findings = Iterator[Finding | Expectation]
SERVER_FIELDS = frozenset(
    {"resourceVersion", "generation", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"}
)
_PLACED = frozenset(f"condition {name}" for name in FINAL_ONCE_TRUE)
_GROUP_OF_SCHEDULER = {*_PLACED, f"condition {DISRUPTION_TARGET}", "status.attempt"}
_GROUP_OF_OPERATOR = {
    *_PLACED,
    *(f"condition {name}" for name in (HEALTHY, PARTIAL, MATCHES_TEMPLATE)),
    *(f"status.{name}" for name in ("attempt", "pods", "groups", "domain")),
    "spec",
    "metadata.finalizers",
    "metadata.labels",
    "metadata.annotations",
    "creation",
    "deletion",
}
_POD_OF_SCHEDULER = {
    "binding",
    "deletion",
    f"condition {POD_SCHEDULED}",
    f"condition {DISRUPTION_TARGET}",
    "status.nominatedNodeName",
    "status.resourceClaimStatuses",
    "status.extendedResourceClaimStatus",
}
OWN_PARTS: Mapping[tuple[str, str], set[str] | None] = {
    (SCHEDULER, "pods"): _POD_OF_SCHEDULER,
    (SCHEDULER, "podgroups"): _GROUP_OF_SCHEDULER,
    (SCHEDULER, "compositepodgroups"): _GROUP_OF_SCHEDULER,
    (SCHEDULER, "persistentvolumes"): {"spec", "metadata.annotations"},
    (SCHEDULER, "persistentvolumeclaims"): {"metadata.annotations"},
    (SCHEDULER, "resourceclaims"): None,
    (SCHEDULER, "events"): None,
    (SCHEDULER, "leases"): None,
    (OPERATOR, "pods"): {"deletion"},
    (OPERATOR, "podgroups"): _GROUP_OF_OPERATOR,
    (OPERATOR, "compositepodgroups"): _GROUP_OF_OPERATOR,
    (OPERATOR, "workloads"): None,
    (OPERATOR, "events"): None,
    (OPERATOR, "leases"): None,
}
"""The parts of objects that each program may write, by resource; None for all."""
MANAGERS: Mapping[tuple[str, str], str] = {
    **{(SCHEDULER, part): "cpg-scheduler" for part in (*_PLACED, "status.attempt")},
    (SCHEDULER, f"condition {DISRUPTION_TARGET}"): "cpg-scheduler-eviction",
    **{(OPERATOR, f"condition {name}"): "cpg-operator" for name in (HEALTHY, PARTIAL)},
    **{(OPERATOR, f"status.{name}"): "cpg-operator" for name in ("pods", "groups", "domain")},
    **{(OPERATOR, part): "cpg-operator-validation" for part in _PLACED},
    (OPERATOR, f"condition {MATCHES_TEMPLATE}"): "cpg-operator-templates",
}
"""The field manager of each part of the status of groups: an apply removes what its manager does not send."""


def _own_fields(change: Change) -> Findings:
    """Yield the parts of an object that a process has changed although they are not its own."""
    write = change.write
    if not change.role:
        return
    own = OWN_PARTS.get((change.role, write.resource.partition(".")[0]), set())
    foreign = sorted(changed_parts(write) - own) if own is not None else []
    if foreign:
        name = f"{write.resource} {write.namespace}/{write.name}"
        yield Finding((name,), f"{write.user} has changed {', '.join(foreign)} of {name}")


def _field_managers(change: Change) -> Findings:
    """Yield the parts of the status of a group that were applied by another field manager than their own."""
    write = change.write
    if not change.role or write.verb != "apply" or write.request is None or write.new is None:
        return
    manager = write.request.query.get("fieldManager") or write.request.manager
    for part in sorted(changed_parts(write)):
        if (own := MANAGERS.get((change.role, part), manager)) != manager:
            name = f"{write.resource} {write.namespace}/{write.name}"
            yield Finding((name,), f"{manager} has applied {part} of {name}, which belongs to {own}")


def changed_parts(write: RecordedWrite) -> set[str]:
    """Return the parts of an object that a write has changed; a bind, a creation and a deletion are one part each."""
    old, new = write.old, write.new
    if write.subresource == "binding":
        return {"binding"}
    if old is None:
        return {"creation"}
    if new is None:
        return {"deletion"} if write.verb == "delete" else {"metadata.finalizers"}
    if is_deleting(new) and not is_deleting(old):
        return {"deletion"}
    status = ({**one.get("status", {})} for one in (old, new))
    before, after = (_by_type(one.pop("conditions", None)) | _named("status", one) for one in status)
    before |= _named("metadata", old["metadata"]) | {key: old[key] for key in old.keys() - {"metadata", "status"}}
    after |= _named("metadata", new["metadata"]) | {key: new[key] for key in new.keys() - {"metadata", "status"}}
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _by_type(conditions: list[Object] | None) -> dict[str, object]:
    return {f"condition {one['type']}": one for one in conditions or ()}


def _named(prefix: str, fields: Object) -> dict[str, object]:
    return {f"{prefix}.{key}": value for key, value in fields.items() if key not in SERVER_FIELDS}


def _final_conditions(change: Change) -> Findings:
    """Yield that a condition which is final once it is True has another status now."""
    for before, now in _conditions(change):
        if before["type"] in FINAL_ONCE_TRUE and before["status"] == "True" and (now or {}).get("status") != "True":
            says = f"{now['status']} ({now.get('reason')})" if now else "gone"
            name = f"{change.write.resource} {change.write.namespace}/{change.write.name}"
            yield Finding((name,), f"{before['type']} of {name} was True and is {says}, by {change.write.user}")


def _generations(change: Change) -> Findings:
    """Yield that a condition is about an older generation than before, or about one that does not exist yet.

    A restore of etcd takes generations back, also for a write that is repeated until the API server is there again. A
    write about a deleted group may land on a new one of its name, where it is corrected.
    """
    new = change.write.new
    if new is None or change.is_outdated:
        return
    created = change.group_created
    if created and created > change.knowledge.seen(change.process, change.write.resource, change.sent):
        return
    name = f"{change.write.resource} {change.write.namespace}/{change.write.name}"
    for before, now in _conditions(change):
        generation, last = (now or {}).get("observedGeneration"), before.get("observedGeneration")
        if generation is None or now == before:
            continue
        was_shown = change.view.sees(change.write.resource, int(change.write.old["metadata"]["resourceVersion"]))
        if last is not None and generation < last <= new["metadata"].get("generation", 0) and was_shown:
            yield Finding((name,), f"{before['type']} of {name} goes back from generation {last} to {generation}")
        if generation > new["metadata"].get("generation", 0):
            yield Finding((name,), f"{before['type']} of {name} is about generation {generation}, which does not exist")


def _conditions(change: Change) -> Iterator[tuple[Object, Object | None]]:
    """Yield each condition before a write of ours to a group or pod, and after it."""
    write = change.write
    if not change.role or write.old is None or write.new is None:
        return
    old, new = write.old.get("status", {}).get("conditions"), write.new.get("status", {}).get("conditions")
    if old and old != new:
        for before in old:
            yield before, next((one for one in new or () if one["type"] == before["type"]), None)


def _protection(change: Change) -> Findings:
    """Yield what still needed a group that has lost its finalizer; a restore of etcd may have brought it back."""
    write = change.write
    plural, _, api_group = write.resource.partition(".")
    if change.role != OPERATOR or plural not in GROUP_KINDS or write.old is None or change.is_outdated:
        return
    before = FINALIZER in (write.old["metadata"].get("finalizers") or ())
    after = FINALIZER in ((write.new or {"metadata": {}})["metadata"].get("finalizers") or ())
    if not before or after:
        return
    key = GroupKey(GROUP_KINDS[plural].kind, write.namespace, write.name)
    if not is_deleting(write.old):
        yield Finding((str(key),), f"{key} has lost its finalizer and is not being deleted")
    if (below := next(_needing(change, api_group, key), "")) != "":
        yield Finding((str(key), below), f"{key} has lost its finalizer, and {below} still needs it")


def _needing(change: Change, api_group: str, key: GroupKey) -> Iterator[str]:
    """Yield the children and pods that need a group, as far as the operator was shown them."""
    cluster = change.cluster
    forest = cluster.stores[api_group].forest
    for child in sorted(forest.children.get(key, ())):
        resource = next(f"{plural}.{api_group}" for plural, kind in GROUP_KINDS.items() if kind.kind == child.kind)
        is_in_cycle = child in forest.tree_of(child).cycle
        if change.view.sees(resource, cluster.created[api_group, child]) and not is_in_cycle:
            yield str(child)
    for pod in cluster.members(key, api_group):
        if not pod.has_ended and names_group(pod.pod) and change.view.sees("pods", pod.created_at):
            yield str(pod)


OWN_FIELDS = Rule(
    name="Each program writes its own fields",
    promise="The scheduler and the operator change only the objects, fields and conditions that are theirs.",
    check=_own_fields,
)
FIELD_MANAGERS = Rule(
    name="Each part of a status has one field manager",
    promise="Each part of the status of a group is applied by its own field manager.",
    check=_field_managers,
)
FINAL_CONDITIONS = Rule(
    name="Final conditions are final",
    promise="A condition InitiallyScheduled that is True stays True.",
    check=_final_conditions,
)
GENERATIONS = Rule(
    name="Conditions are about the present",
    promise="The observedGeneration of a condition never goes back to one before that its writer was shown.",
    check=_generations,
)
PROTECTION = Rule(
    name="Groups outlive what needs them",
    promise="The operator removes its finalizer only from a deleted group that no child and no pod needs any more.",
    check=_protection,
)
