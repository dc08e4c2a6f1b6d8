"""Reports which groups differ from their templates, and in what.

A group that has never differed gets no condition, and costs no more than the comparison.
"""

from msgspec.structs import replace

from cpg_api.conditions import find_condition, set_condition
from cpg_api.drift import MATCHES_TEMPLATE, drift_condition
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.templates import template_positions
from cpg_api.scheduling.workload import Workload
from cpg_operator.context import ReconcileContext
from cpg_operator.view.tree_index import is_instantiated, owns
from cpg_operator.writes import DRIFT_MANAGER, StepResult, Verb, Write


def report_drift(context: ReconcileContext) -> StepResult:
    """Return the writes that say which groups differ from their templates, or withdraw that from a foreign tree."""
    write_one = _withdraw if context.is_foreign else _write
    writes = [write_one(context, node.group) for node in context.tree.nodes]
    return StepResult(writes=tuple(write for write in writes if write is not None))


def _withdraw(context: ReconcileContext, group: Group) -> Write | None:
    """Return the write that removes the condition from a group that has it.

    It is done once, because the operator of another kube-cpg may report on its own tree.
    """
    if find_condition(group.status.conditions, MATCHES_TEMPLATE) is None:
        return None
    return replace(_apply(context, group, []), once=True)


def _write(context: ReconcileContext, group: Group) -> Write | None:
    """Return the write about one group, or None."""
    ref, namespace = group.spec.workload_ref, group.metadata.namespace
    if ref is None:
        return None
    workload = context.surroundings.workloads.get((namespace, ref.workload_name))
    found = template_positions(workload).get(ref.template_name) if workload is not None else None
    condition = drift_condition(
        group,
        f"template {ref.template_name} of Workload {namespace}/{ref.workload_name}",
        found.template if found is not None and found.kind == group.kind else None,
        ignore_minimum=workload is not None and _is_resized(context, workload, group),
    )
    if condition is None:
        return None
    merged, _ = set_condition(group.status.conditions, condition, context.timestamp)
    return _apply(context, group, [find_condition(merged, MATCHES_TEMPLATE)])


def _apply(context: ReconcileContext, group: Group, conditions: list[Condition | None]) -> Write:
    return Write(
        verb=Verb.APPLY_STATUS,
        resource=context.resource(group),
        target=group.metadata,
        part="drift",
        body={"conditions": conditions},
        manager=DRIFT_MANAGER,
    )


def _is_resized(context: ReconcileContext, workload: Workload, group: Group) -> bool:
    """Return whether the operator itself brings the minimum of a group to that of its template."""
    is_resizable = context.is_crd or isinstance(group, PodGroup)
    return is_resizable and is_instantiated(workload) and owns(workload, group)
