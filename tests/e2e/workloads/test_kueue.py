"""Kueue beside us: it decides when a JobSet starts, and we place the JobSet as a tree."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.workloads.conftest import Space

    from cpg_lab.clusters import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]
RACK = "topology.cpg.dev/rack"
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: placed}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: placed}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: placed, resources: [{name: cpu, nominalQuota: 12}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
"""


@pytest.fixture
def queue(cluster: "Cluster", space: "Space") -> "Space":
    """Return the namespace with a queue, whose quota is for six pods."""
    cluster.kubectl("apply", "-f", "-", input=QUEUE)
    space.create("LocalQueue", "team", {"clusterQueue": "placed"})
    return space


def create(space: "Space", name: str, **labels: str) -> None:
    """Create a JobSet of six pods, in two replicas, that Kueue suspends."""
    job: Plain = {"parallelism": 3, "completions": 3, "backoffLimit": 0}
    job["template"] = space.worker(restartPolicy="Never")
    spec = {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}]}
    labels = {"kueue.x-k8s.io/queue-name": "team", **labels}
    space.create("JobSet", name, spec, labels=labels, replica_required_topology=RACK)


def leaves(name: str) -> dict[str, int]:
    """Return the groups of a JobSet, with their minimums."""
    return {f"jobset.{name}.w.{number}": 3 for number in range(2)}


def placed(space: "Space", name: str) -> None:
    """Wait until a JobSet is placed, one replica in one rack, and no other one has pods."""
    space.running(6, jobset_name=name)
    space.wait(lambda: len(space.pods()) == 6, f"the end of the pods of others than {name}")
    assert {len(one) for one in space.racks(space.running(6), "job-index").values()} == {1}


def test_an_admitted_jobset_is_placed_as_a_tree(queue: "Space") -> None:
    """A second one has neither groups nor pods, until the first is complete."""
    create(queue, "first")
    placed(queue, "first")
    create(queue, "second")
    queue.wait(lambda: len(queue.items("Admission")) == 2, "Kueue's view of both")
    assert queue.leaves() == leaves("first")
    queue.end("Succeeded", *queue.pods())
    placed(queue, "second")


def test_an_evicted_jobset_leaves_no_half_gang(queue: "Space") -> None:
    """One of higher priority evicts it. It comes back with the same groups when that is deleted."""
    create(queue, "low")
    placed(queue, "low")
    groups = queue.uids()
    create(queue, "high", **{"kueue.x-k8s.io/priority-class": "urgent"})
    placed(queue, "high")
    assert queue.leaves() == leaves("low") | leaves("high")
    queue.delete("JobSet", "high")
    placed(queue, "low")
    queue.wait(lambda: queue.uids() == groups, "the groups of low alone")


def test_a_jobset_evicted_before_it_is_placed_holds_nothing(queue: "Space") -> None:
    """Its pods wait for room that the quota does not know of; then Kueue takes its admission back."""
    blocker: Plain = {"replicas": 1, "name": "w", "template": {"spec": {"parallelism": 20, "completions": 20}}}
    blocker["template"]["spec"]["template"] = queue.worker(restartPolicy="Never")
    queue.create("JobSet", "blocker", {"replicatedJobs": [blocker]})
    queue.running(20)
    create(queue, "low")
    queue.waiting(6, jobset_name="low")
    (admission,) = queue.items("Admission")
    queue.change("Admission", admission["metadata"]["name"], active=False)
    queue.wait(lambda: not queue.pods(jobset_name="low"), "the end of the waiting pods")
    queue.change("Admission", admission["metadata"]["name"], active=True)
    queue.waiting(6, jobset_name="low")
    queue.delete("JobSet", "blocker")
    placed(queue, "low")
