"""What a user with the role `view` in one namespace, and no rights on nodes, reads in the status of groups.

Both processes of the chart run. Pods need no kubelet, because the tests end with their binds.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.scheduling.attempts import MAX_ATTEMPT_BYTES
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
REF = {"workloadName": "train", "templateName": "t"}
SECONDS_OF_RETRIES = 30.0
DESCRIBED = """
  Attempt:
    Blocked At:
      Kind:       PodGroup
      Minimum:    2
      Name:       train-workers
      Scheduled:  1
    Domains:
      Closest:
        Domain:  rack-1
        Fits:    1
        Nodes:   2
        Reasons:
          Nodes:   1
          Text:    Insufficient cpu
        Shortage:  1
        Wanted:    2
        Domain:    rack-2
        Fits:      1
        Nodes:     2
        Reasons:
          Nodes:   1
          Text:    Insufficient cpu
        Shortage:  1
        Wanted:    2
      Considered:  2
      Key:         topology.cpg.dev/rack
    Finding:       Impossible
    Next Step:
      Count:   1
      Domain:  rack-1
      Kind:    PodGroup
      Name:    train-workers
      Remedy:  MakeRoom
      Text:    make room for 1 more pod in rack-1
"""
Plain = dict[str, Any]


class User:
    """Creates trees as an administrator, and reads them as a user with the role `view`."""

    def __init__(self, cluster: Cluster, client: BlockingClient, log: Path) -> None:
        """Start without trees; ``log`` is that of the scheduler."""
        self.cluster, self.client, self._log = cluster, client, log

    def create_tree(self, name: str, pods: int, **leaf: object) -> None:
        """Create a root with a gang of pods, each of which takes a node, in one rack."""
        policy = {"gang": {"minGroupCount": 1}}
        self._create_group("CompositePodGroup", name, {"workloadRef": REF, "schedulingPolicy": policy})
        spec = {
            "parentCompositePodGroupName": name,
            "workloadRef": REF,
            "schedulingPolicy": {"gang": {"minCount": pods}},
            "schedulingConstraints": {"topology": [{"key": RACK}]},
            **leaf,
        }
        self._create_group("PodGroup", f"{name}-workers", spec)
        for number in range(pods):
            self.create_pod(f"{name}-{number}", f"{name}-workers")

    def create_pod(self, name: str, group: str = "", **spec: object) -> None:
        """Create a pod that takes a node."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
        meta = {"name": name, "labels": {"scheduling.cpg.dev/pod-group": group} if group else {}}
        body = {"schedulerName": SCHEDULER_NAME, "containers": [container], **spec}
        self.client.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": body})

    def _create_group(self, kind: str, name: str, spec: Plain) -> None:
        group = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.client.create(f"/apis/{API_VERSION}/namespaces/default/{kind.lower()}s", group)

    def delete_trees(self) -> None:
        """Delete all groups and pods."""
        kinds = "compositepodgroups.scheduling.cpg.dev,podgroups.scheduling.cpg.dev,pods"
        self.cluster.kubectl("delete", kinds, "--all", "--grace-period=0", "--force", "--wait=false")

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """Return the output of kubectl for the user."""
        return self.cluster.kubectl(*arguments, "--as=viewer", check=check).stdout

    def attempt(self, kind: str, name: str) -> Plain:
        """Return what the user sees of the last attempt."""
        found: Plain = msgspec.json.decode(self.kubectl("get", kind, name, "-o", "json"))
        attempt: Plain = found["status"].get("attempt", {})
        return attempt

    def await_finding(self, kind: str, name: str, finding: str) -> Plain:
        """Return the last attempt when it has a finding."""
        self.cluster.wait(
            lambda: self.attempt(kind, name).get("finding") == finding, what=f"the finding {finding} of {name}"
        )
        return self.attempt(kind, name)

    def attempts(self, root: str) -> int:
        """Return how often a tree has been attempted."""
        lines = [line for line in self._log.read_text().splitlines() if f"/{root}" in line and line.endswith("}")]
        return sum(msgspec.json.decode(line)["event"] == "attempt" for line in lines)

    def status_writes(self, name: str) -> int:
        """Return how often the scheduler has written the status of a group."""
        log = self.cluster.audit_log.read_text("utf-8")
        return len(re.findall(rf'/{name}/status\?[^"]*fieldManager=cpg-scheduler[&"]', log))


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with two racks of two nodes, and a user with the role `view` in the namespace."""
    pool = NodePool.parse("2 racks x 2 nodes, cpu=2")
    with Cluster(ClusterSpec(components=("controller-manager",), nodes=(pool,), audit=True)) as running:
        install(running, values())
        running.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer")
        yield running


def values() -> Plain:
    """Return the values of the chart: one replica of each process, and short backoffs."""
    backoff = {"first": 0.05, "most": 0.1, "perDoubling": 0.0}
    return {
        "scheduler": {"replicas": 1, "settings": {"leaderElect": False, "backoff": backoff}},
        "operator": {"replicas": 1, "settings": {"leaderElect": False}},
    }


@pytest.fixture
def user(cluster: Cluster, install: "Installer", tmp_path: Path) -> Iterator[User]:
    """Return the user, while both processes run."""
    release = install(cluster, values())
    with BlockingClient(cluster.access) as client:
        with Deployments(cluster.access, release.deployments, folder=tmp_path) as running:
            pods = {name: pod for name, (pod,) in running.pods.items()}
            made = User(cluster, client, pods["kube-cpg-scheduler"].process.log)
            yield made
            for pod in pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "attempt failed" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()
        made.delete_trees()


def test_the_status_answers_why_a_tree_waits_until_it_is_placed(user: User) -> None:
    """Root and leaf show the leaf, its closest racks, preemption and the next step; then that they are placed."""
    for rack in (1, 2):
        user.create_pod(f"runs-{rack}", nodeName=f"node-{rack}-1")
    user.create_tree("train", 2)
    shown = [user.await_finding(kind, name, "Impossible") for kind, name in (("cpg", "train"), ("pg", "train-workers"))]
    assert user.kubectl("get", "nodes", check=False) == ""
    for attempt in shown:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", attempt.pop("time"))
        assert attempt.pop("number") >= 1
        assert len(msgspec.json.encode(attempt)) < MAX_ATTEMPT_BYTES
    room: Plain = {
        "nodes": 2,
        "fits": 1,
        "wanted": 2,
        "shortage": 1,
        "reasons": [{"text": "Insufficient cpu", "nodes": 1}],
    }
    assert shown[0] == {
        "finding": "Impossible",
        "blockedAt": {"kind": "PodGroup", "name": "train-workers", "minimum": 2, "scheduled": 1},
        "domains": {"key": RACK, "considered": 2, "closest": [{"domain": f"rack-{n}"} | room for n in (1, 2)]},
        "preemption": {
            "outcome": "NoVictims",
            "text": "pod group preemption: No preemption victims found for incoming preemptor",
        },
        "nextStep": {
            "remedy": "MakeRoom",
            "kind": "PodGroup",
            "name": "train-workers",
            "count": 1,
            "domain": "rack-1",
            "text": "make room for 1 more pod in rack-1",
        },
    }
    assert shown[1] == shown[0]
    assert DESCRIBED in user.kubectl("describe", "cpg", "train")
    user.cluster.add_nodes(NodePool.parse("1 rack x 3 nodes, cpu=2, name=more"))
    for kind, name in (("cpg", "train"), ("pg", "train-workers")):
        attempt = user.await_finding(kind, name, "Placed")
        assert attempt.keys() <= {"finding", "time", "number"}


def test_a_tree_that_is_retried_often_is_written_seldom(user: User) -> None:
    """Each change of a node is an attempt; none of them has news."""
    user.create_tree("hopeless", 9)
    user.await_finding("cpg", "hopeless", "Impossible")
    time.sleep(1.0)
    attempts, before = user.attempts("hopeless"), user.status_writes("hopeless")
    deadline, more = time.monotonic() + SECONDS_OF_RETRIES, 0
    while time.monotonic() < deadline:
        more += 1
        user.client.merge("/api/v1/nodes/node-1-1/status", {"status": {"allocatable": {"cpu": f"{2000 + more}m"}}})
        time.sleep(0.1)
    assert user.attempts("hopeless") - attempts > 50
    assert user.status_writes("hopeless") - before <= 2
    assert user.status_writes("hopeless-workers") <= before + 2


def test_the_status_says_why_a_tree_cannot_be_attempted(user: User) -> None:
    """The operator may write the condition first; the attempt follows in any case."""
    user.create_tree("wrong", 1, disruptionMode={"all": {}}, priority=7)
    attempt = user.await_finding("cpg", "wrong", "InvalidTree")
    assert attempt["nextStep"]["remedy"] == "MendTree"
