"""Compares the groups that a Workload asks for with those that exist. Pure.

Every group is owned by the Workload alone, not by its parent. So Kubernetes' garbage collector deletes all of them with
the Workload, in any order and under every policy, and our finalizers give the order. A group with two owners would lose
the reference to one of them halfway through a foreground deletion.

The groups of an owner such as a JobSet are replaced where they cannot be changed: they are deleted, released from our
finalizer at once, and created again. Their pods derive the same names, so they stay members.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.expected import templates_expected_pods
from cpg_api.scheduling.forest import Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.names import DERIVED_FROM, EXPECTED_PODS, FINALIZER
from cpg_api.scheduling.podgroup import PodGroup, PodGroupSpec
from cpg_api.scheduling.policies import WorkloadReference
from cpg_api.scheduling.protection import needs_our_finalizer
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload
from cpg_operator.view.tree_index import owns
from cpg_operator.workloads.naming import ambiguous_templates, derived_name, group_name

MAX_GROUPS = 5000
"""Per Workload: replicas multiply from level to level, and a mistyped digit must not fill a cluster."""

Template = PodGroupTemplate | CompositePodGroupTemplate


class ObstacleReason(StrEnum):
    """Why a Workload does not get the groups that it asks for."""

    TOO_MANY_GROUPS = "TooManyGroups"
    """Its replicas multiply to more than 5,000 groups; none is created."""
    CONFLICT = "Conflict"
    """A group of that name exists and was not created from this Workload; it is left unchanged."""
    BEING_DELETED = "BeingDeleted"
    """A group is being deleted, and is created again afterwards."""
    IMMUTABLE = "Immutable"
    """The built-in API does not allow changing this minimum."""
    INVALID_REPLICAS = "InvalidReplicas"
    """The annotation with the replicas of its templates cannot be read; its groups stay as they are."""
    NOT_SERVED = "NotServed"
    """The API server does not serve the kind of some groups; neither they nor the groups below them are created."""


class Obstacle(Struct, frozen=True, order=True):
    """Something that prevents one group from being as its template says."""

    reason: ObstacleReason
    message: str


class GroupPlan(Struct, frozen=True, kw_only=True):
    """The groups to create, resize and remove for a Workload, and what prevents others.

    Parents are created before their children, and nothing is created below a group that is a conflict or is being
    deleted: a new child would hold the old parent, which could then never be replaced.
    """

    wanted: int = 0
    missing: int = 0
    create: tuple[Group, ...] = ()
    resize: tuple[Group, ...] = ()
    remove: tuple[Group, ...] = ()
    replace: tuple[Group, ...] = ()
    """Groups of an owner's tree that are created again once they are gone; ``remove`` has those not being deleted."""
    obstacles: tuple[Obstacle, ...] = ()
    needs_polling: bool = False
    """Whether an obstacle may vanish without an event for this Workload: a group that does not name it."""


def plan_groups(
    workload: Workload,
    groups: Mapping[GroupKey, Group],
    made: Iterable[GroupKey],
    *,
    api_version: str,
    native: bool,
    served: Collection[type],
) -> GroupPlan:
    """Compare the groups that a Workload asks for with all that exist; ``made`` are those that name it.

    Only groups of the kinds that are ``served`` can be created.
    """
    made = set(made)
    if (count := count_groups(workload)) > MAX_GROUPS:
        message = f"its replicas multiply to {count} groups; at most {MAX_GROUPS} are created for one Workload"
        return GroupPlan(wanted=count, obstacles=(Obstacle(ObstacleReason.TOO_MANY_GROUPS, message),))
    wanted = {key_of(group): group for group in desired_groups(workload, api_version=api_version, native=native)}
    owned = {key for key in made if owns(workload, groups[key])} | _inherited(workload, groups, made)
    replaced = _replaced(workload, groups, owned, wanted, native=native)
    create, resize, obstacles, needs_polling = [], [], list(_unserved(wanted.values(), served)), False
    closed: set[GroupKey | None] = set(replaced)
    for key, group in wanted.items():
        there = groups.get(key)
        if key in replaced:
            continue
        if there is None and (parent_of(group) in closed or type(group) not in served):
            closed.add(key)
        elif there is None:
            create.append(group)
        elif (obstacle := _obstacle(key, there, group, owned=key in owned, native=native)) is not None:
            obstacles.append(obstacle)
            needs_polling = needs_polling or key not in made
            if obstacle.reason is not ObstacleReason.IMMUTABLE:
                closed.add(key)
        elif there.minimum != group.minimum or _expects_others(there, group):
            resize.append(_resized(there, group))
    removed = [groups[key] for key in sorted((owned - wanted.keys()) | replaced)]
    return GroupPlan(
        wanted=len(wanted),
        missing=sum(key not in groups for key in wanted),
        create=tuple(create),
        resize=tuple(resize),
        remove=tuple(group for group in removed if group.metadata.deletion_timestamp is None),
        replace=tuple(groups[key] for key in sorted(replaced)),
        obstacles=tuple(sorted(obstacles)),
        needs_polling=needs_polling,
    )


