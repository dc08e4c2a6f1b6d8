"""The step that gives groups their finalizer, and takes it away when nothing below them is left.

**Why not Kopf's own finalizer.** An ``on.delete`` handler would be asked about its own object's events only, and would
learn by polling that a pod or a child has gone; it notes its tries in annotations of the users' objects; and it adds
finalizers by a request for each, where ours goes with the priority. Kopf must not know ours at all: it takes
the finalizer that it calls its own away from every object that none of its handlers wants to keep.

**Why merge patches.** A list is replaced whole, so each write bears the version that it was computed from; what others
write meanwhile, such as the garbage collector with a finalizer of its own, is seen in the next look, a moment later.
Server-side apply costs twice as much, and takes the finalizer away when the same manager applies anything else.
"""

from cpg_api.scheduling.forest import TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.protection import desired_finalizers, is_held_by_children
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import StepResult, Verb, Write


def protection(scene: ReconcileContext) -> StepResult:
    """Say which groups of a tree should get or lose their finalizer."""
    writes = []
    for node in scene.tree.nodes:
        due = desired_finalizers(node.group, native=not scene.ours, held=_is_held(scene, node))
        if due is not None:
            writes.append(_write(scene, node, due))
    return StepResult(writes=tuple(writes))


def _is_held(scene: ReconcileContext, node: TreeNode) -> bool:
    """Tell whether a group is still needed by what is below it."""
    if isinstance(node.group, PodGroup):
        return any(not pod.is_terminal for pod in scene.members(node.key))
    return is_held_by_children(scene.tree, node)


def _write(scene: ReconcileContext, node: TreeNode, finalizers: tuple[str, ...]) -> Write:
    return Write(
        verb=Verb.MERGE,
        resource=scene.resource(node.group),
        target=node.group.metadata,
        part="finalizers",
        body={"metadata": {"finalizers": list(finalizers)}},
        unchanged=True,
    )
