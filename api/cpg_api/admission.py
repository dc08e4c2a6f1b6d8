"""Review an object before the API server stores it.

Objects may be created in any order. So a review refuses only faults that no later object can repair: faults between two
existing objects, in fields that cannot change. Every other fault is a warning. A review reports only the faults that
the object adds: a tree that was invalid before can still be changed, repaired and deleted.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of, parent_of
from cpg_api.scheduling.validation import Fault, TreeProblem, ValidationContext, validate
from cpg_api.scheduling.workload import Workload
from cpg_api.validity import PRIORITY_CLASS_FAULTS

PERMANENT_FAULTS = frozenset(
    {Fault.CYCLE, Fault.TOO_DEEP, Fault.NO_WORKLOAD_REF, Fault.SEVERAL_WORKLOADS, Fault.ALL_ABOVE_SINGLE}
)
MAX_TREES_REVIEWED = 100
"""Trees of one Workload that a review checks. It bounds the time of an admission request."""


class Review(Struct, frozen=True):
    """The reasons to refuse an object, and the warnings for its user."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def review_group(forest: Forest, group: Group, context: ValidationContext, *, knows_classes: bool = True) -> Review:
    """Return the faults that a new or changed group adds."""
    key, parent = key_of(group), parent_of(group)
    after = forest.with_group(group)
    # A new group may join two trees: the tree below it and the tree of its parent.
    before = set(_problems(forest, {key} if parent is None else {key, parent}, context))
    added = [
        problem
        for problem in _problems(after, {key}, context)
        if problem not in before and (knows_classes or problem.fault not in PRIORITY_CLASS_FAULTS)
    ]
    final = [problem for problem in added if _is_permanent(problem, after)]
    return Review(
        refusals=tuple(problem.message for problem in final),
        warnings=tuple(problem.message for problem in added if problem not in final),
    )


def review_workload(forest: Forest, made: Iterable[GroupKey], workload: Workload, context: ValidationContext) -> Review:
    """Return the faults that a Workload adds to the groups ``made`` from it. They are warnings, never refusals."""
    place = (workload.metadata.namespace, workload.metadata.name)
    anchors = list(islice(sorted({forest.anchor_of(key) for key in made}), MAX_TREES_REVIEWED))
    changed = ValidationContext(workloads={**context.workloads, place: workload}, classes=context.classes)
    before = set(_problems(forest, anchors, context))
    added = (problem for problem in _problems(forest, anchors, changed) if problem not in before)
    return Review(warnings=tuple(problem.message for problem in added))


def _problems(forest: Forest, keys: Iterable[GroupKey], context: ValidationContext) -> Iterator[TreeProblem]:
    """Yield the problems of the trees that contain these groups."""
    for anchor in {forest.anchor_of(key) for key in keys}:
        yield from validate(forest.tree_of(anchor), context)


def _is_permanent(problem: TreeProblem, forest: Forest) -> bool:
    """Return whether no later object can repair a problem. A priority that is not written down may still change."""
    child = forest.groups[problem.group]
    if problem.fault is Fault.CLASS_DIVERGES:
        return bool(child.spec.priority_class_name)
    if problem.fault not in {Fault.PRIORITY_DIVERGES, Fault.PRIORITY_CLASS_DIVERGES}:
        return problem.fault in PERMANENT_FAULTS
    ends = [child, *(forest.groups[key] for key in [parent_of(child)] if key is not None)]
    return all(one.spec.priority is not None or one.spec.priority_class_name for one in ends)