def _inherited(workload: Workload, groups: Mapping[GroupKey, Group], made: Collection[GroupKey]) -> set[GroupKey]:
    """Return the groups of an earlier Workload of the same owner."""
    if not is_derived(workload):
        return set()
    return {key for key in made if _is_leftover(groups[key], workload.metadata.name)}


def _replaced(
    workload: Workload,
    groups: Mapping[GroupKey, Group],
    owned: Collection[GroupKey],
    wanted: Mapping[GroupKey, Group],
    *,
    native: bool,
) -> set[GroupKey]:
    """Return the groups that are deleted and created again, those included that are being deleted already."""
    if not is_derived(workload):
        return set()
    return {
        key
        for key in wanted.keys() & owned
        if groups[key].metadata.deletion_timestamp is not None
        or not owns(workload, groups[key])
        or (native and _is_fixed(groups[key], wanted[key]))
    }


def _is_fixed(there: Group, wanted: Group) -> bool:
    """Return whether the built-in API does not allow changing the minimum of a group to the one that is wanted."""
    return isinstance(there, CompositePodGroup) and there.minimum != wanted.minimum


def _unserved(wanted: Iterable[Group], served: Collection[type]) -> Iterator[Obstacle]:
    """Yield an obstacle for each kind that is wanted and not served."""
    for kind in {group.kind for group in wanted if type(group) not in served}:
        yield Obstacle(
            ObstacleReason.NOT_SERVED,
            f"the API server serves no {kind}s: neither they nor the groups below them are created",
        )


def _obstacle(key: GroupKey, there: Group, wanted: Group, *, owned: bool, native: bool) -> Obstacle | None:
    """Return what prevents an existing group from being the one that is wanted."""
    (owner,) = wanted.metadata.owner_references
    if not owned and not _is_leftover(there, owner.name):
        message = f"{key} exists and was not created from this Workload; it is left unchanged"
        return Obstacle(ObstacleReason.CONFLICT, message)
    if there.metadata.deletion_timestamp is not None:
        return Obstacle(ObstacleReason.BEING_DELETED, f"{key} is being deleted and will be created again afterwards")
    if not owned:
        message = f"{key} was created from an earlier Workload of this name and will be deleted with it"
        return Obstacle(ObstacleReason.BEING_DELETED, message)
    if native and _is_fixed(there, wanted):
        message = (
            f"{key} has minGroupCount {there.minimum}, its template {wanted.minimum}; {there.kind}s of the built-in "
            "API cannot change it: delete the group and it will be created again"
        )
        return Obstacle(ObstacleReason.IMMUTABLE, message)
    return None


def _is_leftover(there: Group, workload: str) -> bool:
    """Return whether a group is owned by an earlier Workload of the same name, and will be garbage-collected."""
    return any(
        one.controller and (one.kind, one.name) == (Workload.kind, workload) for one in there.metadata.owner_references
    )


def _resized(there: Group, wanted: Group) -> Group:
    """Return an existing group with the wanted minimum and the wanted expected pods."""
    metadata = replace(there.metadata, annotations=there.metadata.annotations | wanted.metadata.annotations)
    return replace(there, metadata=metadata, spec=replace(there.spec, scheduling_policy=wanted.spec.scheduling_policy))


