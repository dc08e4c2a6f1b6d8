"""The trees that an owner gets: from its own spec, or from the objects that it controls."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.integrations.policy import read_policy
from cpg_api.integrations.trees import OwnerKind, Shape
from cpg_api.scheduling.forest import GroupKey
from cpg_operator.view.owner_index import OwnerIndex


class DerivedTrees(Struct, frozen=True, kw_only=True):
    """The shape of each tree by the name of its Workload, and what is wrong with the owner."""

    shapes: Mapping[str, Shape] = {}
    problems: tuple[str, ...] = ()
    is_complete: bool = False
    """Whether Workloads of the owner that are not among these are to be removed."""


def derive_trees(
    owners: OwnerIndex,
    key: GroupKey,
    kind: OwnerKind,
    owner: Any,  # noqa: ANN401  # each kind has a type of its own
    scheduler_names: frozenset[str],
) -> DerivedTrees:
    """Return the trees of an owner: none yet while a controller of it is unknown, because its annotations apply too."""
    controllers, name = owners.controllers(owner), f"{kind.prefix}.{key.name}"
    if controllers is None or owners.is_part_of_another(owner, key.kind):
        return DerivedTrees()
    policy = read_policy(owner.metadata.annotations, *(one.metadata.annotations for one in controllers))
    if kind.compose is None:
        shapes = {name: kind.shape(owner, policy, scheduler_names)}
    else:
        parts = kind.compose(owner, owners.controlled(key), policy, scheduler_names)
        shapes = {f"{name}.{part}": _kept_without_templates(shape) for part, shape in parts.items()}
    problems = (*policy.problems, *(one for shape in shapes.values() for one in shape.problems))
    return DerivedTrees(
        shapes=shapes,
        problems=tuple(dict.fromkeys(problems)),
        is_complete=kind.compose is not None and owners.is_read(kind.composed_of),
    )


def _kept_without_templates(shape: Shape) -> Shape:
    """Return a shape of which the Workload stays as it is while some of the objects are missing."""
    return shape if shape.spec is not None else replace(shape, rests=True)
