"""A preemption unit has to be scheduled as a unit."""

from msgspec.structs import replace

from cpg_api.scheduling.forest import Forest, Group
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import Fault, TreeProblem, ValidationContext, validate
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import bare, composite, leaf_template, pod_group, workload


def validated(groups: list[Group], *workloads: Workload) -> tuple[TreeProblem, ...]:
    """Return the problems of the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    by_name = {(found.metadata.namespace, found.metadata.name): found for found in workloads}
    return validate(tree, ValidationContext(workloads=by_name, classes=PriorityClasses(by_name={})))


def test_a_preemption_unit_needs_a_gang() -> None:
    """The unit is the highest group with mode all: at the top, and below single. Its members are no units."""
    (problem,) = validated([pod_group("flat", gang=None, all_=True)])
    assert (problem.fault, problem.other) == (Fault.ALL_WITHOUT_GANG, "")
    assert problem.message == (
        "PodGroup default/flat has disruption mode all and a basic policy at the top of its tree: "
        "what is scheduled one by one cannot be disrupted as one; give it a gang policy or disruption mode single"
    )
    leaf = pod_group("a", gang=None, parent="root", all_=True)
    (problem,) = validated([composite("root", gang=None, all_=True), leaf])
    assert (problem.fault, problem.group.name) == (Fault.ALL_WITHOUT_GANG, "root")
    (problem,) = validated([composite("root"), leaf])
    assert "a basic policy below CompositePodGroup default/root, which has single: what" in problem.message
    assert validated([composite("root", all_=True), leaf]) == ()
    assert validated([composite("root"), pod_group("a", parent="root", all_=True)]) == ()
    assert validated([pod_group("flat", gang=None)]) == ()


def test_a_preemption_unit_is_not_judged_before_its_place_is_known() -> None:
    """Its parent may be missing, or wait for its template; with the policy from its template it is judged."""
    leaf = pod_group("a", gang=None, parent="root", all_=True)
    assert validated([leaf]) == ()
    assert validated([bare(composite("root")), leaf]) == ()
    open_ = pod_group("flat", workload="w", template="t", all_=True, priority=None)
    open_ = replace(open_, spec=replace(open_.spec, scheduling_policy=None))
    assert validated([open_]) == ()
    (problem,) = validated([open_], workload([leaf_template("t", gang=None)]))
    assert problem.fault is Fault.ALL_WITHOUT_GANG