def _expects_others(there: Group, wanted: Group) -> bool:
    """Return whether an existing group should expect other pods; a template without any leaves that to users."""
    expected = wanted.metadata.annotations.get(EXPECTED_PODS)
    return expected is not None and there.metadata.annotations.get(EXPECTED_PODS) != expected


def count_groups(workload: Workload) -> int:
    """Return how many groups a Workload asks for, without building them."""
    total = 0
    counts: dict[str | None, int] = {None: 1}
    for place in walk_templates(workload):
        counts[place.template.name] = counts[place.parent] * _replicas(place.template)
        total += counts[place.template.name]
    return total


def desired_groups(workload: Workload, *, api_version: str, native: bool) -> Iterator[Group]:
    """Yield the groups that a Workload asks for, parents before children."""
    places = list(walk_templates(workload))
    ambiguous = ambiguous_templates({place.template.name for place in places})
    expected, has_owner = templates_expected_pods(workload), is_derived(workload)
    made: dict[str | None, list[tuple[str | None, tuple[int, ...]]]] = {None: [(None, ())]}
    for place in places:
        template = place.template
        mine = made[template.name] = []
        for parent, above in made[place.parent]:
            for numbers in _numbered(above, template):
                if has_owner:
                    name = derived_name(workload.metadata.name, template.name, numbers)
                else:
                    is_ambiguous = bool(numbers) and template.name in ambiguous
                    name = group_name(workload.metadata.name, template.name, numbers, ambiguous=is_ambiguous)
                mine.append((name, numbers))
                metadata = _metadata(workload, name, api_version, _expected_pods(expected, template, numbers))
                yield _group(template, metadata, parent, native=native)


def _expected_pods(expected: Mapping[str, str], template: Template, numbers: tuple[int, ...]) -> str | None:
    """Return the pods that a group expects: those of its own number come before those of its template."""
    if not expected or isinstance(template, CompositePodGroupTemplate):
        return None
    common = expected.get(template.name)
    return expected.get(f"{template.name}.{numbers[-1]}", common) if template.replicas is not None else common


def is_derived(workload: Workload) -> bool:
    """Return whether the operator has made a Workload for an owner, such as a JobSet."""
    return DERIVED_FROM in workload.metadata.annotations


def _replicas(template: Template) -> int:
    return 1 if template.replicas is None else template.replicas


def _numbered(above: tuple[int, ...], template: Template) -> Iterable[tuple[int, ...]]:
    """Return the replica numbers of a template below one group; a template without replicas adds none."""
    return [above] if template.replicas is None else [(*above, number) for number in range(template.replicas)]


def _metadata(workload: Workload, name: str, api_version: str, expected: str | None) -> ObjectMeta:
    owner = OwnerReference(
        api_version=api_version,
        kind=Workload.kind,
        name=workload.metadata.name,
        uid=workload.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    wanted = {DERIVED_FROM: workload.metadata.annotations.get(DERIVED_FROM), EXPECTED_PODS: expected}
    annotations = {key: value for key, value in wanted.items() if value is not None}
    return ObjectMeta(
        name=name, namespace=workload.metadata.namespace, owner_references=(owner,), annotations=annotations
    )


def _group(template: Template, metadata: ObjectMeta, parent: str | None, *, native: bool) -> Group:
    """Copy every field that template and group have in common, and add our finalizer from the start."""
    (owner,) = metadata.owner_references
    place: dict[str, Any] = {
        "parent_composite_pod_group_name": parent,
        "workload_ref": WorkloadReference(workload_name=owner.name, template_name=template.name),
    }
    group: Group
    if isinstance(template, CompositePodGroupTemplate):
        spec = CompositePodGroupSpec(**place, **_copied(template, CompositePodGroupSpec))
        group = CompositePodGroup(metadata=metadata, spec=spec)
    else:
        group = PodGroup(metadata=metadata, spec=PodGroupSpec(**place, **_copied(template, PodGroupSpec)))
    if needs_our_finalizer(group, native=native):
        return replace(group, metadata=replace(metadata, finalizers=(FINALIZER,)))
    return group


def _copied(template: Template, spec: type[PodGroupSpec | CompositePodGroupSpec]) -> dict[str, Any]:
    return {field: getattr(template, field) for field in template.__struct_fields__ if field in spec.__struct_fields__}
