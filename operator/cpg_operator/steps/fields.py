"""What a group takes from its template and its priority class, where it has left that empty.

Written down once: the API server holds it from then on, and the scheduler does not wait for it. Of our flavour only;
the built-in API does this in admission, as far as it does.
"""

from cpg_api.scheduling.templates import fields_to_fill
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import NOTHING, StepResult, Verb, Write


def fill(scene: ReconcileContext) -> StepResult:
    """Fill in what every group has left empty; an unknown class is told as invalid, by another step."""
    if not scene.ours:
        return NOTHING
    workloads = scene.surroundings.workloads
    classes = scene.surroundings.classes if scene.knows_classes else None
    return StepResult(
        writes=tuple(
            Write(
                verb=Verb.MERGE,
                resource=scene.resource(node.group),
                target=node.group.metadata,
                part="fields",
                body={"spec": due},
                unchanged=True,
            )
            for node in scene.written.nodes
            if (due := fields_to_fill(node.group, workloads, classes))
        )
    )
