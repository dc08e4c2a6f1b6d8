"""Validate trees, edge by edge.

The CRDs hold the rules for a single object. The rules here are between objects, where no API server can enforce them.
Each check reads one kind of edge. A problem names the wrong object, the other end of the edge, and a sentence on how to
repair it. Scheduler and operator share these checks, so the scheduler never schedules an invalid tree that
the operator has not reported yet.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.expected import ExpectedPodsError, read_expected_pods
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree, TreeNode, key_of
from cpg_api.scheduling.names import EXPECTED_PODS, MAX_DEPTH
from cpg_api.scheduling.policies import WorkloadReference
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.templates import (
    TemplatePosition,
    Workloads,
    effective_class_name,
    effective_tree,
    named_priority,
    resolved_priority,
    template_positions,
    template_wait_message,
)

MAX_GROUPS_NAMED = 12
"""Groups of a cycle that a message names. A condition has room for a few hundred."""


class Fault(StrEnum):
    """The kinds of faults of a tree."""

    CYCLE = "Cycle"
    TOO_DEEP = "TooDeep"
    NO_WORKLOAD_REF = "NoWorkloadRef"
    SEVERAL_WORKLOADS = "SeveralWorkloads"
    TEMPLATE_MISSING = "TemplateMissing"
    TEMPLATE_KIND = "TemplateKind"
    TEMPLATE_PLACE = "TemplatePlace"
    ALL_ABOVE_SINGLE = "AllAboveSingle"
    PRIORITY_CLASS_UNKNOWN = "PriorityClassUnknown"
    PRIORITY_DIVERGES = "PriorityDiverges"
    PRIORITY_CLASS_DIVERGES = "PriorityClassDiverges"
    CLASS_DIVERGES = "ClassDiverges"
    EXPECTED_PODS = "ExpectedPods"


class TreeProblem(Struct, frozen=True, order=True):
    """One fault of a tree: the group, the other end of the wrong edge, and a sentence."""

    fault: Fault
    group: GroupKey
    other: str
    message: str


class ValidationContext(Struct, frozen=True):
    """The objects outside of a tree that its validation reads.

    A missing Workload is no fault: it may be created later or be deleted already, and neither affects a tree that has
    all its fields. An existing Workload must have the template.
    """

    workloads: Workloads
    classes: PriorityClasses

    def priority(self, group: Group) -> int | None:
        """Return the priority that a group is scheduled by, whether it is written down or not."""
        return resolved_priority(group, self.workloads, self.classes)

    def class_name(self, group: Group) -> str | None:
        """Return the priority class of a group, empty for none; None while a missing template could name one."""
        return effective_class_name(group, self.workloads, self.classes)


def validate(tree: Tree, context: ValidationContext) -> tuple[TreeProblem, ...]:
    """Return all problems of a tree, sorted; none for a tree that may be scheduled."""
    if tree.anchor is Anchor.CYCLE:
        return (_cycle_problem(tree),)
    tree = effective_tree(tree, context.workloads)
    problems = [
        *_depth_problems(tree),
        *_workload_problems(tree),
        *_template_problems(tree, context.workloads),
        *_disruption_problems(tree),
        *_unknown_class_problems(tree, context),
        *_priority_problems(tree, context),
        *(problem for node in tree.nodes for problem in _class_problems(node.group, context)),
        *_expected_pods_problems(tree),
    ]
    return tuple(sorted(problems))


def tree_wait_message(tree: Tree, workloads: Workloads) -> str:
    """Return which template a valid tree waits for, to take a policy from it; empty where it waits for none."""
    return next(filter(None, (template_wait_message(node.group) for node in effective_tree(tree, workloads).nodes)), "")


def validate_members(
    tree: Tree, pods: Iterable[tuple[GroupKey, Pod]], context: ValidationContext
) -> tuple[TreeProblem, ...]:
    """Return a problem for each pod with another priority than the tree's. Each pod comes with its group.

    As in KEP-5710, only the numbers count, and the sentence is that of kube-scheduler. The scheduler alone reports it.
    """
    wanted = context.priority(tree.root)
    if wanted is None:
        return ()
    problems = [
        TreeProblem(
            fault=Fault.PRIORITY_DIVERGES,
            group=group,
            other=f"Pod {pod.metadata.key}",
            message="all pods in a single pod group should match the priority of the pod group, "
            f"got: {pod.spec.priority or 0} and {wanted}: Pod {pod.metadata.key} of {group} has "
            f"{pod.spec.priority or 0}, the group has {wanted}; give the pod the priorityClassName of its group",
        )
        for group, pod in pods
        if (pod.spec.priority or 0) != wanted
    ]
    return tuple(sorted(problems))


def _cycle_problem(tree: Tree) -> TreeProblem:
    names = [key.name for key in (*tree.cycle, tree.cycle[0])]
    more = len(names) - MAX_GROUPS_NAMED
    way = " -> ".join(names if more <= 0 else (*names[: MAX_GROUPS_NAMED - 1], f"({more} more)", names[-1]))
    return TreeProblem(
        fault=Fault.CYCLE,
        group=tree.cycle[0],
        other=str(tree.cycle[1 % len(tree.cycle)]),
        message=f"the parents of {tree.cycle[0]} form a cycle: {way}",
    )


def _edges(tree: Tree) -> Iterator[tuple[TreeNode, TreeNode]]:
    """Yield every edge of a tree as (parent, child)."""
    for node in tree.nodes:
        if node.parent is not None:
            yield tree.nodes[node.parent], node


def _depth_problems(tree: Tree) -> Iterator[TreeProblem]:
    """Report the first group on each path that is too deep; those below it add nothing."""
    for parent, child in _edges(tree):
        if child.depth == MAX_DEPTH + 1:
            yield TreeProblem(
                fault=Fault.TOO_DEEP,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} is on level {child.depth} of its tree, below {parent.key}: "
                f"a tree has at most {MAX_DEPTH} levels, the PodGroup level included",
            )


def _workload_name(group: Group) -> str | None:
    return group.spec.workload_ref.workload_name if group.spec.workload_ref else None


def _workload_problems(tree: Tree) -> Iterator[TreeProblem]:
    """Report every edge where the Workload changes, and every child without a Workload."""
    for parent, child in _edges(tree):
        above, below = _workload_name(parent.group), _workload_name(child.group)
        if below is None:
            yield TreeProblem(
                fault=Fault.NO_WORKLOAD_REF,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} has the parent {parent.key} but no workloadRef",
            )
        elif above is not None and above != below:
            yield TreeProblem(
                fault=Fault.SEVERAL_WORKLOADS,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} is made from Workload {below}, its parent {parent.key} from Workload {above}: "
                "all groups of a tree are made from one Workload",
            )


def _template_problems(tree: Tree, workloads: Workloads) -> Iterator[TreeProblem]:
    """Compare every group with its template."""
    places: dict[str, Mapping[str, TemplatePosition]] = {}
    for node in tree.nodes:
        ref = node.group.spec.workload_ref
        workload = workloads.get((node.key.namespace, ref.workload_name)) if ref else None
        if ref is None or workload is None:
            continue
        if ref.workload_name not in places:
            places[ref.workload_name] = template_positions(workload)
        above = tree.nodes[node.parent].group if node.parent is not None else None
        yield from _problems_of_template(
            node.group, ref, above, places[ref.workload_name], at_top=tree.anchor is Anchor.ROOT and above is None
        )


def _problems_of_template(
    group: Group, ref: WorkloadReference, parent: Group | None, places: Mapping[str, TemplatePosition], *, at_top: bool
) -> Iterator[TreeProblem]:
    """Compare one group with its template: it must exist, be for this kind, and have the matching parent."""
    key, other = key_of(group), f"Workload {group.metadata.namespace}/{ref.workload_name}"
    place = places.get(ref.template_name)
    if place is None:
        yield TreeProblem(
            Fault.TEMPLATE_MISSING,
            key,
            other,
            f"{key} references template {ref.template_name}, which {other} does not have",
        )
        return
    if place.kind != group.kind:
        yield TreeProblem(
            Fault.TEMPLATE_KIND,
            key,
            other,
            f"{key} references template {ref.template_name} of {other}, which is for a {place.kind}",
        )
        return
    above = parent.spec.workload_ref if parent is not None else None
    if (at_top and place.parent is not None) or (above is not None and above.template_name != place.parent):
        yield TreeProblem(
            Fault.TEMPLATE_PLACE,
            key,
            other,
            f"{key} {_position_text(above.template_name if above else None)}, but its template {ref.template_name} "
            f"of {other} {_position_text(place.parent)}",
        )


def _position_text(below: str | None) -> str:
    return f"is below a group of template {below}" if below else "is at the top"


def _is_all(group: Group) -> bool:
    mode = group.spec.disruption_mode
    return mode is not None and mode.all is not None


def _is_single(group: Group) -> bool:
    """Return whether a group is disrupted in parts. For one that waits for its template this is not known yet."""
    return not _is_all(group) and (group.spec.disruption_mode is not None or not template_wait_message(group))


def _disruption_problems(tree: Tree) -> Iterator[TreeProblem]:
    for parent, child in _edges(tree):
        if _is_all(parent.group) and _is_single(child.group):
            yield TreeProblem(
                fault=Fault.ALL_ABOVE_SINGLE,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} has disruption mode single below {parent.key}, which has all: "
                "what is disrupted as one cannot be disrupted in parts",
            )


def _unknown_class_problems(tree: Tree, context: ValidationContext) -> Iterator[TreeProblem]:
    for node in tree.nodes:
        name, number = named_priority(node.group, context.workloads)
        if name and number is None and context.classes.applicable(name, None) is None:
            yield TreeProblem(
                fault=Fault.PRIORITY_CLASS_UNKNOWN,
                group=node.key,
                other=f"PriorityClass {name}",
                message=f"{node.key} names the PriorityClass {name}, which does not exist",
            )


def _priority_problems(tree: Tree, context: ValidationContext) -> Iterator[TreeProblem]:
    """Compare every child with its parent, so that the problem names the edge where the priority changes.

    Where the numbers are equal, the names of the classes have to be equal as well. A name is not compared while the
    class or the template that gives it is missing.
    """
    priorities = {node.key: context.priority(node.group) for node in tree.nodes}
    names = {node.key: context.class_name(node.group) for node in tree.nodes}
    for parent, child in _edges(tree):
        above, below = priorities[parent.key], priorities[child.key]
        if above is None or below is None:
            continue
        if above != below:
            yield TreeProblem(
                fault=Fault.PRIORITY_DIVERGES,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} has priority {below}, its parent {parent.key} has {above}: "
                "all groups of a tree have one priority",
            )
            continue
        upper, lower = names[parent.key], names[child.key]
        if upper is not None and lower is not None and upper != lower:
            yield TreeProblem(
                fault=Fault.PRIORITY_CLASS_DIVERGES,
                group=child.key,
                other=str(parent.key),
                message=f"{child.key} has {_class_text(lower)}, its parent {parent.key} has {_class_text(upper)}: "
                "all groups of a tree have one priorityClassName; create one of the two again with that of the other",
            )


def _class_text(name: str) -> str:
    return f"priorityClassName {name}" if name else "no priorityClassName"


def _class_problems(group: Group, context: ValidationContext) -> Iterator[TreeProblem]:
    """Compare a group with its class. A class created after the group does not apply to it."""
    name, number = named_priority(group, context.workloads)
    found = context.classes.applicable(name, number)
    born = group.metadata.creation_timestamp
    if found is None or (born and (found.metadata.creation_timestamp or "") > born):
        return
    key, other, policy = key_of(group), f"PriorityClass {found.metadata.name}", group.spec.preemption_policy
    fields = (
        ("priority", number, found.value),
        ("preemptionPolicy", policy, found.preempts),
    )
    for field, own, wanted in fields:
        if own not in {None, wanted}:
            yield TreeProblem(
                fault=Fault.CLASS_DIVERGES,
                group=key,
                other=other,
                message=f"{key} has {field} {own}, its {other} has {wanted}: leave {field} empty",
            )


def _expected_pods_problems(tree: Tree) -> Iterator[TreeProblem]:
    for node in tree.nodes:
        if EXPECTED_PODS not in node.group.metadata.annotations:
            continue
        try:
            read_expected_pods(node.group)
        except ExpectedPodsError as error:
            yield TreeProblem(
                fault=Fault.EXPECTED_PODS,
                group=node.key,
                other=EXPECTED_PODS,
                message=f"{node.key} has an invalid annotation {EXPECTED_PODS}: {error}",
            )


def summarize(messages: Sequence[str]) -> str:
    """Return the first message and the number of others. After the first is repaired, users see the next."""
    more = len(messages) - 1
    return messages[0] if not more else f"{messages[0]} (and {more} more {'problem' if more == 1 else 'problems'})"
