"""The chart for some namespaces: pods in the others count for room and are never changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments, PodProcess, run_job
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Installer

    from cpg_lab.charts import ChartRelease

pytestmark = pytest.mark.e2e

OURS, THEIRS, GOING = "ours", "theirs", "going"
VALUES = {"namespaces": [OURS, "more", GOING], "scheduler": {"replicas": 1}}
Plain = dict[str, Any]


class Namespace:
    """A namespace with helpers to create and read objects."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """Wrap a namespace of a cluster."""
        self._cluster = cluster
        self.name = namespace

    def put(self, *objects: Plain) -> None:
        """Create objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self._cluster.kubectl("create", "-n", self.name, "-f", "-", input=text)

    def seen(self, kind: str) -> list[Plain]:
        """Return the objects of a kind."""
        told = self._cluster.kubectl("get", kind, "-n", self.name, "-o", "json").stdout
        found: list[Plain] = json.loads(told)["items"]
        return found

    def nodes(self) -> list[str]:
        """Return the nodes of the pods in the order of their names; empty for a pod without a node."""
        return [one["spec"].get("nodeName", "") for one in self.seen("pods")]

    def event_reasons(self) -> set[str]:
        """Return the reasons of all events."""
        return {one["reason"] for one in self.seen("events.events.k8s.io")}

    def healthy(self) -> dict[str, str]:
        """Return the status of the condition Healthy by group."""
        groups = [one for kind in ("cpg", "podgroups") for one in self.seen(kind)]
        return {
            one["metadata"]["name"]: condition["status"]
            for one in groups
            for condition in one.get("status", {}).get("conditions", ())
            if condition["type"] == "Healthy"
        }

    def delete(self, *names: str) -> None:
        """Delete objects and wait for their end."""
        self._cluster.kubectl("delete", "-n", self.name, "--timeout=20s", "--grace-period=0", "--force", *names)


def tree(size: int = 2) -> list[Plain]:
    """Return a tree of one gang in one rack, without pods."""
    version = "scheduling.cpg.dev/v1alpha3"
    reference = {"workloadName": "none", "templateName": "any"}
    root = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}, "workloadRef": reference}
    leaf = {
        "schedulingPolicy": {"gang": {"minCount": size}},
        "workloadRef": reference,
        "parentCompositePodGroupName": "root",
        "schedulingConstraints": {"topology": [{"key": "topology.cpg.dev/rack"}]},
    }
    return [
        {"apiVersion": version, "kind": "CompositePodGroup", "metadata": {"name": "root"}, "spec": root},
        {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "leaf"}, "spec": leaf},
    ]


def pod(name: str, *, group: str = "", node: str = "", priority: str = "") -> Plain:
    """Return a pod that requests half of a node."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
    spec = {"schedulerName": "cpg-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
    labels = {"scheduling.cpg.dev/pod-group": group} if group else {}
    more = {"nodeName": node} if node else {}
    more |= {"priorityClassName": priority} if priority else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec | more}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster of two racks of two nodes, with the namespaces of the values and another one."""
    nodes = (NodePool.parse("2 racks x 2 nodes, cpu=4"),)
    with Cluster(ClusterSpec(components=("controller-manager", "kwok"), nodes=nodes)) as running:
        for name in (OURS, "more", THEIRS, GOING):
            running.kubectl("create", "namespace", name)
        running.kubectl("create", "priorityclass", "high", "--value=1000")
        yield running


@pytest.fixture(scope="module")
def release(cluster: Cluster, install: Installer) -> ChartRelease:
    """Install the chart for these namespaces."""
    return install(cluster, VALUES)


@pytest.fixture(scope="module")
def pods(
    cluster: Cluster, release: ChartRelease, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[PodProcess]]:
    """Run the processes of the chart, and check that they log no error."""
    with Deployments(cluster.access, release.deployments, folder=tmp_path_factory.mktemp("limited")) as running:
        found = [one for pods in running.pods.values() for one in pods]
        yield found
    for one in found:
        assert one.process.exit_code == 0
        logged = [json.loads(line) for line in one.process.output().splitlines() if line.startswith("{")]
        assert [line for line in logged if line["level"] in {"error", "critical"}] == []
        assert "forbidden: User" not in one.process.output()


