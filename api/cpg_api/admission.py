"""What can be said of an object before it is there.

Objects may be created in any order, so refused is only what no further object could ever make right: faults of edges
whose both ends are there, in fields that cannot change. All else that is wrong now is a warning. Said is only what the
object itself brings: a tree that was wrong before can be changed, mended and deleted as before.
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
"""Trees made from a Workload that are looked at, since somebody waits for the answer."""


class Review(Struct, frozen=True):
    """Why an object may not come, or what its user should know of it."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def review_group(forest: Forest, group: Group, context: ValidationContext, *, knows_classes: bool = True) -> Review:
    """Say what a group would bring that is wrong, be it new or changed."""
    key, parent = key_of(group), parent_of(group)
    after = forest.with_group(group)
    # A new group may join two trees: what waits below it, and the one that it comes into.
    before = set(_problems(forest, {key} if parent is None else {key, parent}, context))
    news = [
        problem
        for problem in _problems(after, {key}, context)
        if problem not in before and (knows_classes or problem.fault not in PRIORITY_CLASS_FAULTS)
    ]
    final = [problem for problem in news if _is_permanent(problem, after)]
    return Review(
        refusals=tuple(problem.message for problem in final),
        warnings=tuple(problem.message for problem in news if problem not in final),
    )


def review_workload(forest: Forest, made: Iterable[GroupKey], workload: Workload, context: ValidationContext) -> Review:
    """Say what of the groups that are ``made`` from a Workload would be wrong with it; it may always come."""
    place = (workload.metadata.namespace, workload.metadata.name)
    anchors = list(islice(sorted({forest.anchor_of(key) for key in made}), MAX_TREES_REVIEWED))
    changed = ValidationContext(workloads={**context.workloads, place: workload}, classes=context.classes)
    before = set(_problems(forest, anchors, context))
    news = (problem for problem in _problems(forest, anchors, changed) if problem not in before)
    return Review(warnings=tuple(problem.message for problem in news))


def _problems(forest: Forest, keys: Iterable[GroupKey], context: ValidationContext) -> Iterator[TreeProblem]:
    """Yield what is wrong with the trees of some groups."""
    for anchor in {forest.anchor_of(key) for key in keys}:
        yield from validate(forest.tree_of(anchor), context)


def _is_permanent(problem: TreeProblem, forest: Forest) -> bool:
    """Tell whether nothing that comes could mend a problem; what nobody has named is not settled yet."""
    child = forest.groups[problem.group]
    if problem.fault is Fault.CLASS_DIVERGES:
        return bool(child.spec.priority_class_name)
    if problem.fault is not Fault.PRIORITY_DIVERGES:
        return problem.fault in PERMANENT_FAULTS
    ends = [child, *(forest.groups[key] for key in [parent_of(child)] if key is not None)]
    return all(one.spec.priority is not None or one.spec.priority_class_name for one in ends)
