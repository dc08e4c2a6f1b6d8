"""Leaders with a domain of their own, by the real controllers of JobSet and LeaderWorkerSet: followers have room."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

RACK = "rack"
SMALL_AND_LARGE = ("1 node, cpu=2, name=small, label rack=small", "3 nodes, cpu=2, name=large, label rack=large")
POD = f"""
            schedulerName: {SCHEDULER_NAME}
            terminationGracePeriodSeconds: 0
            containers: [{{name: main, image: none, resources: {{requests: {{cpu: "2"}}}}}}]
"""
JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: train, annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}}}}}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 3
        completions: 3
        completionMode: Indexed
        template:
          spec:{POD}            restartPolicy: Never
"""
LWS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: serve, annotations: {{leaderworkerset.sigs.k8s.io/exclusive-topology: {RACK}}}}}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 3
    workerTemplate:
          spec:{POD}
"""
OTHER = f"""
apiVersion: v1
kind: Pod
metadata: {{name: NAME, labels: {{app: other}}}}
spec:
{POD.replace("            ", "  ")}
"""
Plain = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with a rack of one node and a rack of three, each with room for one pod."""
    pools = tuple(map(NodePool.parse, SMALL_AND_LARGE))
    spec = ClusterSpec(components=("controller-manager", "kwok"), workloads=("jobset", "lws"), nodes=pools)
    with Cluster(spec) as running:
        running.stop_component("controller-manager")
        install(running, {"scheduler": {"enabled": False}, "operator": {"enabled": False}})
        running.start_component("controller-manager")
        yield running


def pods(cluster: Cluster, selector: str) -> dict[str, str]:
    """Return the nodes of pods, by name; empty for a pod without one."""
    found = json.loads(cluster.kubectl("get", "pods", "-l", selector, "-o", "json").stdout)["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}


@pytest.mark.parametrize(
    ("controller", "manifest", "owner", "selector"),
    [
        ("jobset", JOBSET, "jobset/train", "jobset.sigs.k8s.io/jobset-name=train"),
        ("lws", LWS, "leaderworkerset/serve", "leaderworkerset.sigs.k8s.io/name=serve"),
    ],
)
def test_followers_find_their_room(
    cluster: Cluster, install: "Installer", tmp_path: Path, controller: str, manifest: str, owner: str, selector: str
) -> None:
    """The leader gets the rack that is large enough, and pods that come before its followers do not fit there."""
    cluster.kubectl("apply", "-f", "-", input=manifest)
    wait(lambda: len(pods(cluster, selector)) == 1, 60, "the leader")
    cluster.stop_component(controller)
    one = {"replicas": 1, "settings": {"leaderElect": False}}
    release = install(cluster, {"integrations": ["jobset", "leaderworkerset"], "scheduler": one, "operator": one})
    with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
        wait(lambda: all(pods(cluster, selector).values()), 60, "the bind of the leader")
        cluster.kubectl("apply", "-f", "-", input="---".join(OTHER.replace("NAME", f"other-{n}") for n in range(2)))
        wait(lambda: any(pods(cluster, "app=other").values()), 60, "the bind of another pod")
        wait(lambda: is_unschedulable(cluster, "app=other"), 60, "the other pod to wait")
        assert {node for node in pods(cluster, "app=other").values() if node} == {"small-1"}
        cluster.start_component(controller)
        wait(lambda: is_bound(pods(cluster, selector), 3), 90, "the followers")
        assert set(pods(cluster, selector).values()) == {f"large-{n}" for n in range(1, 4)}
        assert sorted(map(bool, pods(cluster, "app=other").values())) == [False, True]
        cluster.kubectl("delete", owner)
        cluster.kubectl("delete", "pod", "-l", "app=other")
        wait(lambda: not pods(cluster, selector), 60, "the end of the pods")
        for (pod,) in running.pods.values():
            assert "attempt failed" not in pod.process.output()
            assert "forbidden: User" not in pod.process.output()


def wait(until: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition holds, also while a controller is stopped."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.1)


def is_bound(found: dict[str, str], count: int) -> bool:
    """Return whether there are so many pods, and all have nodes."""
    return len(found) == count and all(found.values())


def is_unschedulable(cluster: Cluster, selector: str) -> bool:
    """Return whether a pod waits for room."""
    found = json.loads(cluster.kubectl("get", "pods", "-l", selector, "-o", "json").stdout)["items"]
    conditions = [each for pod in found for each in pod["status"].get("conditions", ())]
    return any(each.get("reason") == "Unschedulable" for each in conditions)
