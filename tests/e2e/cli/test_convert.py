"""Manifests of other schedulers, converted, applied to a real API server, and placed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.e2e.cli.command_line import CommandLine

from cpg_lab import workloads
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

MANIFESTS = Path(__file__).parent / "manifests"
PATIENCE = "30s"


@pytest.fixture(scope="module")
def cluster(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with both processes, the Job controller, and the kind of JobSets without its controller."""
    pool = NodePool.parse("2 blocks x 2 racks x 3 nodes, cpu=8")
    spec = ClusterSpec(components=("controller-manager", "kwok"), nodes=(pool,))
    one = {"replicas": 1, "settings": {"leaderElect": False}}
    with Cluster(spec) as running:
        workloads.install_crds(workloads.of_names(["jobset"]), running.access, kubernetes=spec.kubernetes)
        release = install(running, {"scheduler": one, "operator": one})
        with Deployments(running.access, release.deployments, folder=tmp_path_factory.mktemp("pods")):
            yield running


def converted(cluster: Cluster, name: str, *options: str) -> tuple[CommandLine, str, str]:
    """Convert a file, apply the result to a namespace of its name, and return what was written."""
    cli = CommandLine(cluster)
    done = cli("convert", "-f", str(MANIFESTS / f"{name}.yaml"), *options)
    assert done.returncode == 0, done
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("apply", "--validate=strict", "-n", name, "-f", "-", input=done.stdout)
    return cli, done.stdout, done.stderr


def racks_of(cluster: Cluster, namespace: str) -> list[str]:
    """Return the racks of the nodes of all pods of a namespace."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    rack = {one["metadata"]["name"]: one["metadata"]["labels"]["topology.cpg.dev/rack"] for one in nodes}
    pods = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json").stdout)["items"]
    return [rack[pod["spec"]["nodeName"]] for pod in pods]


def test_coscheduling(cluster: Cluster) -> None:
    """A gang and the pods of a Job that name it by a label; other objects stay as they are, comments included."""
    cli, text, notes = converted(cluster, "coscheduling")
    assert "# stays as it is\n" in text
    assert "scheduling.x-k8s.io" not in text
    assert "spec.scheduleTimeoutSeconds is not needed" in notes
    assert cli("wait", "train", "-n", "coscheduling", "--timeout", PATIENCE).returncode == 0
    assert len(racks_of(cluster, "coscheduling")) == 4
    kept = json.loads(cluster.kubectl("get", "configmap", "odd", "-n", "coscheduling", "-o", "json").stdout)
    assert kept["data"] == {"time": "1:30", "yes": "y", "number": "1e3"}


def test_native_groups(cluster: Cluster) -> None:
    """A tree of three kinds; the pods name their group by our label."""
    cli, text, _ = converted(cluster, "native")
    assert "schedulingGroup" not in text
    assert cli("wait", "train", "-n", "native", "--timeout", PATIENCE).returncode == 0
    assert len(set(racks_of(cluster, "native"))) == 1


def test_a_pod_group_of_volcano(cluster: Cluster) -> None:
    """Pods name it by an annotation, and a tier of its network topology is a node label."""
    cli, _, notes = converted(cluster, "volcano", "--from", "volcano", "--tier", "1=topology.cpg.dev/rack")
    assert "Queue research: left out" in notes
    assert "spec.queue has no equivalent" in notes
    assert cli("wait", "podgroup/eval", "-n", "volcano", "--timeout", PATIENCE).returncode == 0
    racks = racks_of(cluster, "volcano")
    assert (len(racks), len(set(racks))) == (2, 1)


def test_a_job_of_volcano_becomes_a_jobset(cluster: Cluster) -> None:
    """With the Jobs that the JobSet controller makes of it, the tree is placed in one rack."""
    cli, text, _ = converted(cluster, "volcano-job", "--tier", "1=topology.cpg.dev/rack")
    (job_set,) = yaml.safe_load_all(text)
    uid = cluster.kubectl("get", "jobset", "train", "-n", "volcano-job", "-o", "jsonpath={.metadata.uid}").stdout
    for replicated in job_set["spec"]["replicatedJobs"]:
        body = json.dumps(job_of(job_set, replicated, uid))
        cluster.kubectl("create", "-n", "volcano-job", "-f", "-", input=body)
    assert cli("wait", "jobset/train", "-n", "volcano-job", "--for", "healthy", "--timeout", PATIENCE).returncode == 0
    racks = racks_of(cluster, "volcano-job")
    assert (len(racks), len(set(racks))) == (9, 1)


def job_of(job_set: dict[str, Any], replicated: dict[str, Any], uid: str) -> dict[str, Any]:
    """Return the first Job of a replicated job, with the labels that the JobSet controller gives it."""
    name = job_set["metadata"]["name"]
    labels = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/jobset-uid": uid,
        "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
        "jobset.sigs.k8s.io/job-index": "0",
    }
    template = replicated["template"]["spec"]["template"]
    pods = {**template, "metadata": {**template.get("metadata", {}), "labels": labels}}
    owner = {"apiVersion": job_set["apiVersion"], "kind": "JobSet", "name": name, "uid": uid, "controller": True}
    meta = {"name": f"{name}-{replicated['name']}-0", "labels": labels, "ownerReferences": [owner]}
    spec = {**replicated["template"]["spec"], "completionMode": "Indexed", "template": pods}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