def test_a_deleted_namespace_does_not_block_the_others(cluster: Cluster, release: ChartRelease, tmp_path: Path) -> None:
    """Processes that start without it name it in /readyz, work for the others, and for it once it exists again."""
    found = cluster.kubectl("get", "roles,rolebindings", "-n", GOING, "-o", "json").stdout
    rights = [one for one in json.loads(found)["items"] if one["metadata"]["name"].startswith("kube-cpg")]
    cluster.kubectl("delete", "namespace", GOING, "--timeout=60s")
    with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
        started = [one for pods in running.pods.values() for one in pods]
        told = {(200, f"ok, but may not read {GOING}\n")}
        cluster.wait(lambda: {one.get("/readyz") for one in started} == told, what="readiness without a namespace")
        place_and_delete_a_tree(cluster, Namespace(cluster, OURS))
        cluster.kubectl("create", "namespace", GOING)
        for one in rights:
            del one["metadata"]["resourceVersion"], one["metadata"]["uid"]
        Namespace(cluster, GOING).put(*rights)
        place_and_delete_a_tree(cluster, Namespace(cluster, GOING), timeout=90)
        cluster.wait(lambda: {one.get("/readyz") for one in started} == {(200, "ok\n")}, what="readiness", timeout=90)
    assert not [one for one in started if one.process.exit_code]


def place_and_delete_a_tree(cluster: Cluster, namespace: Namespace, timeout: float = 30) -> None:
    """Create a tree, wait until it is placed and healthy, and delete it."""
    namespace.put(*tree(), *(pod(name, group="leaf") for name in ("a", "b")))
    healthy = {"root": "True", "leaf": "True"}
    cluster.wait(lambda: all(namespace.nodes()) and namespace.healthy() == healthy, what="the tree", timeout=timeout)
    namespace.delete("pods/a", "pods/b", "podgroups/leaf", "cpg/root")


@pytest.mark.usefixtures("pods")
def test_only_trees_in_listed_namespaces_are_placed(cluster: Cluster) -> None:
    """The same tree elsewhere gets no node, no condition and no finalizer."""
    ours, theirs = Namespace(cluster, OURS), Namespace(cluster, THEIRS)
    for namespace in (theirs, ours):
        namespace.put(*tree(), *(pod(name, group="leaf") for name in ("a", "b")))
    cluster.wait(lambda: all(ours.nodes()) and ours.healthy() == {"root": "True", "leaf": "True"}, what="a whole tree")
    assert len({node.rpartition("-")[0] for node in ours.nodes()}) == 1
    assert theirs.nodes() == ["", ""]
    for one in (*theirs.seen("cpg"), *theirs.seen("podgroups"), *theirs.seen("pods")):
        assert not one["metadata"].get("finalizers")
        told = one.get("status", {}).get("conditions", ())
        assert [condition for condition in told if condition["status"] != "Unknown"] == []  # written by the API server
    assert theirs.event_reasons() == set()
    ours.delete("pods/a", "pods/b", "podgroups/leaf", "cpg/root")
    theirs.delete("pods/a", "pods/b", "podgroups/leaf", "cpg/root")


@pytest.mark.usefixtures("pods")
def test_pods_elsewhere_take_room_and_are_never_evicted(cluster: Cluster) -> None:
    """The remaining room is used once; a pod of high priority preempts only pods of the listed namespaces."""
    ours, theirs = Namespace(cluster, OURS), Namespace(cluster, THEIRS)
    nodes = sorted(one["metadata"]["name"] for one in Namespace(cluster, "default").seen("nodes"))
    theirs.put(*(pod(f"there-{number}", node=node) for number, node in enumerate([*nodes, *nodes[:-1]])))
    ours.put(pod("first"), pod("second"))
    cluster.wait(lambda: any(ours.nodes()), what="a bind to the last room")
    cluster.wait(
        lambda: "FailedScheduling" in {one["reason"] for one in ours.seen("events.events.k8s.io")},
        what="the event",
    )
    assert sorted(ours.nodes()) == ["", nodes[-1]]
    ours.put(pod("urgent", priority="high"))
    cluster.wait(lambda: nodes[-1] in {one["spec"].get("nodeName") for one in named(ours, "urgent")}, what="its bind")
    assert len(theirs.seen("pods")) == 7
    assert len(ours.seen("pods")) == 2
    cluster.kubectl("delete", "pods", "--all", "-n", THEIRS, "--grace-period=0", "--force")
    cluster.kubectl("delete", "pods", "--all", "-n", OURS, "--grace-period=0", "--force")


def named(namespace: Namespace, name: str) -> list[Plain]:
    """Return the pod of a name, if it exists."""
    return [one for one in namespace.seen("pods") if one["metadata"]["name"] == name]


def test_the_way_out_is_for_the_same_namespaces(
    cluster: Cluster, release: ChartRelease, pods: list[PodProcess], tmp_path: Path
) -> None:
    """After an uninstall the groups of these namespaces are released; others' have never been held."""
    ours = Namespace(cluster, "more")
    ours.put(*tree())
    cluster.wait(lambda: all(one["metadata"].get("finalizers") for one in ours.seen("podgroups")), what="finalizers")
    operator = next(one for one in pods if "operator" in one.name)
    operator.process.terminate()
    assert operator.process.wait(20)
    (job,) = release.of_kind("Job")
    assert "released" in run_job(cluster.access, job, folder=tmp_path).process.output()
    ours.delete("podgroups/leaf", "cpg/root")
