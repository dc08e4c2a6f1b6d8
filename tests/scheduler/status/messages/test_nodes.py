"""Messages about nodes."""

from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.status.messages.nodes import overcommit_message


def test_an_overcommitted_node_names_up_to_three_of_our_pods() -> None:
    """A node may have a hundred; the excess is in the units that users write."""
    node = OvercommittedNode("n1", {"cpu": 1500, "memory": 2**31}, ("default/a", "default/b", "default/c", "default/d"))
    assert overcommit_message(node, "cpg-scheduler") == (
        "its pods request more than it has: cpu by 1500m, memory by 2Gi; "
        "of cpg-scheduler are default/a, default/b, default/c and 1 more"
    )
