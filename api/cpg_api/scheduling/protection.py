"""Finalizers: a PodGroup stays until its last pod is gone, a CompositePodGroup until its last child is.

Kubernetes deletes in no particular order. The finalizer gives it one: whatever is deleted first, a group stays while
something below it refers to it, so trees are deleted from the leaves to the root. The functions here derive the
finalizers from the present state and not from past events, so they can be called at any time.

A pod holds its group until the pod has ended or is gone, whether it was ever placed or not. A pod that derives its
group from its owner does not: where an owner is replaced by another of its name, the pods of the new one would hold the
groups of the old one, which are in the place of their own.

The native API protects its own PodGroups, so these get no finalizer of ours. It does not protect CompositePodGroups.
"""

from cpg_api.core.pod import Pod
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, Tree, TreeNode
from cpg_api.scheduling.membership import group_names
from cpg_api.scheduling.names import FINALIZER


def names_group(pod: Pod) -> bool:
    """Return whether a member names its group itself, and does not derive it."""
    return bool(group_names(pod))


def needs_our_finalizer(group: Group, *, native: bool) -> bool:
    """Return whether a group should have our finalizer."""
    return not native or isinstance(group, CompositePodGroup)


def desired_finalizers(group: Group, *, native: bool, held: bool) -> tuple[str, ...] | None:
    """Return the finalizers that a group should have; None where it has them already.

    Ours is never added to a group that is being deleted, since the API server refuses that. It is removed from every
    kind of group, also where it would not be added, so that none is left behind.
    """
    present = group.metadata.finalizers
    leaving = group.metadata.deletion_timestamp is not None
    if leaving and FINALIZER in present and not held:
        return tuple(name for name in present if name != FINALIZER)
    if not leaving and FINALIZER not in present and needs_our_finalizer(group, native=native):
        return (*present, FINALIZER)
    return None


def is_held_by_children(tree: Tree, node: TreeNode) -> bool:
    """Return whether a child holds a group. In a cycle no member holds the next, so that all can be deleted."""
    return any(tree.nodes[child].key not in tree.cycle for child in node.children)
