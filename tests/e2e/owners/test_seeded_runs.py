"""Seeded runs of operations on owners against a model, with both processes of the chart and a real API server.

Controllers are simulated, so that a run takes seconds. The suite plays a few runs; ``make fuzz-workloads`` plays 200
(``FUZZ_RUNS``), from ``FUZZ_SEED`` on, and writes a result file. Afterwards the audit log shows what our processes
have written to pods, and a Deployment of another scheduler shows what its pods cost.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import result_files
import yaml
from tests.e2e.owners.model import Job
from tests.e2e.owners.observer import Observer
from tests.e2e.owners.seeded_run import SeededRun

from cpg_api.decoding import decode
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments, PodProcess
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RUNS = int(os.environ.get("FUZZ_RUNS", "8"))
FIRST_SEED = int(os.environ.get("FUZZ_SEED", "1"))
SEEDS = [int(one) for one in os.environ.get("FUZZ_SEEDS", "").split()] or range(FIRST_SEED, FIRST_SEED + RUNS)
RESULTS = os.environ.get("FUZZ_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
PATIENCE = float(os.environ.get("FUZZ_PATIENCE", "30"))
"""Seconds after which the cluster has to be as the model says; the suite runs beside other tests."""
MAX_SECONDS = float(os.environ.get("FUZZ_MAX_SECONDS", "inf"))
"""The promise, which needs an idle machine: seconds from the last operation until the groups are as the model says."""
RUNS_AT_ONCE = int(os.environ.get("FUZZ_AT_ONCE", "8"))
CONTROLLERS = ("garbage-collector-controller", "deployment-controller", "replicaset-controller")
ACCOUNTS = "system:serviceaccount:kube-cpg:kube-cpg-"
BINDS_AND_STATUS = {("scheduler", "create", "binding"), ("scheduler", "patch", "status")}
OPERATOR_COUNTERS = ("cpg_operator_reconcile_seconds_count", "cpg_operator_writes_total")
SCHEDULER_COUNTERS = (
    "scheduler_schedule_attempts_total",
    "scheduler_podgroup_schedule_attempts_total",
    "cpg_scheduler_binds_total",
)
OTHER_PODS = 1000
SECONDS_OF_DEBOUNCE = 1.5
"""A burst of changes of a tree is reconciled after a second at most."""
POD_OF_A_JOB = {
    "schedulerName": SCHEDULER_NAME,
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
    "nodeSelector": {"topology.cpg.dev/rack": "rack-1"},
}
Plain = dict[str, Any]
Processes = dict[str, PodProcess]


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with an audit log, whose controller manager starts after all CRDs."""
    spec = ClusterSpec(components=("controller-manager",), controllers=CONTROLLERS, audit=True)
    with Cluster(spec) as running:
        running.stop_component("controller-manager")
        running.kubectl("apply", "-f", str(Path(__file__).with_name("owner_kinds.yaml")))
        install(running, {"scheduler": {"enabled": False}, "operator": {"enabled": False}})
        running.start_component("controller-manager")
        yield running


