"""The examples of other projects' kinds, made into pods by the real controllers and placed by the chart as it is."""

import json
from collections.abc import Iterator
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

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES = "2 blocks x 2 racks x 4 nodes, cpu=4, memory=16Gi, nvidia.com/gpu=8"
RACK, BLOCK = "topology.cpg.dev/rack", "topology.cpg.dev/block"
INDEX = "jobset.sigs.k8s.io/job-index"
REPLICA = "leaderworkerset.sigs.k8s.io/group-index"
Plain = dict[str, Any]


@pytest.fixture(scope="module", params=["1.37", "1.30"])
def cluster(
    request: pytest.FixtureRequest, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Run the controllers, the scheduler and the operator."""
    spec = ClusterSpec(
        kubernetes=request.param,
        components=("kwok",),
        workloads=("jobset", "lws", "ray"),
        nodes=(NodePool.parse(NODES),),
    )
    with Cluster(spec) as running:
        values: Plain = {"scheduler": {"replicas": 1}, "operator": {"replicas": 1}}
        values["admissionPolicy"] = {"enabled": request.param == "1.37", "force": True}
        release = install(running, values)
        folder = tmp_path_factory.mktemp("processes")
        with Deployments(running.access, release.deployments, folder=folder):
            yield running


@pytest.fixture
def space(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a namespace for the test, and wait until its pods are gone afterwards."""
    name = request.node.originalname.replace("_", "-").removeprefix("test-")
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "jobset,leaderworkerset,raycluster,job", "--all", "-n", name)
    cluster.wait(lambda: not read(cluster, "pods", "-n", name)["items"], 60, f"the end of the pods in {name}")


def read(cluster: Cluster, *arguments: str) -> Plain:
    """Return an object or a list of them."""
    found: Plain = json.loads(cluster.kubectl("get", *arguments, "-o", "json").stdout)
    return found


def placed(cluster: Cluster, space: str, example: str, count: int) -> list[Plain]:
    """Apply the folder of an example, and return its pods once so many run."""
    cluster.kubectl("apply", "-n", space, "-f", str(EXAMPLES / example))
    return running(cluster, space, count)


def running(cluster: Cluster, space: str, count: int) -> list[Plain]:
    """Return the pods of a namespace once so many run."""

    def now() -> list[Plain]:
        found: list[Plain] = read(cluster, "pods", "-n", space)["items"]
        return [pod for pod in found if pod["status"]["phase"] == "Running"]

    cluster.wait(lambda: len(now()) == count, 60, f"{count} running pods in {space}")
    return now()


def domains(cluster: Cluster, pods: list[Plain], key: str) -> set[str]:
    """Return the domains of the nodes of some pods."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in read(cluster, "nodes")["items"]}
    return {labels[pod["spec"]["nodeName"]][key] for pod in pods}


def label_of(pod: Plain, key: str) -> str:
    """Return the value of a label."""
    value: str = pod["metadata"]["labels"][key]
    return value


def test_a_jobset_gets_the_tree_of_the_readme(cluster: Cluster, space: str) -> None:
    """Each replica of workers and a driver is in one rack, both are in one block; kubectl shows both, and the owner."""
    pods = placed(cluster, space, "06-jobset", 10)
    assert len(domains(cluster, pods, BLOCK)) == 1
    racks = [domains(cluster, [pod for pod in pods if label_of(pod, INDEX) == index], RACK) for index in "01"]
    assert [len(found) for found in racks] == [1, 1]
    assert racks[0] != racks[1]

    def shown() -> list[list[str]]:
        lines = cluster.kubectl("get", "cpg", "-n", space, "--no-headers").stdout.splitlines()
        return [[line.split()[0], *line.split()[-3:-1]] for line in lines]

    (block,) = domains(cluster, pods, BLOCK)
    wanted = [
        ["jobset.train.replica.0", *racks[0], "jobset/train"],
        ["jobset.train.replica.1", *racks[1], "jobset/train"],
        ["jobset.train.root", block, "jobset/train"],
    ]
    cluster.wait(lambda: shown() == wanted, 30, f"{wanted} in kubectl get cpg")


def test_each_replica_of_a_leader_worker_set_is_in_one_rack(cluster: Cluster, space: str) -> None:
    """Four pods with eight GPUs each fill the nodes of a rack."""
    pods = placed(cluster, space, "07-leaderworkerset", 8)
    racks = [domains(cluster, [pod for pod in pods if label_of(pod, REPLICA) == index], RACK) for index in "01"]
    assert [len(found) for found in racks] == [1, 1]
    assert racks[0] != racks[1]


def test_the_actors_of_a_ray_cluster_are_in_one_rack(cluster: Cluster, space: str) -> None:
    """The head is in the same block."""
    pods = placed(cluster, space, "08-ray", 5)
    actors = [pod for pod in pods if label_of(pod, "ray.io/group") == "actors"]
    assert len(actors) == 4
    assert len(domains(cluster, actors, RACK)) == 1
    assert len(domains(cluster, pods, BLOCK)) == 1


def test_the_pods_of_a_job_are_in_one_rack(cluster: Cluster, space: str) -> None:
    """All four of them."""
    pods = placed(cluster, space, "09-job", 4)
    assert len(domains(cluster, pods, RACK)) == 1


@pytest.mark.parametrize("cluster", ["1.37"], indirect=True)
def test_a_manifest_without_a_scheduler_gets_its_tree(cluster: Cluster, space: str) -> None:
    """In a labelled namespace the policies fill its templates, and the controller accepts the same manifest again."""
    cluster.kubectl("label", "namespace", space, "scheduling.cpg.dev/enabled=true")
    text = (
        (EXAMPLES / "06-jobset" / "objects.yaml").read_text().replace("schedulerName: cpg-scheduler", "hostPID: false")
    )
    jobset = ["-n", space, "-f", "-"]

    def is_filled() -> bool:
        shown = cluster.kubectl("create", *jobset, "--dry-run=server", "-o", "json", input=text).stdout
        return shown.count(SCHEDULER_NAME) == 2

    cluster.wait(is_filled, 30, "the policies")
    cluster.kubectl("apply", "--server-side", *jobset, input=text)
    pods = running(cluster, space, 10)
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER_NAME}
    assert len(domains(cluster, pods, BLOCK)) == 1
    again = text.replace("  name: train\n", "  name: train\n  labels: {again: please}\n")
    cluster.kubectl("apply", "--server-side", *jobset, input=again)
    assert read(cluster, "jobset", "train", "-n", space)["metadata"]["labels"] == {"again": "please"}
