"""The chart, installed as by a user, with its processes in containers."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.chart.conftest import Installed

TREE = Path(__file__).parents[3] / "examples" / "02-tree" / "objects.yaml"
TAKEOVER_SECONDS = 15.0

pytestmark = [pytest.mark.e2e, pytest.mark.realnode]


def gang(name: str) -> str:
    """Return a gang of two pods."""
    group = {
        "apiVersion": "scheduling.cpg.dev/v1alpha3",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{index}", "labels": {"scheduling.cpg.dev/pod-group": name, "gang": name}},
            "spec": {
                "schedulerName": "cpg-scheduler",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m"}}}],
            },
        }
        for index in range(2)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [group, *pods]})


def is_bound(installed: Installed, name: str) -> bool:
    """Return whether both pods of a gang have a node."""
    return all(pod["spec"].get("nodeName") for pod in installed.got("pods", "-l", f"gang={name}"))


def logged_binds(installed: Installed) -> Counter[str]:
    """Return the number of logged binds of each pod, in all replicas."""
    events = installed.got("events.events.k8s.io", "--field-selector", "reason=Scheduled,regarding.kind=Pod")
    told = Counter[str]()
    for one in events:
        told[one["regarding"]["uid"]] += one.get("series", {}).get("count", 1)
    return told


def test_every_process_starts_without_a_restart(installed: Installed) -> None:
    """All pods are ready, replicas are on different nodes, and no container was restarted."""
    schedulers, operators = installed.pods_of("scheduler"), installed.pods_of("operator")
    states = [state for pod in (schedulers | operators).values() for state in pod["status"]["containerStatuses"]]
    assert [(state["ready"], state["restartCount"]) for state in states] == [(True, 0)] * 3
    assert len({pod["spec"]["nodeName"] for pod in schedulers.values()}) == len(schedulers)


def test_helm_test_succeeds(installed: Installed) -> None:
    """The test of the chart places a gang of one pod, and its container runs."""
    assert "Succeeded" in installed.helm("test", "kube-cpg", "--timeout", "60s")


def test_a_tree_is_placed_by_the_scheduler_in_its_pod(installed: Installed) -> None:
    """The example is placed in one block, each replica in one rack."""
    installed.cluster.kubectl("apply", "-f", str(TREE))
    installed.cluster.wait(lambda: all(pod["spec"].get("nodeName") for pod in installed.got("pods")), what="all binds")
    racks = [pod["spec"]["nodeName"].rpartition("-")[0] for pod in installed.got("pods")]
    assert len({rack.rpartition("-")[0] for rack in racks}) == 1
    assert sorted(Counter(racks).values()) == [5, 5]


def test_a_standby_takes_over_from_a_deleted_leader(installed: Installed) -> None:
    """A gang that is created after the end of the leader is placed within seconds."""
    leader = installed.leaders_pod()
    installed.cluster.kubectl("delete", "pod", "-n", "kube-cpg", leader, "--wait=false")
    installed.cluster.kubectl("create", "-f", "-", input=gang("after-the-leader"))
    installed.cluster.wait(lambda: is_bound(installed, "after-the-leader"), timeout=TAKEOVER_SECONDS, what="its binds")


def test_an_upgrade_and_a_rollback_lose_no_gang(installed: Installed) -> None:
    """Gangs created during both are placed as a whole, and no pod is bound twice."""
    names: list[str] = []
    rolled = threading.Event()

    def come() -> None:
        while not rolled.is_set():
            names.append(f"rolling-{len(names)}")
            installed.cluster.kubectl("create", "-f", "-", input=gang(names[-1]))
            time.sleep(0.5)

    coming = threading.Thread(target=come)
    coming.start()
    try:
        installed.upgrade("--set", "scheduler.logLevel=debug")
        installed.helm("rollback", "kube-cpg", "--wait", "--timeout", "90s")
    finally:
        rolled.set()
        coming.join()
    installed.cluster.wait(lambda: all(is_bound(installed, name) for name in names), what="all gangs")
    uids = {pod["metadata"]["uid"] for pod in installed.got("pods") if pod["metadata"]["labels"].get("gang") in names}
    installed.cluster.wait(lambda: uids <= {*logged_binds(installed)}, what="words about all binds")
    assert {*logged_binds(installed).values()} == {1}


def test_running_pods_outlive_the_uninstall(installed: Installed) -> None:
    """Every pod keeps its node, and groups can be deleted without an operator."""
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in installed.got("pods")}
    installed.helm("uninstall", "kube-cpg", "--wait", "--timeout", "60s")
    assert {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in installed.got("pods")} == before
    installed.cluster.kubectl("delete", "-f", str(TREE), "--timeout=20s")
    assert installed.got("cpg") == []
