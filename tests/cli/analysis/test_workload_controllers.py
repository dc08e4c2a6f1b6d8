"""The pods that controllers create, against the model of the seeded runs, which shares no code with them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from tests.e2e.owners.model import KINDS, Owner

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.analysis.workload_controllers import WorkloadControllers
from cpg_cli.cluster.admission import priority_classes
from cpg_cli.cluster.documents import Document
from cpg_cli.cluster.manifests import read_manifests

Plain = dict[str, Any]
RULES = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)
TEMPLATE = {"spec": {"schedulerName": SCHEDULER_NAME, "containers": [{"name": "c"}]}}
JOBSET = "jobset.x-k8s.io/v1alpha2", "JobSet"
BLOCK, RACK = "topology.cpg.dev/block", "topology.cpg.dev/rack"


class PlacedPods:
    """Nodes for pods: all that were created get one when they are placed."""

    def __init__(self) -> None:
        """Start without pods."""
        self.placed: set[str] = set()

    def labels(self, uid: str) -> Plain | None:
        """Return the labels of the node of a pod."""
        return {BLOCK: "b1", RACK: "r1"} if uid in self.placed else None


def waves(*objects: Plain) -> Iterator[list[Plain]]:
    """Yield the pods that are created, then those that are created once these have nodes, and so on."""
    found = read_manifests([Document("a file", one) for one in objects], namespace="default", created="")
    pods = PlacedPods()
    controllers = WorkloadControllers([one.plain for one in found.others], priority_classes([]), pods.labels)
    while made := [one for one in controllers.reconcile() if one["kind"] == "Pod"]:
        yield made
        pods.placed |= {one["metadata"]["uid"] for one in made}


def _group(plain: Plain) -> str:
    pod = convert_object(plain, Pod)
    assert not isinstance(pod, Rejected)
    return RULES.with_group(pod).derived_group


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("seed", range(20))
def test_owners_have_the_pods_of_the_model(kind: str, seed: int) -> None:
    """Their groups, labels and controllers, and which of them come later."""
    owner: Owner = KINDS[kind].random("owner", Random(seed))  # noqa: S311  # a case can be repeated
    first, *later = waves(owner.manifest(TEMPLATE))
    slots = owner.slots()
    assert Counter(map(_group, first)) == Counter(slot.group for slot in slots if not slot.after)
    assert Counter(_group(one) for made in later for one in made) == Counter(slot.group for slot in slots if slot.after)
    for slot in slots:
        mine = [one for made in (first, *later) for one in made if _has(one, slot.labels) and _group(one) == slot.group]
        assert mine, slot
        (reference,) = mine[0]["metadata"]["ownerReferences"]
        assert (reference["apiVersion"], reference["kind"], reference["name"]) == slot.controller


def _has(pod: Plain, labels: Mapping[str, str]) -> bool:
    mine: dict[str, str] = pod["metadata"]["labels"]
    return {**mine, **labels} == mine


def _owner(api_version: str, kind: str, spec: Plain, **meta: Any) -> Plain:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "owner", **meta}, "spec": spec}


def test_the_first_pod_of_an_exclusive_job_chooses_the_domain() -> None:
    """JobSet's webhook lets the others follow into the rack of the first."""
    job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3, "template": TEMPLATE}}}
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}
    first, second = waves(_owner(*JOBSET, {"replicatedJobs": [job]}, annotations=annotations))
    assert [one["metadata"]["name"] for one in first] == ["owner-w-0-0", "owner-w-1-0"]
    assert all("podAntiAffinity" in one["spec"]["affinity"] for one in first)
    assert len(second) == 4
    assert all(one["spec"]["nodeSelector"] == {RACK: "r1"} for one in second)


def test_a_job_that_depends_on_another_comes_when_that_has_completed() -> None:
    """The pods of the first have succeeded then."""
    jobs: list[Plain] = [{"name": name, "template": {"spec": {"template": TEMPLATE}}} for name in ("prepare", "train")]
    jobs[1]["dependsOn"] = [{"name": "prepare", "status": "Complete"}]
    first, second = waves(_owner(*JOBSET, {"replicatedJobs": jobs}))
    assert [[one["metadata"]["name"] for one in made] for made in (first, second)] == [
        ["owner-prepare-0-0"],
        ["owner-train-0-0"],
    ]


