"""Which number does the tree's priority class stand for? Written down once; the API server holds it from then on.

Of our flavour only: the built-in API does this in admission.
"""

from cpg_api.scheduling.priority import fill_in
from cpg_api.scheduling.templates import inherited_priority
from cpg_operator.scenes import Scene
from cpg_operator.writes import NOTHING, Outcome, Verb, Write


def resolve(scene: Scene) -> Outcome:
    """Fill in the priority of every group that has none; an unknown class is told as invalid, by another step."""
    if not scene.ours or not scene.knows_classes:
        return NOTHING
    classes = scene.surroundings.classes
    return Outcome(
        writes=tuple(
            Write(
                verb=Verb.MERGE,
                resource=scene.resource(node.group),
                target=node.group.metadata,
                part="priority",
                body={"spec": filled},
                unchanged=True,
            )
            for node in scene.tree.nodes
            if (
                filled := inherited_priority(node.group, scene.surroundings.workloads, classes)
                or fill_in(classes, node.group.spec.priority_class_name, node.group.spec.priority)
            )
        )
    )


def is_about_to_inherit(scene: Scene) -> bool:
    """Tell whether a group is about to get its template's priority: it is not to be judged by the default before."""
    classes, workloads = scene.surroundings.classes, scene.surroundings.workloads
    return scene.ours and any(inherited_priority(node.group, workloads, classes) for node in scene.tree.nodes)
