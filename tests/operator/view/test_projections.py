"""The parts of objects that are kept."""

from msgspec.structs import replace

from cpg_api.integrations.job import Job
from cpg_api.integrations.policy import MIN_COUNT
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.names import INSTANTIATE, INSTANTIATED
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import leaf_template, metadata, node, pod, pod_group, workload
from cpg_operator.view.projections import slim_managed, slim_node, slim_owner, slim_pod


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


def test_of_a_workload_only_the_annotations_that_are_read_are_kept() -> None:
    """Labels and annotations of other tools may have a megabyte; only owners that control it matter."""
    owners = (OwnerReference(name="controller", controller=True), OwnerReference(name="other"))
    read = {INSTANTIATE: "true", INSTANTIATED: "1", RELEASE_ANNOTATION: "5m"}
    whole = workload([leaf_template("t")])
    meta = replace(whole.metadata, labels={"a": "b"}, annotations={"tool": "x" * 9999} | read, owner_references=owners)
    kept = slim_managed(replace(whole, metadata=meta))
    assert kept == replace(whole, metadata=replace(meta, labels={}, annotations=read, owner_references=owners[:1]))


def test_of_a_group_the_last_attempt_is_dropped() -> None:
    """The scheduler writes it often, and no step reads it."""
    group = pod_group("pg")
    attempted = replace(group, status=PodGroupStatus(attempt=LastAttempt("Impossible", number=7)))
    assert slim_managed(attempted) == slim_managed(group)


def test_of_an_owner_another_version_of_the_same_is_no_change() -> None:
    """So each change of its status causes no reconcile."""
    owners = (OwnerReference(name="controller", controller=True), OwnerReference(name="other"))
    notes = {MIN_COUNT: "2", "tool": "x"}
    meta = ObjectMeta("a", "n", "u", resource_version="1", generation=3, annotations=notes, owner_references=owners)
    kept = slim_owner(Job(metadata=meta))
    assert kept.metadata == ObjectMeta("a", "n", "u", annotations={MIN_COUNT: "2"}, owner_references=owners[:1])
    assert kept == slim_owner(Job(metadata=replace(meta, resource_version="2")))
