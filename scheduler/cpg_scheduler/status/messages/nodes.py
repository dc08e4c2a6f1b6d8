"""What is wrong with a node."""

from cpg_api.quantity import format_quantity
from cpg_scheduler.observability.overcommit import OvercommittedNode

MAX_PODS_NAMED = 3


def overcommit_message(node: OvercommittedNode, scheduler_name: str) -> str:
    """Return how much more the pods of a node request than it has, and which of them are ours."""
    excess = ", ".join(f"{resource} by {format_quantity(resource, extra)}" for resource, extra in node.excess.items())
    rest = len(node.pods) - MAX_PODS_NAMED
    named = ", ".join(node.pods[:MAX_PODS_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"its pods request more than it has: {excess}; of {scheduler_name} are {named}"
