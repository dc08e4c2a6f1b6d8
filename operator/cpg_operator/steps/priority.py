"""Which number a group is scheduled by, by its priority class or its template's.

Written down once; the API server holds it from then on. Of our flavour only: the built-in API does this in admission.
"""

from cpg_api.scheduling.templates import due_priority
from cpg_operator.scenes import Scene
from cpg_operator.writes import NOTHING, Outcome, Verb, Write


def resolve(scene: Scene) -> Outcome:
    """Fill in the priority of every group that has none; an unknown class is told as invalid, by another step."""
    if not scene.ours or not scene.knows_classes:
        return NOTHING
    around = scene.surroundings
    return Outcome(
        writes=tuple(
            Write(
                verb=Verb.MERGE,
                resource=scene.resource(node.group),
                target=node.group.metadata,
                part="priority",
                body={"spec": due},
                unchanged=True,
            )
            for node in scene.tree.nodes
            if node.group.spec.priority is None and (due := due_priority(node.group, around.workloads, around.classes))
        )
    )
