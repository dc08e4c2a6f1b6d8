"""Compares the groups that a Workload asks for with those that exist. Pure.

Every group is owned by the Workload alone, not by its parent. So Kubernetes' garbage collector deletes all of them with
the Workload, in any order and under every policy, and our finalizers give the order. A group with two owners would lose
the reference to one of them halfway through a foreground deletion.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.forest import Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.names import DERIVED_FROM, FINALIZER
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
    owned = {key for key in made if owns(workload, groups[key])}
    if (count := count_groups(workload)) > MAX_GROUPS:
        message = f"its replicas multiply to {count} groups; at most {MAX_GROUPS} are created for one Workload"
        return GroupPlan(wanted=count, obstacles=(Obstacle(ObstacleReason.TOO_MANY_GROUPS, message),))
    wanted = {key_of(group): group for group in desired_groups(workload, api_version=api_version, native=native)}
    create, resize, obstacles, needs_polling = [], [], list(_unserved(wanted.values(), served)), False
    closed: set[GroupKey | None] = set()
    for key, group in wanted.items():
        there = groups.get(key)
        if there is None and (parent_of(group) in closed or type(group) not in served):
            closed.add(key)
        elif there is None:
            create.append(group)
        elif (obstacle := _obstacle(key, there, group, owned=key in owned, native=native)) is not None:
            obstacles.append(obstacle)
            needs_polling = needs_polling or key not in made
            if obstacle.reason is not ObstacleReason.IMMUTABLE:
                closed.add(key)
        elif there.minimum != group.minimum:
            resize.append(_resized(there, group))
    surplus = [groups[key] for key in sorted(owned - wanted.keys())]
    return GroupPlan(
        wanted=len(wanted),
        missing=sum(key not in groups for key in wanted),
        create=tuple(create),
        resize=tuple(resize),
        remove=tuple(group for group in surplus if group.metadata.deletion_timestamp is None),
        obstacles=tuple(sorted(obstacles)),
        needs_polling=needs_polling,
    )


def _unserved(wanted: Iterable[Group], served: Collection[type]) -> Iterator[Obstacle]:
    """Yield an obstacle for each kind that is wanted and not served."""
    for kind in {group.kind for group in wanted if type(group) not in served}:
        yield Obstacle(
            ObstacleReason.NOT_SERVED,
            f"the API server serves no {kind}s: neither they nor the groups below them are created",
        )


def _obstacle(key: GroupKey, there: Group, wanted: Group, *, owned: bool, native: bool) -> Obstacle | None:
    """Return what prevents an existing group from being the one that is wanted."""
    if not owned and not _is_leftover(there, wanted):
        message = f"{key} exists and was not created from this Workload; it is left unchanged"
        return Obstacle(ObstacleReason.CONFLICT, message)
    if there.metadata.deletion_timestamp is not None:
        return Obstacle(ObstacleReason.BEING_DELETED, f"{key} is being deleted and will be created again afterwards")
    if not owned:
        message = f"{key} was created from an earlier Workload of this name and will be deleted with it"
        return Obstacle(ObstacleReason.BEING_DELETED, message)
    if native and isinstance(there, CompositePodGroup) and there.minimum != wanted.minimum:
        message = (
            f"{key} has minGroupCount {there.minimum}, its template {wanted.minimum}; {there.kind}s of the built-in "
            "API cannot change it: delete the group and it will be created again"
        )
        return Obstacle(ObstacleReason.IMMUTABLE, message)
    return None


def _is_leftover(there: Group, wanted: Group) -> bool:
    """Return whether a group is owned by an earlier Workload of the same name, and will be garbage-collected."""
    (owner,) = wanted.metadata.owner_references
    return any(
        one.controller and (one.kind, one.name) == (owner.kind, owner.name) for one in there.metadata.owner_references
    )


def _resized(there: Group, wanted: Group) -> Group:
    """Return an existing group with the wanted minimum."""
    return replace(there, spec=replace(there.spec, scheduling_policy=wanted.spec.scheduling_policy))


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
    is_derived = DERIVED_FROM in workload.metadata.annotations
    made: dict[str | None, list[tuple[str | None, tuple[int, ...]]]] = {None: [(None, ())]}
    for place in places:
        template = place.template
        mine = made[template.name] = []
        for parent, above in made[place.parent]:
            for numbers in _numbered(above, template):
                if is_derived:
                    name = derived_name(workload.metadata.name, template.name, numbers)
                else:
                    is_ambiguous = bool(numbers) and template.name in ambiguous
                    name = group_name(workload.metadata.name, template.name, numbers, ambiguous=is_ambiguous)
                mine.append((name, numbers))
                yield _group(template, _metadata(workload, name, api_version), parent, native=native)


def _replicas(template: Template) -> int:
    return 1 if template.replicas is None else template.replicas


def _numbered(above: tuple[int, ...], template: Template) -> Iterable[tuple[int, ...]]:
    """Return the replica numbers of a template below one group; a template without replicas adds none."""
    return [above] if template.replicas is None else [(*above, number) for number in range(template.replicas)]


def _metadata(workload: Workload, name: str, api_version: str) -> ObjectMeta:
    owner = OwnerReference(
        api_version=api_version,
        kind=Workload.kind,
        name=workload.metadata.name,
        uid=workload.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(name=name, namespace=workload.metadata.namespace, owner_references=(owner,))


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
