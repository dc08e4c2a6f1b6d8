"""Pods of Jobs that name no group, with the real controller of Jobs, both processes of the chart, and kwok."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.integrations.policy import REQUIRED
from cpg_api.scheduling.names import API_VERSION, SCHEDULER_NAME
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RACK = "topology.cpg.dev/rack"
NODES = "2 racks x 3 nodes, cpu=2"
PODS, JOBS = "/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"
WORKLOADS, POD_GROUPS = (f"/apis/{API_VERSION}/namespaces/{{}}/{plural}" for plural in ("workloads", "podgroups"))
Plain = dict[str, Any]
Run = Callable[[list[str]], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with two racks, each of three nodes with room for one pod of a Job.

    The garbage collector looks for new kinds every 30 s, so the controller manager starts after the CRDs.
    """
    spec = ClusterSpec(components=("controller-manager", "kwok"), nodes=(NodePool.parse(NODES),))
    with Cluster(spec) as running:
        running.stop_component("controller-manager")
        install(running, {"scheduler": {"enabled": False}, "operator": {"enabled": False}})
        running.start_component("controller-manager")
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the cluster."""
    with BlockingClient(cluster.access) as connected:
        yield connected


@pytest.fixture
def run(cluster: Cluster, install: "Installer", tmp_path: Path) -> Run:
    """Return what runs operator and scheduler with some integrations, and fails where a request was forbidden."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}

    @contextmanager
    def started(integrations: list[str]) -> Iterator[None]:
        release = install(cluster, {"integrations": integrations, "scheduler": process, "operator": process})
        with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
            yield
            for (pod,) in running.pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()

    return started


class Space:
    """A namespace."""

    def __init__(self, cluster: Cluster, client: BlockingClient, name: str) -> None:
        """Create it."""
        self._cluster, self._client, self._name = cluster, client, name
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def create_job(self, name: str, size: int) -> None:
        """Create an Indexed Job of pods that fill a node each, in one rack by the annotation."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
        pod: Plain = {"schedulerName": SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}
        pod["terminationGracePeriodSeconds"] = 0
        spec = {"completionMode": "Indexed", "parallelism": size, "completions": size, "template": {"spec": pod}}
        meta = {"name": name, "annotations": {REQUIRED: RACK}}
        self._client.create(JOBS.format(self._name), {"metadata": meta, "spec": spec})

    def delete_jobs(self, *names: str) -> None:
        """Delete Jobs, and then their dependents: kubectl asks for it, while the API keeps them by default."""
        self._cluster.kubectl("-n", self._name, "delete", "job", "--wait=false", *names)

    def pods(self, job: str) -> list[Plain]:
        """Return the pods of a Job."""
        return [one for one in self._items(PODS) if one["metadata"]["labels"]["job-name"] == job]

    def nodes(self, job: str) -> list[str]:
        """Return the nodes of the pods of a Job that have one."""
        return [one["spec"]["nodeName"] for one in self.pods(job) if "nodeName" in one["spec"]]

    def unschedulable(self, job: str) -> int:
        """Return how many pods of a Job wait for room."""
        conditions = (one.get("status", {}).get("conditions", ()) for one in self.pods(job))
        return sum(any(each.get("reason") == "Unschedulable" for each in found) for found in conditions)

    def is_settled(self, job: str, wanted: tuple[int, int]) -> bool:
        """Return whether so many pods of a Job have a node, and so many wait for room."""
        return (len(self.nodes(job)), self.unschedulable(job)) == wanted

    def groups(self) -> set[str]:
        """Return the names of Workloads and groups."""
        return {one["metadata"]["name"] for path in (WORKLOADS, POD_GROUPS) for one in self._items(path)}

    def _items(self, path: str) -> list[Plain]:
        found: list[Plain] = self._client.get(path.format(self._name))["items"]
        return found


def test_without_the_integration_pods_of_a_job_are_placed_one_by_one(
    cluster: Cluster, client: BlockingClient, run: Run
) -> None:
    """This is the default: as many as there is room for, in any rack, without groups."""
    space = Space(cluster, client, "off")
    with run([]):
        space.create_job("train", 7)
        cluster.wait(partial(space.is_settled, "train", (6, 1)), what="a pod on each node")
        assert space.groups() == set()
        space.delete_jobs("train")
        cluster.wait(lambda: not space.pods("train"), what="the end of the pods")


def test_the_pods_of_a_job_are_a_gang_in_one_rack(cluster: Cluster, client: BlockingClient, run: Run) -> None:
    """A Job that does not fit waits as a whole. No pod is patched, and the groups end with their Jobs."""
    space = Space(cluster, client, "on")
    sizes = {"small": 2, "train": 3, "late": 3}
    with run(["job"]):
        for name, size in sizes.items():
            space.create_job(name, size)
            wanted = (0, size) if name == "late" else (size, 0)
            cluster.wait(partial(space.is_settled, name, wanted), what=f"{wanted} pods of {name} on nodes and waiting")
        for name in sizes:
            assert len({node.rsplit("-", 1)[0] for node in space.nodes(name)}) == (name != "late")
        assert space.groups() == {f"job.{name}{end}" for name in sizes for end in ("", ".pods")}
        fields = [entry for name in sizes for pod in space.pods(name) for entry in pod["metadata"]["managedFields"]]
        assert {one["manager"] for one in fields if "subresource" not in one} == {"kube-controller-manager"}
        space.delete_jobs(*sizes)
        cluster.wait(lambda: not space.groups(), what="the end of the groups")
