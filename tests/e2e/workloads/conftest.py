"""One cluster for each version of Kubernetes, with the workload controllers, our operator and our scheduler.

Each test has a namespace of its own, and the nodes for itself: 2 blocks of 2 racks of 3 nodes, each with room for two
pods of ``worker``.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.integrations.registry import OWNERS
from cpg_api.scheduling.names import API_VERSION, SCHEDULER_NAME
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import WORKLOADS, ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

TIMEOUT_SECONDS = 60.0
NODES = "2 blocks x 2 racks x 3 nodes, cpu=4"
PATHS = {
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "RayJob": "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
    "Admission": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads",
    "Event": "/api/v1/namespaces/{}/events",
    "Workload": f"/apis/{API_VERSION}/namespaces/{{}}/workloads",
    "PodGroup": f"/apis/{API_VERSION}/namespaces/{{}}/podgroups",
    "CompositePodGroup": f"/apis/{API_VERSION}/namespaces/{{}}/compositepodgroups",
}
OWNER_KINDS = ("JobSet", "LeaderWorkerSet", "RayJob", "RayCluster", "Job")
Plain = dict[str, Any]


@pytest.fixture(scope="session", params=["1.37", "1.30"])
def cluster(request: pytest.FixtureRequest, install: "Installer") -> Iterator[Cluster]:
    """Run all controllers on the newest and the oldest version.

    The garbage collector looks for new kinds every 30 s, so the controller manager starts again after our CRDs.
    """
    spec = ClusterSpec(
        kubernetes=request.param,
        components=("kwok",),
        workloads=WORKLOADS,
        nodes=(NodePool.parse(NODES), NodePool.parse("1 node, name=other, taint lab=other:NoSchedule")),
    )
    with Cluster(spec) as running:
        running.stop_component("controller-manager")
        install(running, {"scheduler": {"enabled": False}, "operator": {"enabled": False}})
        running.start_component("controller-manager")
        yield running


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the cluster."""
    with BlockingClient(cluster.access) as connected:
        yield connected


class Part:
    """The operator or the scheduler of the chart: one process, which can be stopped and started."""

    def __init__(self, start: Callable[[], Deployments]) -> None:
        """Start nothing yet."""
        self._start = start
        self._stack = ExitStack()
        self._logs: list[Path] = []

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        ((pod,),) = self._stack.enter_context(self._start()).pods.values()
        self._logs.append(pod.process.log)

    def stop(self) -> None:
        """Stop the process."""
        self._stack.close()

    def check(self) -> None:
        """Fail if a request was forbidden, or a step failed."""
        for log in self._logs:
            text = log.read_text()
            for mark in ("forbidden: User", "reconcile failed", "attempt failed"):
                assert mark not in text, log


@pytest.fixture(scope="session")
def processes(
    cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Part]]:
    """Run operator and scheduler with all integrations."""
    one: Plain = {"replicas": 1, "settings": {"leaderElect": False}}
    release = install(cluster, {"integrations": list(OWNERS), "scheduler": one, "operator": one})

    def part(deployment: Plain) -> Part:
        folder = tmp_path_factory.mktemp(deployment["metadata"]["name"])
        return Part(lambda: Deployments(cluster.access, [deployment], folder=folder))

    parts = {each["metadata"]["labels"]["app.kubernetes.io/component"]: part(each) for each in release.deployments}
    try:
        for each in parts.values():
            each.start()
        yield parts
    finally:
        for each in parts.values():
            each.stop()
    for each in parts.values():
        each.check()


