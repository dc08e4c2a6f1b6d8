"""When a group may go: a PodGroup after its last pod, a CompositePodGroup after its last child.

Deletion in Kubernetes has no order. A finalizer gives it one: whatever is deleted first, a group stays while something
below it refers to it, and so trees end from their leaves to their root. The rules below say what a group's finalizers
should be, from what is there and not from what has happened, so they may be asked at any time and any number of times.

A pod holds the group it names until it has run to its end or is gone, whether it was ever placed or not.

The native API protects its PodGroups itself, so ours is not added to those; nothing protects its CompositePodGroups.
"""

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, Tree, TreeNode
from cpg_api.scheduling.names import FINALIZER


def needs_our_finalizer(group: Group, *, native: bool) -> bool:
    """Tell whether a group should bear our finalizer."""
    return not native or isinstance(group, CompositePodGroup)


def desired_finalizers(group: Group, *, native: bool, held: bool) -> tuple[str, ...] | None:
    """Return the finalizers that a group should have instead of those that it has, or None where these are right.

    One is never added to a group that is being deleted, which the API server would refuse; ours is removed wherever
    it is, also where we would not have put it, so that none is left behind.
    """
    present = group.metadata.finalizers
    leaving = group.metadata.deletion_timestamp is not None
    if leaving and FINALIZER in present and not held:
        return tuple(name for name in present if name != FINALIZER)
    if not leaving and FINALIZER not in present and needs_our_finalizer(group, native=native):
        return (*present, FINALIZER)
    return None


def is_held_by_children(tree: Tree, node: TreeNode) -> bool:
    """Tell whether a child holds a group; in a cycle of parents none holds the next, or it could never be deleted."""
    return any(tree.nodes[child].key not in tree.cycle for child in node.children)
