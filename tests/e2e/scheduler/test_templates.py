"""The scheduler takes the fields of groups from their templates, while no operator runs."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_engine.testing.builders import node, pod

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster

    from cpg_lab.clusters import Cluster

TIMEOUT_SECONDS = 20.0
API = "scheduling.cpg.dev/v1alpha3"

pytestmark = [pytest.mark.e2e, pytest.mark.parametrize("flavour", ["crd"], indirect=True)]

LEAF = {
    "name": "leaf",
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
}
TEMPLATES = {
    "compositePodGroupTemplates": [
        {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 2}}, "podGroupTemplates": [LEAF]}
    ]
}


def create(cluster: "Cluster", live: "LiveCluster", kind: str, name: str, spec: dict[str, Any]) -> None:
    """Create an object with this spec."""
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("-n", live.namespace, "create", "-f", "-", input=yaml.safe_dump(body))


def create_bare_tree(cluster: "Cluster", live: "LiveCluster") -> None:
    """Create a root and two leaves that have nothing but a reference to their template."""
    create(cluster, live, "CompositePodGroup", "root", reference("root"))
    for name in ("one", "two"):
        create(cluster, live, "PodGroup", name, reference("leaf") | {"parentCompositePodGroupName": "root"})


def reference(template: str) -> dict[str, Any]:
    """Return a spec that only references a template."""
    return {"workloadRef": {"workloadName": "w", "templateName": template}}


def create_nodes_and_pods(live: "LiveCluster", pods_per_leaf: int) -> None:
    """Create two racks with room for one leaf each, and the pods of both leaves."""
    for number in range(4):
        live.put_node(node(f"n{number}", cpu=1, labels={"rack": f"r{number // 2}"}))
    for group in ("one", "two"):
        for number in range(pods_per_leaf):
            live.put_pod(pod(f"{group}-{number}", group=group, cpu=1))
    live.flush()


def pods(cluster: "Cluster", live: "LiveCluster") -> list[dict[str, Any]]:
    """Return the pods of the namespace."""
    found: list[dict[str, Any]] = msgspec.json.decode(
        cluster.kubectl("-n", live.namespace, "get", "pods", "-o", "json").stdout
    )["items"]
    return found


def condition_messages(cluster: "Cluster", live: "LiveCluster") -> set[str]:
    """Return the messages of the scheduling conditions of pods and groups; empty without a condition."""
    text = cluster.kubectl("-n", live.namespace, "get", "pods,podgroups,compositepodgroups", "-o", "json").stdout
    return {
        next((one.get("message", "") for one in item["status"].get("conditions", ()) if "Scheduled" in one["type"]), "")
        for item in msgspec.json.decode(text)["items"]
    }


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_SECONDS:g} s: {what}"
        time.sleep(0.1)


def is_placed(cluster: "Cluster", live: "LiveCluster") -> bool:
    """Return whether the pods of each leaf are in its own rack."""
    racks: dict[str, set[str]] = {}
    for item in pods(cluster, live):
        name, where = item["metadata"]["name"], item["spec"].get("nodeName", "none")
        racks.setdefault(name.partition("-")[0], set()).add({"n0": "0", "n1": "0", "n2": "1", "n3": "1"}.get(where, ""))
    return sorted(map(sorted, racks.values())) == [["0"], ["1"]]


def test_a_tree_takes_minimum_and_domain_from_its_templates(cluster: "Cluster", live: "LiveCluster") -> None:
    """The fields are not written into the groups."""
    create(cluster, live, "Workload", "w", TEMPLATES)
    create_bare_tree(cluster, live)
    create_nodes_and_pods(live, 2)
    wait_until("each leaf is in a rack", lambda: is_placed(cluster, live))
    spec = msgspec.json.decode(cluster.kubectl("-n", live.namespace, "get", "podgroup", "one", "-o", "json").stdout)
    assert "schedulingPolicy" not in spec["spec"]


def test_a_tree_waits_for_its_workload(cluster: "Cluster", live: "LiveCluster") -> None:
    """The conditions of all pods and groups name the Workload; the tree is placed when it is created."""
    create_bare_tree(cluster, live)
    create_nodes_and_pods(live, 2)
    message = f"waiting for Workload {live.namespace}/w with a template root for a CompositePodGroup"

    def all_name_the_workload() -> bool:
        return all(one.startswith(message) for one in condition_messages(cluster, live))

    wait_until("all conditions name the Workload", all_name_the_workload)
    create(cluster, live, "Workload", "w", TEMPLATES)
    wait_until("each leaf is in a rack", lambda: is_placed(cluster, live))
