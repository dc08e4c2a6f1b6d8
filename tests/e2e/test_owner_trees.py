"""Trees of owners that change, with the real controllers of JobSets and LeaderWorkerSets, in either flavour."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.integrations.policy import MIN_GROUPS, REPLICA_BY, REPLICA_REQUIRED, REQUIRED
from cpg_api.scheduling.names import EVENT_TREE_REMOVED, EVENT_TREE_REPLACED, SCHEDULER_NAME
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

RACK, BLOCK = "topology.cpg.dev/rack", "topology.cpg.dev/block"
NODES = "2 blocks x 2 racks x 3 nodes, cpu=8"
PATIENCE = 60.0
INTEGRATIONS = ["jobset", "leaderworkerset", "raycluster", "job"]
Plain = dict[str, Any]
POD: Plain = {
    "schedulerName": SCHEDULER_NAME,
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
}


@pytest.fixture(scope="module", params=["native", "crd"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Run on the built-in API alone, and with our own."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def cluster(flavour: str, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with both processes of the chart; the controller manager starts after all CRDs."""
    spec = ClusterSpec(
        gates="native" if flavour == "native" else "default",
        components=("kwok",),
        workloads=("jobset", "lws", "ray"),
        nodes=(NodePool.parse(NODES),),
    )
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    values: Plain = {"integrations": INTEGRATIONS, "scheduler": process, "operator": process}
    if flavour == "native":
        values["crds"] = {"install": False}
    with Cluster(spec) as running:
        running.stop_component("controller-manager")
        release = install(running, values)
        running.start_component("controller-manager")
        with Deployments(running.access, release.deployments, folder=tmp_path_factory.mktemp("pods")) as deployed:
            yield running
            for (pod,) in deployed.pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()
                assert "write refused" not in pod.process.output()


