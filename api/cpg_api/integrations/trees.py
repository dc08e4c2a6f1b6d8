"""Build the templates of an owner's Workload, within the limits of the API: 8 entries of a list, 4 levels.

The names of groups consist of the names of Workload and template, and of numbers. So templates of leaves have the names
that pods derive, and those of composite groups get a name that no role of the owner has.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cpg_api.integrations.policy import OwnerPolicy
from cpg_api.scheduling.expected import ExpectedPods
from cpg_api.scheduling.names import MAX_TEMPLATES
from cpg_api.scheduling.policies import (
    BasicSchedulingPolicy,
    CompositeGangSchedulingPolicy,
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, WorkloadSpec

Template = PodGroupTemplate | CompositePodGroupTemplate

MAX_PARTS = MAX_TEMPLATES**2
"""Templates below one group, over one more level."""


class Shape(Struct, frozen=True):
    """The templates of an owner's Workload, or None where it has no pods for us; and what is wrong with the owner."""

    spec: WorkloadSpec | None = None
    problems: tuple[str, ...] = ()
    rests: bool = False
    """Whether the owner is suspended or finished: it gets no tree, and keeps one that it has, with these templates."""
    expected: Mapping[str, tuple[ExpectedPods, ...]] = {}
    """By template, the pods of groups of which some pods are created only once another one has a node."""


class OwnerKind(Struct, frozen=True):
    """A kind of owner whose trees the operator makes."""

    prefix: str
    """The first part of the names of its Workloads and groups."""
    group: str
    versions: tuple[str, ...]
    """The served versions that can be read, the preferred one first."""
    plural: str
    kind: str
    type: type[Any]
    shape: Callable[[Any, OwnerPolicy, frozenset[str]], Shape]
    """Returns the templates of an owner, with the wishes of its annotations, for pods of some schedulers."""
    composed_of: str = ""
    """The kind of the objects that it controls and that have its pods, where it has one tree for several of them."""
    compose: Callable[[Any, Sequence[Any], OwnerPolicy, frozenset[str]], Mapping[str, Shape]] | None = None
    """Returns the templates of each of its trees from these objects, by the last part of the name of the Workload.

    The Workload of a tree without templates stays as it is.
    """
    selector: str = ""
    """Selects the owners by their labels; empty for all of them."""
    reduce: Callable[[Any], Any] | None = None
    """Returns an owner without what its tree does not depend on, where its type alone would keep it."""


def no_tree(_owner: object, _policy: OwnerPolicy, _schedulers: frozenset[str]) -> Shape:
    """Return no templates: objects that it controls have them, or another object that controls it."""
    return Shape()


class Naming:
    """Gives composite templates names that no role has."""

    def __init__(self, roles: Collection[str]) -> None:
        """Avoid these names."""
        self._taken = set(roles)

    def free(self, name: str) -> str:
        """Return a name, with a number where it is taken."""
        number = 1
        found = name
        while found in self._taken:
            number += 1
            found = f"{name}-{number}"
        self._taken.add(found)
        return found


def leaf(
    name: str,
    minimum: int | None,
    *,
    replicas: int | None = None,
    constraints: SchedulingConstraints | None = None,
    mode: DisruptionMode | None = None,
    priority_class: str = "",
) -> PodGroupTemplate:
    """Return the template of a gang with this minimum; without one, of a basic group."""
    policy = GangSchedulingPolicy(minimum) if minimum is not None else None
    return PodGroupTemplate(
        name=name,
        replicas=replicas,
        scheduling_policy=PodGroupSchedulingPolicy(gang=policy, basic=None if policy else BasicSchedulingPolicy()),
        scheduling_constraints=constraints,
        disruption_mode=mode,
        priority_class_name=priority_class,
    )


def composite(
    name: str,
    minimum: int | None,
    children: Sequence[Template],
    *,
    replicas: int | None = None,
    constraints: SchedulingConstraints | None = None,
    mode: DisruptionMode | None = None,
) -> CompositePodGroupTemplate:
    """Return the template of a gang of groups with this minimum; without one, of a basic group."""
    policy = CompositeGangSchedulingPolicy(minimum) if minimum is not None else None
    leaves = tuple(child for child in children if isinstance(child, PodGroupTemplate))
    inner = tuple(child for child in children if isinstance(child, CompositePodGroupTemplate))
    (priority_class,) = {child.priority_class_name for child in children}
    return CompositePodGroupTemplate(
        name=name,
        replicas=replicas,
        scheduling_policy=CompositePodGroupSchedulingPolicy(
            gang=policy, basic=None if policy else BasicSchedulingPolicy()
        ),
        scheduling_constraints=constraints,
        disruption_mode=mode,
        priority_class_name=priority_class,
        pod_group_templates=leaves or None,
        composite_pod_group_templates=inner or None,
    )


def flat(name: str, minimum: int | None, policy: OwnerPolicy, priority_class: str) -> Shape:
    """Return the shape of an owner with one group."""
    constraints = policy.replica or policy.whole
    mode = policy.mode if minimum is not None else None
    template = leaf(name, minimum, constraints=constraints, mode=mode, priority_class=priority_class)
    return Shape(WorkloadSpec(pod_group_templates=(template,)))


class Child(Struct, frozen=True):
    """A template below a gang, and whether the minimum of the gang counts its groups."""

    template: Template
    counted: int
    """How many of its groups the minimum counts; 0 for groups whose pods come later, or never."""


def gang(
    name: str,
    children: Sequence[Child],
    naming: Naming,
    *,
    minimum: int | None = None,
    replicas: int | None = None,
    constraints: SchedulingConstraints | None = None,
    mode: DisruptionMode | None = None,
) -> CompositePodGroupTemplate:
    """Return the template of a gang of all groups that count, or of the ``minimum``; basic where none counts.

    More children than a list may have are divided among parts, which are gangs themselves. A minimum of its own does
    not fit such a gang.
    """
    if len(children) > MAX_TEMPLATES:
        parts = [children[place : place + MAX_TEMPLATES] for place in range(0, len(children), MAX_TEMPLATES)]
        children = [Child(gang(naming.free("part"), part, naming, mode=mode), _any_counts(part)) for part in parts]
    counted = minimum if minimum is not None else sum(child.counted for child in children)
    templates = [child.template for child in children]
    return composite(name, counted or None, templates, replicas=replicas, constraints=constraints, mode=mode)


def _any_counts(part: Sequence[Child]) -> int:
    return int(any(child.counted for child in part))
