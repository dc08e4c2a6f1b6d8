"""The real workload controllers beside a cluster: they make pods with the labels and owners that we group by."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cpg_lab.clusters import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]

# The pods name their node, so no scheduler places them.
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        completions: 2
        template: {spec: {nodeName: other-1, restartPolicy: Never, containers: [{name: main, image: none}]}}
"""
LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    workerTemplate: {spec: {nodeName: other-1, containers: [{name: main, image: none}]}}
"""
TRAINJOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {nodeName: other-1, containers: [{name: node, image: none}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: fit}
spec: {runtimeRef: {name: torch}, trainer: {numNodes: 2}}
"""
RAYCLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: rays}
spec:
  rayVersion: 2.46.0
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {nodeName: other-1, containers: [{name: head, image: none}]}}
  workerGroupSpecs:
  - groupName: cpu
    replicas: 2
    minReplicas: 2
    maxReplicas: 2
    rayStartParams: {}
    template: {spec: {nodeName: other-1, containers: [{name: worker, image: none}]}}
"""
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [pods]
    flavors: [{name: any, resources: [{name: pods, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: all}
"""


def read(cluster: Cluster, *arguments: str) -> Any:  # noqa: ANN401  # JSON
    """Return an object or a list of them."""
    return json.loads(cluster.kubectl("get", *arguments, "-o", "json").stdout)


def pods(cluster: Cluster, selector: str, count: int) -> list[Plain]:
    """Wait until so many pods run, and return them in order of their names."""

    def running() -> list[Plain]:
        found: list[Plain] = read(cluster, "pods", "-l", selector)["items"]
        return [pod for pod in found if pod["status"]["phase"] == "Running"]

    cluster.wait(lambda: len(running()) == count, 60, f"{count} running pods of {selector}")
    return sorted(running(), key=lambda pod: pod["metadata"]["name"])


def label_rows(found: list[Plain], prefix: str, *names: str) -> list[list[str]]:
    """Return the values of some labels of each pod."""
    return [[pod["metadata"]["labels"][f"{prefix}/{name}"] for name in names] for pod in found]


def owners(cluster: Cluster, thing: Mapping[str, Any]) -> list[str]:
    """Return the chain of controllers of an object, each confirmed by its uid."""
    chain = []
    metadata = thing["metadata"]
    while references := [each for each in metadata.get("ownerReferences", ()) if each.get("controller")]:
        (owner,) = references
        metadata = read(cluster, owner["kind"].lower(), owner["name"])["metadata"]
        assert metadata["uid"] == owner["uid"]
        chain.append(f"{owner['kind']} {owner['name']}")
    return chain


def delete(cluster: Cluster, kind: str, name: str, selector: str) -> None:
    """Delete an owner, and wait until the garbage collector has removed its pods."""
    cluster.kubectl("delete", kind, name)
    cluster.wait(lambda: not read(cluster, "pods", "-l", selector)["items"], 60, f"the end of the pods of {name}")


def test_a_jobset_makes_pods(cluster: Cluster) -> None:
    """Of two Jobs; they go with it."""
    cluster.kubectl("apply", "-f", "-", input=JOBSET)
    mine = "jobset.sigs.k8s.io/jobset-name=train"
    found = pods(cluster, mine, 4)
    names = ("replicatedjob-name", "job-index", "restart-attempt", "global-replicas")
    assert label_rows(found, "jobset.sigs.k8s.io", *names) == [["workers", i, "0", "2"] for i in ("0", "0", "1", "1")]
    assert label_rows(found, "batch.kubernetes.io", "job-completion-index") == [["0"], ["1"], ["0"], ["1"]]
    assert owners(cluster, found[3]) == ["Job train-workers-1", "JobSet train"]
    delete(cluster, "jobset", "train", mine)


def test_a_leader_worker_set_makes_pods(cluster: Cluster) -> None:
    """Of two replicas with a leader each, which owns the workers; they go with it."""
    cluster.kubectl("apply", "-f", "-", input=LWS)
    mine = "leaderworkerset.sigs.k8s.io/name=serve"
    found = pods(cluster, mine, 6)
    rows = label_rows(found, "leaderworkerset.sigs.k8s.io", "group-index", "worker-index")
    assert rows == [[group, worker] for group in "01" for worker in "012"]
    leader, worker = found[0], found[1]
    assert owners(cluster, leader) == ["StatefulSet serve", "LeaderWorkerSet serve"]
    assert owners(cluster, worker)[:2] == ["StatefulSet serve-0", "Pod serve-0"]
    assert worker["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/size"] == "3"
    delete(cluster, "leaderworkerset", "serve", mine)


