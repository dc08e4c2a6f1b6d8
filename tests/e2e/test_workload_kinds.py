"""Deployments, StatefulSets, Jobs and a kind that the settings describe, on the oldest and the newest Kubernetes.

The real controllers of Kubernetes make the pods; those of the custom kind are made here, as its controller would.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.integrations.policy import REQUIRED
from cpg_api.scheduling.names import API_VERSION, GANG, SCHEDULER_NAME
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

Plain = dict[str, Any]
RACK = "topology.cpg.dev/rack"
NODES = "2 racks x 3 nodes, cpu=2"
ROLE = "fleets.example.com/role"
FLEET = {
    "group": "example.com",
    "version": "v1",
    "kind": "Fleet",
    "plural": "fleets",
    "roles": "crews",
    "roleLabel": ROLE,
    "size": "hands",
    "template": "pod",
}
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  names: {kind: Fleet, plural: fleets, singular: fleet}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
SECONDS = 60.0


@pytest.fixture(scope="module", params=["1.37", pytest.param("1.30", marks=pytest.mark.workloads)])
def cluster(
    request: pytest.FixtureRequest, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Run both processes on a cluster with two racks, each of three nodes with room for one pod."""
    nodes = (NodePool.parse(NODES),)
    spec = ClusterSpec(kubernetes=request.param, components=("controller-manager", "kwok"), nodes=nodes)
    with running(spec, install, tmp_path_factory) as started:
        yield started


