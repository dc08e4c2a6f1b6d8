"""What the user of an owner reads: events that say why it waits, and when it is placed; with and without the operator.

The owners are Jobs, with the real controller of Jobs, both processes of the chart, and kwok.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.integrations.policy import REQUIRED
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import CRD, NATIVE
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RACK = "topology.cpg.dev/rack"
NODES = "1 rack x 3 nodes, cpu=2"
OPERATOR, SCHEDULER = "kube-cpg-operator", "kube-cpg-scheduler"
HELD_SECONDS = 7.0
"""Longer than any event is held back."""
Plain = dict[str, Any]


class Processes:
    """A cluster with the chart, and a namespace; runs operator and scheduler as asked."""

    def __init__(self, cluster: Cluster, client: BlockingClient, deployments: list[Plain], folder: Path) -> None:
        """Run nothing yet."""
        self.cluster, self._client, self._folder = cluster, client, folder
        self._deployments = {one["metadata"]["name"]: one for one in deployments}
        self.space = f"test-{time.monotonic_ns()}"
        client.create("/api/v1/namespaces", {"metadata": {"name": self.space}})

    @contextmanager
    def run(self, *names: str) -> Iterator[None]:
        """Run these, and fail where a request was forbidden or a reconcile failed."""
        chosen = [self._deployments[name] for name in names]
        with Deployments(self.cluster.access, chosen, folder=self._folder) as running:
            yield
            for (pod,) in running.pods.values():
                assert "forbidden: User" not in pod.process.output()
                assert "reconcile failed" not in pod.process.output()

    def create_job(self, name: str, size: int) -> None:
        """Create an Indexed Job of pods that fill a node each."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}
        pod: Plain = {"schedulerName": SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}
        pod["terminationGracePeriodSeconds"] = 0
        spec = {"completionMode": "Indexed", "parallelism": size, "completions": size, "template": {"spec": pod}}
        meta = {"name": name, "annotations": {REQUIRED: RACK}}
        self._client.create(f"/apis/batch/v1/namespaces/{self.space}/jobs", {"metadata": meta, "spec": spec})

    def resize(self, name: str, size: int) -> None:
        """Change the size of a Job."""
        spec = {"parallelism": size, "completions": size}
        self._client.merge(f"/apis/batch/v1/namespaces/{self.space}/jobs/{name}", {"spec": spec})

    def pods(self, job: str) -> list[Plain]:
        """Return the pods of a Job that are not being deleted."""
        pods = self._client.get(f"/api/v1/namespaces/{self.space}/pods")["items"]
        mine = [one for one in pods if one["metadata"]["labels"]["job-name"] == job]
        return [one for one in mine if "deletionTimestamp" not in one["metadata"]]

    def bound(self, job: str) -> set[str]:
        """Return the names of the pods of a Job that have a node."""
        return {one["metadata"]["name"] for one in self.pods(job) if "nodeName" in one["spec"]}

    def message(self, job: str) -> set[str]:
        """Return what the pods of a Job wait for."""
        conditions = [each for pod in self.pods(job) for each in pod["status"].get("conditions", ())]
        return {each["message"] for each in conditions if each["type"] == "PodScheduled" and "message" in each}

    def events(self, kind: str, name: str = "") -> list[tuple[str, str, int]]:
        """Return reason, note and count of our events about objects whose names begin so."""
        found = self._client.get(f"/apis/events.k8s.io/v1/namespaces/{self.space}/events")["items"]
        return [
            (one["reason"], one["note"], one.get("series", {}).get("count", 1))
            for one in found
            if one["regarding"]["kind"] == kind
            and one["regarding"]["name"].startswith(name)
            and one["reportingController"].startswith("cpg-")
        ]

    def has_reasons(self, kind: str, wanted: set[str]) -> bool:
        """Return whether these are the reasons of all events about objects of a kind."""
        return {reason for reason, _, _ in self.events(kind)} == wanted

    def reasons(self, job: str) -> list[str]:
        """Return the reasons of the events about a Job."""
        return [reason for reason, _, _ in self.events("Job", job)]


LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve, annotations: {scheduling.cpg.dev/disruption-mode: all}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        schedulerName: cpg-scheduler
        terminationGracePeriodSeconds: 0
        containers: [{name: main, image: none, resources: {requests: {cpu: "2"}}}]
"""
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
          spec:
            schedulerName: cpg-scheduler
            priorityClassName: high
            restartPolicy: Never
            containers: [{name: main, image: none, resources: {requests: {cpu: "2"}}}]
"""


@pytest.fixture(scope="module", params=[CRD, NATIVE])
def cluster(request: pytest.FixtureRequest, install: "Installer") -> Iterator[Cluster]:
    """Run a cluster of one rack, with room for one pod of a Job on each of its three nodes.

    The garbage collector looks for new kinds every 30 s, so the controller manager starts after the CRDs.
    """
    spec = ClusterSpec(components=("controller-manager", "kwok"), nodes=(NodePool.parse(NODES),))
    with Cluster(replace(spec, gates="native") if request.param == NATIVE else spec) as running:
        running.stop_component("controller-manager")
        install(running, values(running))
        running.start_component("controller-manager")
        yield running


def values(cluster: Cluster, *integrations: str) -> Plain:
    """Return the values of the chart: one replica of each process, and the kinds of one flavour."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    crds = {"install": cluster.spec.gates == "default"}
    return {"integrations": integrations or ["job"], "scheduler": process, "operator": process, "crds": crds}


@pytest.fixture
def processes(cluster: Cluster, install: "Installer", tmp_path: Path) -> Iterator[Processes]:
    """Return the processes, and a namespace that is emptied in the end."""
    with BlockingClient(cluster.access) as client:
        made = Processes(cluster, client, list(install(cluster, values(cluster)).deployments), tmp_path)
        yield made
        cluster.kubectl("-n", made.space, "delete", "job", "--all", "--cascade=foreground", "--wait=false")
        cluster.kubectl("-n", made.space, "delete", "pod", "--all", "--force", "--grace-period=0")


def test_a_job_says_why_it_waits_and_when_it_is_placed(processes: Processes) -> None:
    """By one event for each reason; a restart repeats none. Its pods do not say that they wait for their group."""
    cluster = processes.cluster
    with processes.run(OPERATOR, SCHEDULER):
        processes.create_job("train", 4)
        cluster.wait(lambda: bool(processes.reasons("train")), what="an event")
        ((reason, note, count),) = processes.events("Job", "train")
        assert (reason, count) == ("Unschedulable", 1)
        assert "0/1 domains of topology.cpg.dev/rack have room for 4 pods (rack-1 is closest: 3 of 4)" in note
    with processes.run(OPERATOR, SCHEDULER):
        time.sleep(HELD_SECONDS)
        assert [(reason, count) for reason, _, count in processes.events("Job", "train")] == [("Unschedulable", 1)]
        processes.resize("train", 3)
        cluster.wait(lambda: len(processes.reasons("train")) > 1, what="another event")
        assert ("Scheduled", "3 of 3 pods have nodes, in topology.cpg.dev/rack rack-1", 1) in processes.events("Job")
    with processes.run(OPERATOR, SCHEDULER):
        time.sleep(HELD_SECONDS)
        assert sorted((reason, count) for reason, _, count in processes.events("Job")) == [
            ("Scheduled", 1),
            ("Unschedulable", 1),
        ]
    failed = [note for reason, note, _ in processes.events("Pod") if reason == "FailedScheduling"]
    assert failed
    assert not [note for note in failed if "waiting for" in note]


def test_a_reason_that_comes_back_is_counted(processes: Processes) -> None:
    """A Job that grows beyond the room is incomplete, and placed again once it shrinks."""
    cluster = processes.cluster
    with processes.run(OPERATOR, SCHEDULER):
        processes.create_job("train", 3)
        cluster.wait(lambda: processes.reasons("train") == ["Scheduled"], what="the first event")
        processes.resize("train", 4)
        cluster.wait(lambda: "Incomplete" in processes.reasons("train"), what="the event that it is incomplete")
        processes.resize("train", 3)
        again = ("Scheduled", "3 of 3 pods have nodes, in topology.cpg.dev/rack rack-1", 2)
        cluster.wait(lambda: again in processes.events("Job", "train"), what="the event that it is placed again")


def test_without_the_operator_known_groups_place(processes: Processes) -> None:
    """Pods of a new owner wait, and say for which group and from which owner it comes."""
    cluster, group = processes.cluster, f"PodGroup {processes.space}/job.late.pods"
    waiting = f"waiting for {group}, which the operator makes for Job late"
    with processes.run(SCHEDULER):
        with processes.run(OPERATOR):
            processes.create_job("train", 2)
            cluster.wait(lambda: len(processes.bound("train")) == 2, what="the first pods")
        before = processes.bound("train")
        cluster.kubectl("-n", processes.space, "delete", "pod", "--force", "--grace-period=0", *before)
        cluster.wait(lambda: len(processes.bound("train") - before) == 2, what="new pods of the known group")
        processes.create_job("late", 1)
        cluster.wait(lambda: processes.message("late") == {waiting}, what="the condition of the new pod")
        event = partial(processes.events, "Pod", "late")
        assert event() == []
        cluster.wait(lambda: event() == [("FailedScheduling", waiting, 1)], what="its event")
        with processes.run(OPERATOR):
            cluster.wait(lambda: bool(processes.bound("late")), what="the new pod on a node")
            cluster.wait(lambda: processes.reasons("late") == ["Scheduled"], what="the event of its Job")


def test_kubectl_shows_the_owner(processes: Processes) -> None:
    """Of its groups and its Workload, as kubectl takes it."""
    if processes.cluster.spec.gates == "native":
        groups = "podgroups.scheduling.k8s.io"
        path = ["-o", r"jsonpath={.items[*].metadata.annotations.scheduling\.cpg\.dev/derived-from}"]
    else:
        groups, path = "podgroups.scheduling.cpg.dev,workloads.scheduling.cpg.dev", []
    with processes.run(OPERATOR):
        processes.create_job("train", 1)

        def shown() -> list[str]:
            table = processes.cluster.kubectl("-n", processes.space, "get", groups, *path).stdout
            return [word for word in table.split() if word == "job/train"]

        processes.cluster.wait(lambda: len(shown()) == (1 if path else 2), what="the owner in the table")


@pytest.mark.workloads
@pytest.mark.parametrize("kubernetes", ["1.37", "1.30"])
def test_replicas_that_wait_or_are_evicted_are_reported_too(
    kubernetes: str, install: "Installer", tmp_path: Path
) -> None:
    """To the LeaderWorkerSet, although its root is placed. The JobSet that evicts one says only that it is placed."""
    spec = ClusterSpec(
        kubernetes=kubernetes,
        components=("kwok",),
        workloads=("jobset", "lws"),
        nodes=(NodePool.parse(NODES),),
    )
    with Cluster(spec) as cluster, BlockingClient(cluster.access) as client:
        cluster.stop_component("controller-manager")
        release = install(cluster, values(cluster, "jobset", "leaderworkerset"))
        cluster.start_component("controller-manager")
        processes = Processes(cluster, client, list(release.deployments), tmp_path)
        cluster.kubectl("create", "priorityclass", "high", "--value=1000")
        with processes.run(OPERATOR, SCHEDULER):
            for manifest, kind, wanted in (
                (LWS, "LeaderWorkerSet", {"Unschedulable"}),
                (JOBSET, "JobSet", {"Scheduled"}),
            ):
                cluster.kubectl("-n", processes.space, "apply", "-f", "-", input=manifest)
                cluster.wait(partial(processes.has_reasons, kind, wanted), 60, f"{wanted} about the {kind}")
            cluster.wait(
                partial(processes.has_reasons, "LeaderWorkerSet", {"Unschedulable", "Preempted"}),
                60,
                "the eviction of a replica",
            )
            assert processes.has_reasons("JobSet", {"Scheduled"})
            table = cluster.kubectl("-n", processes.space, "get", "cpg").stdout
            assert {"leaderworkerset/serve", "jobset/train"} <= set(table.split())