class Space:
    """A namespace."""

    def __init__(self, cluster: Cluster, client: BlockingClient, name: str) -> None:
        """Create it."""
        self.name = name
        self._cluster, self._client = cluster, client
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})

    @staticmethod
    def worker(cpu: str = "2", **spec: object) -> Plain:
        """Return a template of pods for our scheduler; two of them fill a node."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        pod: Plain = {"schedulerName": SCHEDULER_NAME, "terminationGracePeriodSeconds": 0, "containers": [container]}
        return {"spec": pod | spec}

    def create(
        self,
        kind: str,
        name: str,
        spec: Plain,
        *,
        labels: Mapping[str, str] | None = None,
        others: Mapping[str, str] | None = None,
        **annotations: str,
    ) -> None:
        """Create an object, with annotations of others and of ours; underscores in our names stand for hyphens."""
        ours = dict(others or {}) | {
            f"scheduling.cpg.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
        }
        api = PATHS[kind].removeprefix("/apis/").removeprefix("/api/").partition("/namespaces/")[0]
        body: Plain = {"apiVersion": api, "kind": kind, "metadata": {"name": name, "annotations": ours}, "spec": spec}
        body["metadata"]["labels"] = dict(labels or {})
        self._client.create(self._path(kind), body)

    def change(self, kind: str, name: str, **spec: object) -> None:
        """Change fields of the spec."""
        self._client.merge(self._path(kind, name), {"spec": spec})

    def read(self, kind: str, name: str) -> Plain:
        """Return an object."""
        return self._client.get(self._path(kind, name))

    def items(self, kind: str) -> list[Plain]:
        """Return all objects of a kind."""
        found: list[Plain] = self._client.get(self._path(kind))["items"]
        return found

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self._client.delete(self._path(kind, name))

    def end(self, phase: str, *pods: Plain) -> None:
        """End pods, as a kubelet does."""
        for pod in pods:
            self._client.merge(f"{self._path('Pod', pod['metadata']['name'])}/status", {"status": {"phase": phase}})

    def count_restart(self, pod: Plain) -> None:
        """Report a restart of the container of a pod."""
        statuses = [{**pod["status"]["containerStatuses"][0], "restartCount": 1}]
        path = f"{self._path('Pod', pod['metadata']['name'])}/status"
        self._client.merge(path, {"status": {"containerStatuses": statuses}})

    def pods(self, **labels: str) -> list[Plain]:
        """Return the pods that have not ended, in order of their names; some labels of Kubernetes may select them."""
        wanted = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
        found = [
            pod
            for pod in self.items("Pod")
            if pod["status"]["phase"] not in {"Failed", "Succeeded"}
            and all(self.suffix_value(pod, key) == value for key, value in wanted.items())
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def running(self, count: int, **labels: str) -> list[Plain]:
        """Wait until there are so many pods and all of them run, and return them; no condition says otherwise."""
        found: list[Plain] = []

        def run() -> bool:
            found[:] = self.pods(**labels)
            return len(found) == count and all(map(is_running, found))

        self.wait(run, lambda: f"{count} running pods instead of {[*map(summary, found)]}")
        assert not [summary(pod) for pod in found if "False" in {each["status"] for each in conditions(pod)}]
        return found

    def waiting(self, count: int, reason: str = "Unschedulable", **labels: str) -> list[Plain]:
        """Wait until there are so many pods, and our scheduler has found for each that it must wait."""
        found: list[Plain] = []

        def wait() -> bool:
            found[:] = self.pods(**labels)
            return len(found) == count and all(reason in reasons(pod) for pod in found)

        self.wait(wait, lambda: f"{count} waiting pods instead of {[*map(summary, found)]}")
        assert not any("nodeName" in pod["spec"] for pod in found)
        return found

    @staticmethod
    def suffix_value(pod: Plain, suffix: str) -> str | None:
        """Return the value of the label whose key ends with this."""
        labels: Mapping[str, str] = pod["metadata"].get("labels", {})
        return next((value for key, value in labels.items() if key.rpartition("/")[2] == suffix), None)

    @staticmethod
    def racks(pods: list[Plain], label: str = "") -> dict[str | None, set[str]]:
        """Return the racks of the pods for each value of a label: ``1-2`` is the second rack of the first block."""
        found: dict[str | None, set[str]] = {}
        for pod in pods:
            place = pod["spec"]["nodeName"].removeprefix("node-").rpartition("-")[0]
            found.setdefault(Space.suffix_value(pod, label), set()).add(place)
        return found

    @staticmethod
    def counts(pods: list[Plain], *labels: str) -> Counter[str]:
        """Return how many pods have each combination of values of labels."""
        return Counter(" ".join(Space.suffix_value(pod, label) or "-" for label in labels) for pod in pods)

    def leaves(self) -> dict[str, int]:
        """Return the minimum of each PodGroup; a basic one has 0."""
        return {one["metadata"]["name"]: minimum(one, "minCount") for one in self.items("PodGroup")}

    def has_leaves(self, minimums: Mapping[str, int]) -> bool:
        """Return whether there are just these PodGroups."""
        return self.leaves() == minimums

    def composites(self) -> dict[str, int]:
        """Return the minimum of each CompositePodGroup; a basic one has 0."""
        return {one["metadata"]["name"]: minimum(one, "minGroupCount") for one in self.items("CompositePodGroup")}

    def uids(self) -> set[str]:
        """Return the UIDs of all groups."""
        return {one["metadata"]["uid"] for kind in ("PodGroup", "CompositePodGroup") for one in self.items(kind)}

    def wait(self, until: Callable[[], bool], what: Callable[[], str] | str) -> None:
        """Wait until a condition holds; an error says what was there instead."""
        try:
            self._cluster.wait(until, TIMEOUT_SECONDS, "it")
        except Exception as error:
            error.add_note(what if isinstance(what, str) else what())
            for event in self.items("Event")[-20:]:
                error.add_note(f"{event['involvedObject']['name']}: {event['reason']}: {event['message']}")
            raise

    def clear(self) -> None:
        """Delete all owners, and wait until the garbage collector has removed all groups and pods."""
        for kind in OWNER_KINDS:
            for one in self.items(kind):
                if not one["metadata"].get("ownerReferences"):
                    self._client.delete(self._path(kind, one["metadata"]["name"]), propagation="Background")
        for one in self.items("Pod"):
            if not one["metadata"].get("ownerReferences"):
                self.delete("Pod", one["metadata"]["name"])
        left = ("Pod", "Workload", "PodGroup", "CompositePodGroup")
        self.wait(lambda: not any(map(self.items, left)), f"the end of all objects in {self.name}")

    def _path(self, kind: str, name: str = "") -> str:
        return "/".join(filter(None, (PATHS[kind].format(self.name), name)))


def is_running(pod: Plain) -> bool:
    """Return whether a pod runs and is not being deleted."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def conditions(pod: Plain) -> list[Plain]:
    """Return the conditions of a pod."""
    found: list[Plain] = pod["status"].get("conditions", [])
    return found