class Space:
    """A namespace."""

    def __init__(self, cluster: Cluster, flavour: str, name: str) -> None:
        """Create it."""
        self._cluster, self._name = cluster, name
        self._group = "scheduling.k8s.io" if flavour == "native" else "scheduling.cpg.dev"
        cluster.kubectl("create", "namespace", name)

    def kubectl(self, *arguments: str, body: Plain | None = None) -> str:
        """Run kubectl in this namespace."""
        return self._cluster.kubectl("-n", self._name, *arguments, input=json.dumps(body) if body else None).stdout

    def apply(self, kind: str, version: str, spec: Plain, **annotations: str) -> None:
        """Apply an owner ``train``."""
        meta = {"name": "train", "annotations": annotations}
        self.kubectl("apply", "-f", "-", body={"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})

    def items(self, kind: str) -> dict[str, Plain]:
        """Return the objects of a kind by name."""
        found = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return {one["metadata"]["name"]: one for one in found}

    def groups(self) -> dict[str, Plain]:
        """Return all groups by name."""
        return {
            name: one
            for plural in ("compositepodgroups", "podgroups")
            for name, one in self.items(f"{plural}.{self._group}").items()
        }

    def workloads(self) -> dict[str, Plain]:
        """Return all Workloads by name."""
        return self.items(f"workloads.{self._group}")

    def nodes(self) -> dict[str, str]:
        """Return the node of each pod that has one, by the UID of the pod."""
        pods = self.items("pods").values()
        return {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in pods if "nodeName" in one["spec"]}

    def reasons(self) -> set[str]:
        """Return the reasons of all events of owners."""
        found = json.loads(self.kubectl("get", "events", "-o", "json"))["items"]
        return {one["reason"] for one in found if one["involvedObject"]["name"] == "train"}

    def wait(self, what: str, wanted: Any, read: Any) -> None:  # noqa: ANN401  # any state
        """Wait until a state is as wanted."""
        try:
            self._cluster.wait(lambda: read() == wanted, PATIENCE, what)
        except Exception as error:
            raise AssertionError(f"{what}: {read()} is not {wanted}; {self.reasons()}") from error

    def wait_placed(self, count: int) -> dict[str, str]:
        """Wait until so many pods have a node; return their nodes."""
        self.wait("pods with nodes", count, lambda: len(self.nodes()))
        return self.nodes()


@pytest.fixture
def space(cluster: Cluster, flavour: str, request: pytest.FixtureRequest) -> Space:
    """Return an empty namespace."""
    name: str = request.node.originalname.replace("_", "-")[:50].strip("-")
    return Space(cluster, flavour, name)


def jobset(*names: str, replicas: int = 2, size: int = 2) -> Plain:
    """Return the spec of a JobSet with these replicated jobs."""
    template = {"spec": {**POD, "restartPolicy": "Never"}}
    job = {"spec": {"parallelism": size, "completions": size, "template": template}}
    return {"replicatedJobs": [{"name": name, "replicas": replicas, "template": job} for name in names]}


def lws(*, replicas: int = 2, size: int = 2, pod: Mapping[str, Any] = POD) -> Plain:
    """Return the spec of a LeaderWorkerSet."""
    return {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": dict(pod)}}}


JOBSET, LWS = ("JobSet", "jobset.x-k8s.io/v1alpha2"), ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")


RAY, JOB = ("RayCluster", "ray.io/v1"), ("Job", "batch/v1")


def ray(*workers: str) -> Plain:
    """Return the spec of a RayCluster with these groups of two workers."""
    template = {"rayStartParams": {}, "template": {"spec": POD}}
    sizes = {"replicas": 2, "minReplicas": 2, "maxReplicas": 2}
    groups = [{"groupName": name, **sizes, **template} for name in workers]
    return {"rayVersion": "2.46.0", "headGroupSpec": template, "workerGroupSpecs": groups}


def minimums(space: Space) -> dict[str, int]:
    """Return the minimum of each gang."""
    gangs = {name: one["spec"]["schedulingPolicy"].get("gang") for name, one in space.groups().items()}
    return {name: next(iter(gang.values())) for name, gang in gangs.items() if gang}


def test_a_jobset_gets_its_tree(space: Space) -> None:
    """Its replicas are in a rack each, and all in one block."""
    annotations = {REQUIRED: BLOCK, REPLICA_REQUIRED: RACK, REPLICA_BY: "job-index"}
    space.apply(*JOBSET, jobset("driver", "workers"), **annotations)
    nodes = space.wait_placed(8)
    assert len({node.split("-")[1] for node in nodes.values()}) == 1
    assert minimums(space) == {
        "jobset.train.root": 2,
        **{f"jobset.train.replica.{i}": 2 for i in (0, 1)},
        **{f"jobset.train.{role}.{i}": 2 for role in ("driver", "workers") for i in (0, 1)},
    }


def test_a_job_gets_its_gang(space: Space) -> None:
    """It has one group, without a number."""
    spec = jobset("pods")["replicatedJobs"][0]["template"]["spec"] | {"completionMode": "Indexed"}
    space.apply(*JOB, spec, **{REQUIRED: RACK})
    nodes = space.wait_placed(2)
    assert len({node.rsplit("-", 1)[0] for node in nodes.values()}) == 1
    assert minimums(space) == {"job.train.pods": 2}


def test_a_raycluster_gets_another_group_of_workers(space: Space) -> None:
    """Its pods stay, and those of the new group are placed."""
    space.apply(*RAY, ray("cpu"))
    before = space.wait_placed(3)
    tree = {"raycluster.train.root": 2, "raycluster.train.headgroup": 1, "raycluster.train.cpu": 2}
    assert minimums(space) == tree
    space.apply(*RAY, ray("cpu", "gpu"))
    after = space.wait_placed(5)
    assert before.items() <= after.items()
    space.wait("the larger tree", 5, lambda: len(placed(space)) + 1)
    assert minimums(space) == tree | {"raycluster.train.root": 3, "raycluster.train.gpu": 2}


def test_another_shape_leaves_running_pods_alone(space: Space) -> None:
    """A new annotation of a running JobSet: the groups are new, the pods are not."""
    space.apply(*JOBSET, jobset("workers"))
    nodes = space.wait_placed(4)
    (before,), old = space.workloads().values(), space.groups()
    space.kubectl("annotate", "jobset", "train", f"{REPLICA_BY}=job-index", f"{REQUIRED}={BLOCK}")
    names = {"jobset.train.root", *(f"jobset.train.{what}.{i}" for what in ("replica", "workers") for i in (0, 1))}
    space.wait("the new groups", names, lambda: set(space.groups()))
    space.wait("new groups of the same name", set(), lambda: uids(old) & uids(space.groups()))
    (after,) = space.workloads().values()
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert space.nodes() == nodes
    assert EVENT_TREE_REPLACED in space.reasons()
    space.wait("the new groups count as placed", names, partial(placed, space))
    space.kubectl("delete", "jobset", "train")
    space.wait("the end of the tree", ({}, {}), lambda: (space.groups(), space.workloads()))


def placed(space: Space) -> set[str]:
    """Return the names of the groups whose minimum is placed."""
    return {
        name
        for name, one in space.groups().items()
        for condition in one.get("status", {}).get("conditions", ())
        if condition["type"].endswith("InitiallyScheduled") and condition["status"] == "True"
    }


def test_a_tree_that_waits_is_placed_by_another_annotation(space: Space) -> None:
    """Its pods are the same; they find their new groups by name."""
    space.apply(*JOBSET, jobset("workers", replicas=4, size=8), **{REQUIRED: RACK})
    space.wait("waiting pods", 32, lambda: len(space.items("pods")))
    pods = set(space.items("pods"))
    space.wait("all groups", 6, lambda: len(space.groups()))
    assert space.nodes() == {}
    space.kubectl("annotate", "--overwrite", "jobset", "train", f"{REQUIRED}={BLOCK}")
    nodes = space.wait_placed(32)
    assert len({node.split("-")[1] for node in nodes.values()}) == 1
    assert set(space.items("pods")) == pods


def test_a_suspended_jobset_keeps_its_tree_until_it_resumes(space: Space) -> None:
    """What was changed meanwhile counts from then on."""
    space.apply(*JOBSET, jobset("workers"))
    space.wait_placed(4)
    before = uids(space.groups())
    space.kubectl("patch", "jobset", "train", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    space.wait("the end of the pods", {}, partial(space.items, "pods"))
    space.kubectl("annotate", "jobset", "train", f"{REPLICA_BY}=job-index", f"{REPLICA_REQUIRED}={RACK}")
    assert uids(space.groups()) == before
    space.kubectl("patch", "jobset", "train", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    space.wait("new groups", set(), lambda: before & uids(space.groups()))
    space.wait_placed(4)
    space.wait("the tree by index", 5, lambda: len(placed(space)))


def uids(objects: Mapping[str, Plain]) -> set[str]:
    """Return the UIDs of some objects."""
    return {one["metadata"]["uid"] for one in objects.values()}


def test_sizes_follow_the_owner(space: Space) -> None:
    """Replicas, the size of each, and the minimum of the root, which the built-in API cannot change."""
    space.apply(*LWS, lws(), **{MIN_GROUPS: "1"})
    space.wait_placed(4)
    assert minimums(space) == {"lws.train.root": 1, "lws.train.replica.0": 2, "lws.train.replica.1": 2}
    root = space.groups()["lws.train.root"]["metadata"]["uid"]
    (workload,) = space.workloads().values()
    space.apply(*LWS, lws(replicas=3), **{MIN_GROUPS: "3"})
    wanted = {"lws.train.root": 3, **{f"lws.train.replica.{i}": 2 for i in (0, 1, 2)}}
    space.wait("the minimums", wanted, partial(minimums, space))
    space.wait_placed(6)
    space.apply(*LWS, lws(replicas=1), **{MIN_GROUPS: "1"})
    space.wait("one replica", {"lws.train.root": 1, "lws.train.replica.0": 2}, partial(minimums, space))
    assert uids(space.workloads()) == {workload["metadata"]["uid"]}
    assert (space.groups()["lws.train.root"]["metadata"]["uid"] == root) == ("cpg.dev" in workload["apiVersion"])


def test_an_orphaned_tree_is_removed(space: Space) -> None:
    """The owner goes without its dependents: its Workload and its groups go too, and its pods stay."""
    space.apply(*JOBSET, jobset("workers", replicas=1))
    nodes = space.wait_placed(2)
    space.kubectl("delete", "jobset", "train", "--cascade=orphan")
    space.wait("the end of the tree", ({}, {}), lambda: (space.groups(), space.workloads()))
    assert space.nodes() == nodes


def test_an_owner_that_opts_out_loses_its_tree(space: Space) -> None:
    """Its new pods name another scheduler; the old ones end as it rolls them."""
    space.apply(*LWS, lws(replicas=1))
    space.wait_placed(2)
    space.apply(*LWS, lws(replicas=1, pod=POD | {"schedulerName": "other"}))
    space.wait("the end of the tree", ({}, {}), lambda: (space.groups(), space.workloads()))
    assert EVENT_TREE_REMOVED in space.reasons()
    space.apply(*LWS, lws(replicas=1))
    space.wait_placed(2)
