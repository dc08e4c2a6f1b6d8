"""The parts of pods and nodes that are kept."""

from cpg_engine.testing.builders import metadata, node, pod
from cpg_operator.view.projections import slim_node, slim_pod


def test_of_a_pod_only_what_is_read_is_kept() -> None:
    """Membership, node, phase, and what a tree has in common; containers and other labels are dropped."""
    kept = slim_pod(pod("p", group="g", node_name="n1", priority=7, meta=metadata("p", app="x")))
    assert (kept.spec.node_name, kept.spec.priority, kept.status.phase) == ("n1", 7, "Running")
    assert kept.spec.containers is None
    assert kept.metadata.labels == {}
    assert slim_pod(pod("p", group="g")).metadata.labels == {"scheduling.cpg.dev/pod-group": "g"}


def test_of_a_node_only_its_labels_are_kept() -> None:
    """Other changes of nodes cause no event."""
    assert slim_node(node("n1", labels={"rack": "r1"})).metadata.labels["rack"] == "r1"