def reasons(pod: Plain) -> set[str]:
    """Return the reasons of the conditions of a pod."""
    return {each.get("reason", "") for each in conditions(pod)}


def summary(pod: Plain) -> str:
    """Return a line about a pod."""
    metadata = pod["metadata"]
    end = " terminating" if "deletionTimestamp" in metadata else ""
    messages = [
        f"{each['type']} {each['status']}: {each['message']}" for each in conditions(pod) if each.get("message")
    ]
    return f"{metadata['name']} {pod['status']['phase']}{end} on {pod['spec'].get('nodeName')} {messages}"


def minimum(group: Plain, field: str) -> int:
    """Return the minimum of a gang, or 0."""
    policy = group["spec"]["schedulingPolicy"]
    return int(policy["gang"][field]) if policy.get("gang") else 0


@pytest.fixture
def space(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    client: BlockingClient,
    processes: dict[str, Part],
) -> Iterator[Space]:
    """Return a namespace; at the end it is empty, and no pod takes room."""
    del processes
    words = re.findall(r"[a-z0-9]+", request.node.name.lower().removeprefix("test_"))
    name = f"{'-'.join(words)[:50]}-{zlib.crc32(request.node.name.encode()):x}"
    made = Space(cluster, client, name)
    yield made
    made.clear()