def test_a_train_job_makes_pods_through_a_jobset(cluster: Cluster) -> None:
    """As many as it has nodes; they go with it."""

    def applied() -> bool:  # the webhook refuses a TrainJob until it has seen the runtime
        return cluster.kubectl("apply", "-f", "-", input=TRAINJOB, check=False).returncode == 0

    cluster.wait(applied, 30, "the TrainJob")
    mine = "jobset.sigs.k8s.io/jobset-name=fit"
    found = pods(cluster, mine, 2)
    assert label_rows(found, "jobset.sigs.k8s.io", "replicatedjob-name", "job-index") == [["node", "0"], ["node", "0"]]
    assert owners(cluster, found[0]) == ["Job fit-node-0", "JobSet fit", "TrainJob fit"]
    delete(cluster, "trainjob", "fit", mine)


def test_a_ray_cluster_makes_pods(cluster: Cluster) -> None:
    """Of a head and a group of workers; they go with it."""
    cluster.kubectl("apply", "-f", "-", input=RAYCLUSTER)
    mine = "ray.io/cluster=rays"
    found = pods(cluster, mine, 3)
    rows = label_rows(found, "ray.io", "group", "node-type")
    assert rows == [["cpu", "worker"], ["cpu", "worker"], ["headgroup", "head"]]
    assert owners(cluster, found[0]) == ["RayCluster rays"]
    delete(cluster, "raycluster", "rays", mine)


def test_kueue_admits_and_evicts_a_jobset(cluster: Cluster) -> None:
    """One JobSet fills the quota, so a second waits without pods until Kueue evicts the first."""
    cluster.kubectl("apply", "-f", "-", input=QUEUE)
    decisions = []
    for name in ("first", "second"):
        queued = f"{{name: {name}, labels: {{kueue.x-k8s.io/queue-name: team}}}}"
        cluster.kubectl("apply", "-f", "-", input=JOBSET.replace("{name: train}", queued))
        decisions.append(quota_of(cluster, name))
    (admitted, first), (_, second) = decisions
    assert (first, second) == ("True", "False")
    found = pods(cluster, "jobset.sigs.k8s.io/jobset-name=first", 4)
    assert owners(cluster, found[0]) == ["Job first-workers-0", "JobSet first"]
    assert not read(cluster, "pods", "-l", "jobset.sigs.k8s.io/jobset-name=second")["items"]
    cluster.kubectl("patch", "workloads.kueue.x-k8s.io", admitted, "--type=merge", "-p", '{"spec":{"active":false}}')
    pods(cluster, "jobset.sigs.k8s.io/jobset-name=second", 4)
    assert not read(cluster, "pods", "-l", "jobset.sigs.k8s.io/jobset-name=first")["items"]
    for name in ("first", "second"):
        delete(cluster, "jobset", name, f"jobset.sigs.k8s.io/jobset-name={name}")


def quota_of(cluster: Cluster, jobset: str) -> tuple[str, str]:
    """Wait for Kueue's decision on a JobSet; return the name of its Workload, and whether its quota is reserved."""
    decisions: dict[str, tuple[str, str]] = {}

    def decided() -> bool:
        for workload in read(cluster, "workloads.kueue.x-k8s.io")["items"]:
            metadata, conditions = workload["metadata"], workload.get("status", {}).get("conditions", ())
            for condition in conditions:
                if condition["type"] == "QuotaReserved":
                    decisions[metadata["ownerReferences"][0]["name"]] = (metadata["name"], condition["status"])
        return jobset in decisions

    cluster.wait(decided, 60, f"Kueue's decision on {jobset}")
    return decisions[jobset]


def test_webhooks_check_only_what_is_theirs(cluster: Cluster) -> None:
    """An invalid JobSet is refused; without its controller other pods still come, and it starts again as it was."""
    refused = cluster.kubectl("apply", "-f", "-", input=JOBSET.replace("train", "t" * 60), check=False)
    assert "pod names generated for this JobSet will exceed 63 characters" in refused.stderr
    cluster.kill_component("jobset")
    cluster.kubectl("run", "alone", "--image=none", "--restart=Never", '--overrides={"spec":{"nodeName":"other-1"}}')
    missed = cluster.kubectl("apply", "-f", "-", input=JOBSET, check=False)
    assert 'failed calling webhook "mjobset.kb.io"' in missed.stderr
    cluster.start_component("jobset")
    cluster.kubectl("apply", "-f", "-", input=JOBSET)
    pods(cluster, "jobset.sigs.k8s.io/jobset-name=train", 4)
    delete(cluster, "jobset", "train", "jobset.sigs.k8s.io/jobset-name=train")


def test_everything_listens_on_loopback(cluster: Cluster) -> None:
    """No component has a port that other machines reach."""
    listening = {inode: address for path in ("tcp", "tcp6") for address, inode in sockets(Path("/proc/net", path))}
    for name, process in cluster.processes.items():
        links = [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        addresses = {listening[link[8:-1]] for link in links if link.startswith("socket:") and link[8:-1] in listening}
        assert addresses == {"0100007F"}, name


def sockets(table: Path) -> Iterator[tuple[str, str]]:
    """Return address and inode of each socket that listens."""
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            yield fields[1].partition(":")[0], fields[9]