@pytest.fixture(scope="module")
def processes(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Run operator and scheduler with the chart's rights; neither may meet a refusal or an error of its own."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    integrations = ["jobset", "leaderworkerset", "raycluster", "job"]
    release = install(cluster, {"integrations": integrations, "scheduler": process, "operator": process})
    with Deployments(cluster.access, release.deployments, folder=tmp_path_factory.mktemp("pods")) as running:
        yield {name.removeprefix("kube-cpg-"): pod for name, (pod,) in running.pods.items()}
        for (pod,) in running.pods.values():
            for mistake in ("forbidden: User", "reconcile failed", "attempt failed", "Traceback"):
                assert mistake not in pod.process.output()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the administrator."""
    with BlockingClient(cluster.access) as connected:
        yield connected


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    """Return a connection of the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connected:
        yield connected


async def test_groups_and_pods_follow_their_owners(connection: Connection, processes: Processes) -> None:
    """Created, suspended, resumed, restarted, resized, deleted: no deadlock, no pod bound outside its group."""
    seeds, failures, seconds, group_seconds = iter(SEEDS), dict[int, Any](), list[float](), list[float]()
    late: list[Plain] = []
    load = result_files.load_average()
    operations, began, measured = 0, time.monotonic(), result_files.measured_code()
    active: dict[str, SeededRun] = {}
    observer = Observer()
    observer.on_pod_gone = lambda namespace, uid: active[namespace].pod_gone(uid) if namespace in active else None

    async def work() -> None:
        nonlocal operations
        for seed in seeds:
            run = SeededRun(connection, observer, seed, PATIENCE)
            active[run.namespace] = run
            problems = await run.run()
            del active[run.namespace]
            operations += len(run.history)
            seconds.extend(run.quiet_seconds)
            group_seconds.extend(run.group_seconds)
            late.extend(run.late)
            if problems:
                failures[seed] = {"problems": problems, "history": run.history}

    async with observer.watching(connection), asyncio.TaskGroup() as workers:
        for _ in range(RUNS_AT_ONCE):
            workers.create_task(work())
    figures = {
        "runs": len(SEEDS),
        "first_seed": SEEDS[0],
        "operations": operations,
        "seconds": round(time.monotonic() - began, 1),
        "quiet_median_seconds": round(median(seconds), 2),
        "quiet_longest_seconds": round(max(seconds), 2),
        "groups_median_seconds": round(median(group_seconds), 2),
        "groups_longest_seconds": round(max(group_seconds), 2),
        "patience_seconds": PATIENCE,
        "runs_at_once": RUNS_AT_ONCE,
        "quiet_times": len(seconds),
        "late": late,
        "load_before": load,
        "load_after": result_files.load_average(),
        "failures": failures,
        "missed_hints": _metric(processes["scheduler"], "cpg_scheduler_missed_hints_total"),
    }
    if RESULTS:
        result_files.write_result("workloads", figures, measured=measured)
    assert not failures, yaml.safe_dump(failures, sort_keys=False, width=200)
    assert _metric(processes["scheduler"], "cpg_scheduler_mistakes_total") == 0
    assert max(group_seconds) <= MAX_SECONDS, figures


def _metric(process: PodProcess, name: str) -> float:
    """Return the sum of the samples of a metric."""
    status, page = process.get("/metrics")
    assert status == 200
    return sum(float(value) for value in re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", page))


def _writes(cluster: Cluster) -> Iterator[Plain]:
    """Yield the audit events of the writes of our accounts."""
    for line in cluster.audit_log.read_text("utf-8").splitlines():
        event = decode(line)
        if event["user"]["username"].startswith(ACCOUNTS) and "objectRef" in event:
            yield event


def _writes_to_pods(cluster: Cluster) -> set[tuple[str, str, str]]:
    """Return process, verb and subresource of each write to a pod."""
    return {
        (one["user"]["username"].removeprefix(ACCOUNTS), one["verb"], one["objectRef"].get("subresource", ""))
        for one in _writes(cluster)
        if one["objectRef"]["resource"] == "pods"
    }


def test_our_processes_write_only_binds_and_status_of_pods(cluster: Cluster, processes: Processes) -> None:
    """No pod is patched, whatever its owner goes through, and none is evicted where nothing preempts."""
    assert all(pod.is_alive() for pod in processes.values())
    assert _writes_to_pods(cluster) == BINDS_AND_STATUS


def _counters(processes: Processes) -> dict[str, float]:
    """Return what our processes have done so far: reconciles, writes, attempts and binds."""
    found = {name: _metric(processes["operator"], name) for name in OPERATOR_COUNTERS}
    return found | {name: _metric(processes["scheduler"], name) for name in SCHEDULER_COUNTERS}


def _quiet_counters(processes: Processes) -> dict[str, float]:
    """Return the counters once the work of earlier tests has ended."""
    found, deadline = _counters(processes), time.monotonic() + 60
    while True:
        time.sleep(2 * SECONDS_OF_DEBOUNCE)
        before, found = found, _counters(processes)
        if found == before:
            return found
        assert time.monotonic() < deadline, "the processes are never idle"


def test_a_deployment_of_another_scheduler_costs_nothing(
    cluster: Cluster, client: BlockingClient, processes: Processes
) -> None:
    """Its 1,000 pods take room of nodes; nothing is reconciled, attempted or written because of them."""
    before, known = _quiet_counters(processes), _metric(processes["scheduler"], "cpg_scheduler_pods")
    client.create("/api/v1/namespaces", {"metadata": {"name": "others"}})
    labels = {"app": "web"}
    container = {"name": "main", "image": "none"}
    pod = {"schedulerName": "another", "nodeName": "of-others", "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": OTHER_PODS, "selector": {"matchLabels": labels}, "template": template}
    client.create("/apis/apps/v1/namespaces/others/deployments", {"metadata": {"name": "web"}, "spec": spec})
    cluster.wait(
        lambda: _metric(processes["scheduler"], "cpg_scheduler_pods") == known + OTHER_PODS, 60, "pods in the cache"
    )
    time.sleep(SECONDS_OF_DEBOUNCE)
    assert _counters(processes) == before
    assert not [one for one in _writes(cluster) if one["objectRef"].get("namespace") == "others"]


def test_only_preemption_evicts_pods(cluster: Cluster, client: BlockingClient, processes: Processes) -> None:
    """A Job of high priority takes the room of another: its pods are deleted, and still none is patched."""
    cluster.add_nodes(NodePool.parse("1 rack x 2 nodes, cpu=1, name=small"))
    client.create("/api/v1/namespaces", {"metadata": {"name": "urgent"}})
    client.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000})
    for name, more in (("low", {}), ("high", {"priorityClassName": "urgent"})):
        pod = {**POD_OF_A_JOB, **more}
        body = Job(name, 2).manifest({"spec": pod})
        owner = client.create("/apis/batch/v1/namespaces/urgent/jobs", body)
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["metadata"]["uid"]}
        for slot in Job(name, 2).slots():
            labels = {"labels": dict(slot.labels), "annotations": dict(slot.annotations)}
            meta = {"name": slot.name, "ownerReferences": [{**reference, "controller": True}], **labels}
            client.create("/api/v1/namespaces/urgent/pods", {"metadata": meta, "spec": pod})
        cluster.wait(partial(_are_bound, client, {f"{name}-0", f"{name}-1"}), 60, f"the pods of {name}")
    assert all(pod.is_alive() for pod in processes.values())
    assert _writes_to_pods(cluster) == {*BINDS_AND_STATUS, ("scheduler", "delete", "")}


def _are_bound(client: BlockingClient, names: set[str]) -> bool:
    """Return whether these pods have nodes in the namespace of the preemption, and no others."""
    pods = client.get("/api/v1/namespaces/urgent/pods")["items"]
    return {pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]} == names
