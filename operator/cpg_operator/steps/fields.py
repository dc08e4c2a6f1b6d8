"""Fills in the fields that a group leaves to its template or to its priority class.

They are written once, and the API server keeps them from then on; the scheduler does not wait for that. This concerns
our flavour only: for the built-in one, admission does it where it is done at all.
"""

from cpg_api.scheduling.templates import fields_to_fill
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import NOTHING, StepResult, Verb, Write


def fill_fields(context: ReconcileContext) -> StepResult:
    """Fill in what each group has left empty; an unknown class is reported as invalid by another step."""
    if not context.is_crd:
        return NOTHING
    workloads = context.surroundings.workloads
    classes = context.surroundings.classes if context.knows_classes else None
    return StepResult(
        writes=tuple(
            Write(
                verb=Verb.MERGE,
                resource=context.resource(node.group),
                target=node.group.metadata,
                part="fields",
                body={"spec": due},
                unchanged=True,
            )
            for node in context.stored.nodes
            if (due := fields_to_fill(node.group, workloads, classes))
        )
    )