@contextmanager
def running(spec: ClusterSpec, install: "Installer", folders: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run operator and scheduler with all kinds of Kubernetes and a custom one; fail where a request was forbidden.

    The garbage collector looks for new kinds every 30 s, so the controller manager starts after the CRDs.
    """
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    values = {"integrations": ["job", "deployment", "statefulset"], "customIntegrations": [FLEET]}
    with Cluster(spec) as started:
        started.stop_component("controller-manager")
        started.kubectl("apply", "-f", "-", input=CRD)
        release = install(started, {**values, "scheduler": process, "operator": process})
        started.start_component("controller-manager")
        with Deployments(started.access, release.deployments, folder=folders.mktemp("pods")) as deployed:
            yield started
            for (pod,) in deployed.pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()


@pytest.fixture
def space(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator["Space"]:
    """Return a namespace for a test."""
    with spaced(cluster, request.node.originalname.removeprefix("test_").replace("_", "-")) as found:
        yield found


@contextmanager
def spaced(cluster: Cluster, name: str) -> Iterator["Space"]:
    """Create a namespace; at the end all owners go, and their pods with them."""
    with BlockingClient(cluster.access) as client:
        found = Space(cluster, client, name[:50].rstrip("-"))
        yield found
        found.clear()


class Space:
    """A namespace, and what is in it."""

    def __init__(self, cluster: Cluster, client: BlockingClient, name: str) -> None:
        """Create it."""
        self._cluster, self._client, self._name = cluster, client, name
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def path(self, plural: str, name: str = "") -> str:
        """Return the path of a collection, or of an object."""
        group = GROUPS.get(plural, "apps/v1")
        base = f"/api/{group}" if group == "v1" else f"/apis/{group}"
        return f"{base}/namespaces/{self._name}/{plural}{'/' if name else ''}{name}"

    def create(self, plural: str, name: str, spec: Plain, *, rack: bool = False, **metadata: Any) -> Plain:
        """Create an object, whose pods are to be in one rack if its annotation says so."""
        notes = {"annotations": {REQUIRED: RACK}} if rack else {}
        kind = {"kind": "Fleet", "apiVersion": "example.com/v1"} if plural == "fleets" else {}
        return self._client.create(
            self.path(plural), {**kind, "metadata": {"name": name, **notes, **metadata}, "spec": spec}
        )

    def patch(self, plural: str, name: str, **spec: Any) -> None:
        """Change fields of the spec of an object."""
        self._client.merge(self.path(plural, name), {"spec": spec})

    def get(self, plural: str, name: str) -> Plain:
        """Return an object."""
        return self._client.get(self.path(plural, name))

    def items(self, plural: str) -> list[Plain]:
        """Return all objects of a kind."""
        found: list[Plain] = self._client.get(self.path(plural))["items"]
        return found

    def names(self, plural: str) -> set[str]:
        """Return the names of all objects of a kind."""
        return {one["metadata"]["name"] for one in self.items(plural)}

    def pods(self, app: str = "") -> list[Plain]:
        """Return the pods, or those with a label."""
        return [pod for pod in self.items("pods") if not app or pod["metadata"]["labels"].get("app") == app]

    def racks(self, app: str = "") -> list[str]:
        """Return the rack of each pod that has a node and has not finished."""
        found = [pod for pod in self.pods(app) if pod["status"].get("phase") not in {"Succeeded", "Failed"}]
        return [pod["spec"]["nodeName"].rsplit("-", 1)[0] for pod in found if "nodeName" in pod["spec"]]

    def waiting(self, app: str = "", reason: str = "Unschedulable") -> int:
        """Return how many pods wait for room, or for other pods."""
        conditions = (pod["status"].get("conditions", ()) for pod in self.pods(app))
        return sum(any(one.get("reason") == reason for one in found) for found in conditions)

    def minimum(self, group: str) -> int | None:
        """Return the minimum of a PodGroup, None for a basic one."""
        found: int | None = self.get("podgroups", group)["spec"]["schedulingPolicy"].get("gang", {}).get("minCount")
        return found

    def finish(self, count: int, *, forget: bool = False) -> None:
        """End running pods successfully, as a kubelet does, and delete them afterwards if they are to be forgotten."""
        ended = [pod["metadata"]["name"] for pod in self.pods() if pod["status"]["phase"] == "Running"][:count]
        assert len(ended) == count
        for name in ended:
            self._client.merge(f"{self.path('pods', name)}/status", {"status": {"phase": "Succeeded"}})
        if forget:
            self.wait(lambda: self._are_counted(ended), "the count of the finished pods")
            for name in ended:
                self.delete_pod(name)

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        self._client.delete(self.path("pods", name), grace=0)

    def _are_counted(self, names: list[str]) -> bool:
        return not any(self.get("pods", name)["metadata"].get("finalizers") for name in names)

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        self._cluster.wait(until, SECONDS, what)

    def wait_placed(self, count: int, app: str = "") -> None:
        """Wait until so many pods have a node."""
        self.wait(lambda: len(self.racks(app)) == count, f"{count} pods with a node")

    def clear(self) -> None:
        """Delete all owners, and wait for the end of their pods and groups."""
        for plural in ("deployments", "statefulsets", "jobs", "fleets", "pods"):
            self._cluster.kubectl("delete", plural, "--all", "--wait=false", "-n", self._name)
        self.wait(lambda: not (self.pods() or self.items("workloads") or self.items("podgroups")), "an empty namespace")


GROUPS = {
    "pods": "v1",
    "jobs": "batch/v1",
    "fleets": "example.com/v1",
    "workloads": API_VERSION,
    "podgroups": API_VERSION,
}


def template(app: str, *, opts_in: bool = True, **spec: object) -> Plain:
    """Return the template of pods that fill a node each."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
    labels = {"app": app} | ({GANG: "true"} if opts_in else {})
    pod = {"schedulerName": SCHEDULER_NAME, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"metadata": {"labels": labels}, "spec": pod}


def replicated(app: str, replicas: int, *, opts_in: bool = True, **spec: object) -> Plain:
    """Return the spec of a Deployment or a StatefulSet."""
    selector = {"matchLabels": {"app": app}}
    return {"replicas": replicas, "selector": selector, "template": template(app, opts_in=opts_in), **spec}


def stateful(app: str, replicas: int, policy: str = "Parallel", *, opts_in: bool = True) -> Plain:
    """Return the spec of a StatefulSet."""
    return replicated(app, replicas, opts_in=opts_in, serviceName=app, podManagementPolicy=policy)


def indexed(parallelism: int, completions: int) -> Plain:
    """Return the spec of an Indexed Job."""
    sizes = {"parallelism": parallelism, "completions": completions, "completionMode": "Indexed"}
    return {**sizes, "template": template("train", opts_in=False, restartPolicy="Never")}


def test_a_rollout_of_a_deployment(space: Space) -> None:
    """It ends as without groups, and each ReplicaSet has one. The annotation of the Deployment reaches both."""
    space.create("deployments", "web", replicated("web", 2), rack=True)
    space.create("deployments", "plain", replicated("plain", 1, opts_in=False))
    space.wait_placed(3)
    assert len(set(space.racks("web"))) == 1
    first = {one for one in space.names("replicasets") if one.startswith("web-")}
    space.patch("deployments", "web", template={"metadata": {"annotations": {"version": "2"}}})

    def is_complete() -> bool:
        status = space.get("deployments", "web").get("status", {})
        seen = [status.get(name) for name in ("observedGeneration", "updatedReplicas", "replicas")]
        return seen == [2, 2, 2]

    space.wait(lambda: is_complete() and len(space.racks("web")) == 2, "the end of the rollout")
    assert len(set(space.racks("web"))) == 1
    both = {one for one in space.names("replicasets") if one.startswith("web-")}
    assert len(first) == 1
    assert len(both) == 2
    assert space.names("podgroups") == {f"replicaset.{name}.pods" for name in both}
    assert {space.minimum(name) for name in space.names("podgroups")} == {None}


def test_a_parallel_stateful_set_is_a_gang(space: Space) -> None:
    """One that does not fit waits as a whole, and is placed once it is smaller."""
    space.create("statefulsets", "db", stateful("db", 3), rack=True)
    space.wait_placed(3, "db")
    assert len(set(space.racks("db"))) == 1
    space.create("statefulsets", "late", stateful("late", 4))
    space.wait(lambda: space.waiting("late") == 4, "four pods that wait")
    assert space.racks("late") == []
    space.patch("statefulsets", "late", replicas=3)
    space.wait_placed(3, "late")
    assert space.names("podgroups") == {"statefulset.db.pods", "statefulset.late.pods"}
    assert {space.minimum(name) for name in space.names("podgroups")} == {3}


def test_a_stateful_set_in_order(space: Space) -> None:
    """Each pod is created when the one before it is ready, so the minimum is 1."""
    space.create("statefulsets", "db", stateful("db", 3, "OrderedReady"), rack=True)
    space.wait_placed(3)
    assert len(set(space.racks())) == 1
    assert space.minimum("statefulset.db.pods") == 1


def test_a_running_stateful_set_opts_in(space: Space) -> None:
    """Its pods are replaced one by one, while those of the old template are in no group; then all are a gang."""
    space.create("statefulsets", "db", stateful("db", 3, opts_in=False))
    space.wait_placed(3)
    assert space.names("podgroups") == set()
    space.patch("statefulsets", "db", template={"metadata": {"labels": {GANG: "true"}}})

    def has_opted_in() -> bool:
        return all(GANG in pod["metadata"]["labels"] for pod in space.pods()) and len(space.racks()) == 3

    space.wait(has_opted_in, "the end of the rollout")
    space.wait(lambda: space.minimum("statefulset.db.pods") == 3, "the minimum of the gang")


@pytest.mark.parametrize("forget", [False, True], ids=["kept", "deleted"])
def test_a_job_runs_to_its_end(cluster: Cluster, forget: bool) -> None:  # noqa: FBT001
    """The last pods are fewer than its minimum, and are placed, whether finished pods still exist or not."""
    with spaced(cluster, f"end-{forget}".lower()) as space:
        space.create("jobs", "train", indexed(3, 5))
        for running_now, ended in ((3, 3), (2, 1), (1, 1)):
            space.wait(partial(is_running, space, running_now), f"{running_now} running pods")
            space.finish(ended, forget=forget)
        space.wait(lambda: space.get("jobs", "train")["status"].get("succeeded") == 5, "the end of the Job")


def is_running(space: Space, count: int) -> bool:
    """Return whether so many pods run."""
    return len([pod for pod in space.pods() if pod["status"]["phase"] == "Running"]) == count


def test_a_pod_that_starts_again_when_finished_ones_are_gone(space: Space) -> None:
    """As after the loss of a node with finished pods: the one that is left is placed alone."""
    space.create("jobs", "train", indexed(3, 3))
    space.wait(partial(is_running, space, 3), "three running pods")
    space.finish(2, forget=True)
    (left,) = space.pods()
    space.delete_pod(left["metadata"]["name"])
    space.wait(partial(is_again, space, left), "another pod that runs")


def is_again(space: Space, before: Plain) -> bool:
    """Return whether another pod runs in the place of one."""
    found = [pod for pod in space.pods() if pod["status"]["phase"] == "Running"]
    return bool([pod for pod in found if pod["metadata"]["uid"] != before["metadata"]["uid"]])


def test_a_job_is_suspended_resized_and_resumed(space: Space) -> None:
    """Its minimum follows its parallelism, also while it has no pods."""
    space.create("jobs", "train", indexed(2, 2), rack=True)
    space.wait_placed(2)
    space.patch("jobs", "train", parallelism=3, completions=3)
    space.wait_placed(3)
    assert len(set(space.racks())) == 1
    space.wait(lambda: space.minimum("job.train.pods") == 3, "the minimum of the gang")
    space.patch("jobs", "train", suspend=True)
    space.wait(lambda: not space.racks(), "the end of the pods")
    space.patch("jobs", "train", parallelism=4, completions=4)
    space.wait(lambda: space.minimum("job.train.pods") == 4, "the minimum of the gang")
    space.patch("jobs", "train", suspend=False)
    space.wait(lambda: space.waiting() == 4, "four pods that do not fit into a rack")
    assert space.racks() == []
    space.patch("jobs", "train", parallelism=3, completions=3)
    space.wait_placed(3)


def test_a_suspended_job_has_no_groups(space: Space) -> None:
    """Thousands may wait in a queue."""
    space.create("jobs", "train", {**indexed(2, 2), "suspend": True})
    space.create("jobs", "other", indexed(2, 2))
    space.wait_placed(2)
    assert space.names("workloads") == {"job.other"}
    space.patch("jobs", "train", suspend=False)
    space.wait_placed(4)


def test_a_custom_kind(space: Space) -> None:
    """Its pods wait for each other by role, and go to one rack. One that it does not control is in no group."""
    crews = [{"name": name, "hands": hands, "pod": template("fleet")} for name, hands in (("pilot", 1), ("sailor", 2))]
    fleet = space.create("fleets", "armada", {"crews": crews}, rack=True)
    for number, role in enumerate(("pilot", "sailor")):
        create_member(space, fleet, number, role)
    space.wait(lambda: space.waiting(reason="WaitingForGroup") == 2, "two pods that wait for the third")
    assert space.racks() == []
    create_member(space, fleet, 2, "sailor")
    space.wait_placed(3)
    assert len(set(space.racks())) == 1
    assert space.names("podgroups") == {"fleet.armada.pilot", "fleet.armada.sailor"}
    assert space.minimum("fleet.armada.sailor") == 2
    create_member(space, None, 3, "sailor")
    space.wait_placed(4)


def create_member(space: Space, owner: Plain | None, number: int, role: str) -> None:
    """Create a pod, of an owner as its controller would."""
    references = []
    if owner is not None:
        meta, kind = owner["metadata"], {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        references.append({**kind, "name": meta["name"], "uid": meta["uid"], "controller": True})
    pod = template("fleet", opts_in=False)["spec"]
    space.create("pods", f"p-{number}", pod, labels={"app": "fleet", ROLE: role}, ownerReferences=references)


def test_jobs_that_kubernetes_groups(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> None:
    """With its gate of 1.37, pods name a built-in group, with or without a scheduling of the Job; we make none."""
    spec = ClusterSpec(
        gates="native",
        further_gates=("WorkloadWithJob",),
        components=("controller-manager", "kwok"),
        nodes=(NodePool.parse(NODES),),
    )
    with running(spec, install, tmp_path_factory) as cluster, spaced(cluster, "native") as space:
        gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        space.create("jobs", "plain", indexed(2, 2))
        space.create("jobs", "gang", {**indexed(2, 2), "scheduling": gang})
        space.wait_placed(4)
        assert all(pod["spec"].get("schedulingGroup") for pod in space.pods())
        assert space.names("workloads") == space.names("podgroups") == set()
