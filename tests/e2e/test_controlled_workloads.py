"""Workloads that consist of others: TrainJobs, RayJobs and DisaggregatedSets, with the real controllers."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]

RACK = "topology.cpg.dev/rack"
NODES = "6 racks x 2 nodes, cpu=2"
INTEGRATIONS = ("jobset", "leaderworkerset", "disaggregatedset", "raycluster", "job")
OURS = "scheduling.cpg.dev"

CONTAINER = "{name: node, image: none, resources: {requests: {cpu: 1500m}}}"
"""Fills a node, also beside the init container of Ray's workers."""
RUNTIME = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: torch, labels: {{trainer.kubeflow.org/framework: torch}}}}
spec:
  mlPolicy: {{numNodes: 1, torch: {{}}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec: {{template: {{spec: {{schedulerName: cpg-scheduler, containers: [{CONTAINER}]}}}}}}
"""
TRAINJOB = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: NAME, annotations: {{{OURS}/required-topology: {RACK}}}}}
spec: {{runtimeRef: {{name: torch}}, trainer: {{numNodes: SIZE}}}}
"""
RAY_CLUSTER = f"""\
    rayVersion: 2.46.0
    headGroupSpec:
      rayStartParams: {{}}
      template: {{spec: {{schedulerName: cpg-scheduler, containers: [{CONTAINER}]}}}}
    workerGroupSpecs:
    - groupName: cpu
      replicas: SIZE
      minReplicas: SIZE
      maxReplicas: SIZE
      rayStartParams: {{}}
      template: {{spec: {{schedulerName: cpg-scheduler, containers: [{CONTAINER}]}}}}
"""
RAYJOB = f"""
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: NAME, annotations: {{{OURS}/required-topology: {RACK}}}}}
spec:
  entrypoint: "true"
  submissionMode: K8sJobMode
  submitterPodTemplate:
    spec: {{schedulerName: cpg-scheduler, restartPolicy: Never, containers: [{CONTAINER}]}}
  rayClusterSpec:
{RAY_CLUSTER}"""
RAYSERVICE = f"""
apiVersion: ray.io/v1
kind: RayService
metadata: {{name: NAME, annotations: {{{OURS}/required-topology: {RACK}}}}}
spec:
  serveConfigV2: "applications: []"
  rayClusterConfig:
{RAY_CLUSTER}"""
SERVING = f"""
apiVersion: disaggregatedset.x-k8s.io/v1
kind: DisaggregatedSet
metadata: {{name: NAME, annotations: {{{OURS}/replica-required-topology: {RACK}}}}}
spec:
  roles:
  - name: prefill
    spec:
      replicas: PREFILLS
      leaderWorkerTemplate:
        size: 2
        workerTemplate: &pod
          metadata: {{annotations: {{version: VERSION}}}}
          spec: {{schedulerName: cpg-scheduler, containers: [{CONTAINER}]}}
  - name: decode
    spec:
      replicas: 1
      leaderWorkerTemplate: {{size: SIZE, workerTemplate: *pod}}
"""
ROUTER = """
  - name: router
    spec:
      replicas: 1
      leaderWorkerTemplate: {size: 1, workerTemplate: *pod}
"""


@pytest.fixture(scope="module", params=["1.37", "1.37 native", "1.30"])
def cluster(
    request: pytest.FixtureRequest, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Run the controllers beside operator and scheduler, which have the rights of the chart."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    version, _, gates = request.param.partition(" ")
    values: Plain = {"integrations": INTEGRATIONS, "scheduler": process, "operator": process}
    if gates:
        values["crds"] = {"install": False}
    spec = ClusterSpec(
        kubernetes=version,
        gates=gates or "default",
        components=("kwok",),
        workloads=("jobset", "lws", "trainer", "ray"),
        nodes=(NodePool.parse(NODES),),
    )
    with Cluster(spec) as found:
        found.stop_component("controller-manager")  # the garbage collector looks for new kinds every 30 s
        release = install(found, values)
        found.start_component("controller-manager")
        folder = tmp_path_factory.mktemp("processes")
        with Deployments(found.access, release.deployments, folder=folder) as running:
            yield found
            for (pod,) in running.pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()


def read(cluster: Cluster, kind: str, *arguments: str) -> list[Plain]:
    """Return the objects of a kind."""
    found: list[Plain] = json.loads(cluster.kubectl("get", kind, *arguments, "-o", "json").stdout)["items"]
    return found


def apply(cluster: Cluster, manifest: str, **values: object) -> None:
    """Create or change an object of a template; a webhook may refuse it until it has seen another one."""
    for name, value in values.items():
        manifest = manifest.replace(name.upper(), str(value))

    def applied() -> bool:
        return cluster.kubectl("apply", "-f", "-", input=manifest, check=False).returncode == 0

    cluster.wait(applied, 30, f"an accepted {values}")


def bound(cluster: Cluster, selector: str) -> dict[str, str]:
    """Return the rack of each pod that has a node."""
    found = read(cluster, "pods", "-l", selector)
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"].rsplit("-", 1)[0] for pod in found if "nodeName" in pod["spec"]
    }


def await_bound(cluster: Cluster, selector: str, count: int) -> dict[str, str]:
    """Wait until so many pods have a node, and return their racks."""
    cluster.wait(lambda: len(bound(cluster, selector)) == count, 60, f"{count} pods of {selector} on nodes")
    return bound(cluster, selector)


def await_waiting(cluster: Cluster, selector: str, count: int) -> None:
    """Wait until so many pods are reported as unschedulable; none has a node."""

    def waiting() -> int:
        conditions = [pod.get("status", {}).get("conditions", ()) for pod in read(cluster, "pods", "-l", selector)]
        return sum(any(one.get("reason") == "Unschedulable" for one in found) for found in conditions)

    cluster.wait(lambda: waiting() == count, 60, f"{count} pods of {selector} that wait")
    assert not bound(cluster, selector)


def api(cluster: Cluster) -> tuple[str, str]:
    """Return the API group and version of Workloads."""
    return ("scheduling.k8s.io", "v1beta1") if cluster.spec.gates == "native" else (OURS, "v1alpha3")


def workloads(cluster: Cluster) -> set[str]:
    """Return the names of the Workloads."""
    return {one["metadata"]["name"] for one in read(cluster, f"workloads.{api(cluster)[0]}")}


@contextmanager
def observed_workloads(cluster: Cluster) -> Iterator[set[frozenset[str]]]:
    """Collect which Workloads exist at the same time, while the block runs: a rollout may take a second."""
    path = f"/apis/{'/'.join(api(cluster))}/namespaces/default/workloads"
    seen: set[frozenset[str]] = set()
    ended = threading.Event()

    def observe() -> None:
        with BlockingClient(cluster.access) as client:
            while not ended.wait(0.05):
                found = client.get(path)["items"]
                seen.add(frozenset(one["metadata"]["name"] for one in found))

    with ThreadPoolExecutor(1) as threads:
        observing = threads.submit(observe)
        try:
            yield seen
        finally:
            ended.set()
            observing.result()


def delete(cluster: Cluster, kind: str, *names: str) -> None:
    """Delete owners, and wait until their pods and Workloads are gone."""
    cluster.kubectl("delete", kind, *names)
    cluster.wait(lambda: not read(cluster, "pods") and not workloads(cluster), 60, f"the end of {kind} {names}")


def test_the_annotations_of_a_trainjob(cluster: Cluster) -> None:
    """They apply to its JobSet: one rack for all pods. A suspended TrainJob has no pods, and comes back as a gang."""
    apply(cluster, RUNTIME)
    apply(cluster, TRAINJOB, name="wide", size=3)
    await_waiting(cluster, "jobset.sigs.k8s.io/jobset-name=wide", 3)
    apply(cluster, TRAINJOB, name="fit", size=2)
    mine = "jobset.sigs.k8s.io/jobset-name=fit"
    assert len(set(await_bound(cluster, mine, 2).values())) == 1
    assert workloads(cluster) == {"jobset.wide", "jobset.fit"}
    cluster.kubectl("patch", "trainjob", "fit", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    cluster.wait(lambda: not read(cluster, "pods", "-l", mine), 60, "the end of the pods")
    cluster.kubectl("patch", "trainjob", "fit", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    assert len(set(await_bound(cluster, mine, 2).values())) == 1
    delete(cluster, "trainjob", "wide", "fit")


def test_the_annotations_of_a_rayjob(cluster: Cluster) -> None:
    """KubeRay copies them to the RayCluster. The submitter is in no group."""
    apply(cluster, RAYJOB, name="wide", size=2)
    await_waiting(cluster, "ray.io/node-type", 3)
    cluster.kubectl("delete", "rayjob", "wide")
    cluster.wait(lambda: not read(cluster, "pods"), 60, "the end of the pods")
    apply(cluster, RAYJOB, name="fit", size=1)
    assert len(set(await_bound(cluster, "ray.io/node-type", 2).values())) == 1
    await_bound(cluster, "job-name=fit", 1)
    (ours,) = workloads(cluster)
    assert ours.startswith("raycluster.fit-")
    groups = {one["metadata"]["name"].removeprefix(ours) for one in read(cluster, f"podgroups.{api(cluster)[0]}")}
    assert groups == {".headgroup", ".cpu"}
    delete(cluster, "rayjob", "fit")


def test_the_annotations_of_a_rayservice(cluster: Cluster) -> None:
    """KubeRay copies them to its RayCluster as well."""
    apply(cluster, RAYSERVICE, name="wide", size=2)
    await_waiting(cluster, "ray.io/node-type", 3)
    delete(cluster, "rayservice", "wide")


def test_a_disaggregated_set_is_placed_whole(cluster: Cluster) -> None:
    """If one role has no room, the other waits as well."""
    apply(cluster, SERVING, name="wide", size=3, prefills=1, version="one")
    await_waiting(cluster, "disaggregatedset.x-k8s.io/name=wide", 5)
    (ours,) = workloads(cluster)
    assert ours.startswith("disaggregatedset.wide.")
    delete(cluster, "disaggregatedset", "wide")


def test_a_disaggregated_set_is_scaled_and_rolled_out(cluster: Cluster) -> None:
    """Each replica has a rack. During a rollout both revisions have a tree, and the later one may have other roles."""
    mine, prefill = ("disaggregatedset.x-k8s.io/name=pd", "disaggregatedset.x-k8s.io/role=prefill")
    apply(cluster, SERVING, name="pd", size=2, prefills=1, version="one")
    assert racks(await_bound(cluster, mine, 4)) == [2, 2]
    (first,) = workloads(cluster)
    apply(cluster, SERVING, name="pd", size=2, prefills=2, version="one")
    assert racks(await_bound(cluster, prefill, 4)) == [2, 2]
    assert workloads(cluster) == {first}
    second = roll_out(cluster, SERVING, first, version="two", pods=6, prefills=2)
    assert racks(bound(cluster, mine)) == [2, 2, 2]
    roll_out(cluster, SERVING + ROUTER, second, version="three", pods=5, prefills=1)
    assert not read(cluster, "events", "--field-selector", "reason=TreeNotMade")
    delete(cluster, "disaggregatedset", "pd")


def roll_out(cluster: Cluster, manifest: str, earlier: str, *, version: str, pods: int, prefills: int) -> str:
    """Roll out a version, see both trees, and return the Workload that is left."""

    def is_done() -> bool:
        found = read(cluster, "pods", "-l", "disaggregatedset.x-k8s.io/name=pd")
        versions = {pod["metadata"]["annotations"]["version"] for pod in found if "nodeName" in pod["spec"]}
        return (len(found), versions, earlier in workloads(cluster)) == (pods, {version}, False)

    with observed_workloads(cluster) as seen:
        apply(cluster, manifest, name="pd", size=2, prefills=prefills, version=version)
        cluster.wait(is_done, 120, f"version {version}")
    (left,) = workloads(cluster)
    assert frozenset({earlier, left}) in seen
    return left


def racks(found: dict[str, str]) -> list[int]:
    """Return the number of pods in each rack."""
    names = list(found.values())
    return [names.count(name) for name in sorted(set(names))]
