"""Adds our finalizer to groups, and removes it once nothing below them is left.

**Why not Kopf's own finalizer.** An ``on.delete`` handler gets events about its own object only, so it would have to
poll for the end of pods and children. Kopf records its attempts in annotations of users' objects, and adds finalizers
by one request each, where ours are sent with the priority. Kopf must not know our finalizer at all: it removes the
finalizer that it calls its own from every object that none of its handlers wants to keep.

**Why merge patches.** A list is replaced whole, so each write carries the version that it was computed from. What
others write meanwhile, such as the garbage collector with a finalizer of its own, is seen by the next reconcile.
Server-side apply costs twice as much, and removes the finalizer when the same manager applies anything else.
"""

from cpg_api.scheduling.forest import TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.protection import desired_finalizers, is_held_by_children, names_group
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import StepResult, Verb, Write


def update_finalizers(context: ReconcileContext) -> StepResult:
    """Return the writes that add our finalizer to groups of a tree, or remove it."""
    writes = []
    for node in context.tree.nodes:
        due = desired_finalizers(node.group, native=not context.is_crd, held=_is_held(context, node))
        if due is not None:
            writes.append(_write(context, node, due))
    return StepResult(writes=tuple(writes))


def _is_held(context: ReconcileContext, node: TreeNode) -> bool:
    """Return whether something below a group still needs it."""
    if isinstance(node.group, PodGroup):
        return any(not pod.is_terminal and names_group(pod) for pod in context.members(node.key))
    return is_held_by_children(context.tree, node)


def _write(context: ReconcileContext, node: TreeNode, finalizers: tuple[str, ...]) -> Write:
    return Write(
        verb=Verb.MERGE,
        resource=context.resource(node.group),
        target=node.group.metadata,
        part="finalizers",
        body={"metadata": {"finalizers": list(finalizers)}},
        unchanged=True,
    )