def test_workers_of_an_exclusive_replica_follow_their_leader() -> None:
    """In the block of the leader; each subgroup in a rack of its own."""
    annotations = {
        "leaderworkerset.sigs.k8s.io/exclusive-topology": BLOCK,
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": RACK,
    }
    template = {"size": 5, "workerTemplate": TEMPLATE, "subGroupPolicy": {"subGroupSize": 2}}
    spec = {"replicas": 1, "leaderWorkerTemplate": template}
    first, second = waves(_owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, annotations=annotations))
    (leader,) = first
    terms = leader["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [one["topologyKey"] for one in terms] == [BLOCK, RACK]
    assert [_group(one) for one in (*first, *second)] == ["lws.owner.subgroup.0.0"] * 3 + ["lws.owner.subgroup.0.1"] * 2
    assert all(one["spec"]["nodeSelector"] == {BLOCK: "b1"} for one in second)


def test_an_ordered_stateful_set_has_its_pods_and_claims_one_by_one() -> None:
    """Each pod has a claim of its own in place of the volume of that name."""
    pod = {**TEMPLATE, "metadata": {"labels": {"scheduling.cpg.dev/gang": "true"}}}
    spec = {"replicas": 2, "template": pod, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}
    first, second = waves(_owner("apps/v1", "StatefulSet", spec))
    assert [_group(*made) for made in (first, second)] == ["statefulset.owner.pods"] * 2
    assert second[0]["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-owner-1"}}]


def test_the_pods_of_a_deployment_are_those_of_its_replica_set() -> None:
    """Their group is that of the ReplicaSet."""
    pod = {**TEMPLATE, "metadata": {"labels": {"scheduling.cpg.dev/gang": "true"}}}
    (pods,) = waves(_owner("apps/v1", "Deployment", {"replicas": 3, "template": pod}))
    (group,) = {_group(one) for one in pods}
    assert group.startswith("replicaset.owner-")
    assert len(pods) == 3


def test_a_train_job_has_the_pods_of_its_runtime() -> None:
    """As many as it has nodes; a submitted runtime is found by its name."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": TEMPLATE}}}
    template = {"template": {"spec": {"replicatedJobs": [job]}}}
    runtime = _owner("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", template)
    resources = {"requests": {"cpu": "2"}}
    spec = {"runtimeRef": {"name": "owner"}, "trainer": {"numNodes": 3, "resourcesPerNode": resources}}
    (pods,) = waves(runtime, _owner("trainer.kubeflow.org/v1alpha1", "TrainJob", spec))
    assert {_group(one) for one in pods} == {"jobset.owner.node.0"}
    assert len(pods) == 3


def test_each_role_of_a_disaggregated_set_is_a_leader_worker_set() -> None:
    """The groups have the revision in their names, and the role."""
    roles = [
        {"name": name, "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}}
        for name in ("prefill", "decode")
    ]
    (pods,) = waves(_owner("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", {"roles": roles}))
    names = {_group(one).split(".")[3] for one in pods}
    assert names == {"prefill-replica", "decode-replica"}


def test_a_ray_job_submits_once_its_cluster_runs() -> None:
    """The autoscaler runs beside the head, and workers wait for the head in an init container."""
    group = {"groupName": "w", "replicas": 2, "maxReplicas": 9, "numOfHosts": 2, "template": TEMPLATE}
    cluster = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [group], "enableInTreeAutoscaling": True}
    first, second = waves(_owner("ray.io/v1", "RayJob", {"rayClusterSpec": cluster}))
    assert [len(one["spec"]["containers"]) for one in first] == [2, 1, 1, 1, 1]
    assert [_group(one) for one in second] == [""]
    (service,) = waves(_owner("ray.io/v1", "RayService", {"rayClusterConfig": cluster}))
    assert len(service) == len(first)


@pytest.mark.parametrize("kind", [("batch/v1", "Job"), JOBSET, ("ray.io/v1", "RayCluster"), ("ray.io/v1", "RayJob")])
def test_what_is_suspended_has_no_pods(kind: tuple[str, str]) -> None:
    """Until it is resumed."""
    assert list(waves(_owner(*kind, {"suspend": True}))) == []
