"""Groups that leave everything to their template, scheduled with no operator anywhere to write anything down."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_engine.testing.builders import node, pod

if TYPE_CHECKING:
    from cpg_lab.clusters import Cluster

PATIENCE = 20.0
API = "scheduling.cpg.dev/v1alpha3"
Live = Any

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


def create(cluster: "Cluster", live: Live, kind: str, name: str, spec: dict[str, Any]) -> None:
    """Create an object as a user writes it."""
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("-n", live.namespace, "create", "-f", "-", input=yaml.safe_dump(body))


def bare_tree(cluster: "Cluster", live: Live) -> None:
    """Create a root over two leaves that say nothing but what they are made from."""
    create(cluster, live, "CompositePodGroup", "root", reference("root"))
    for name in ("one", "two"):
        create(cluster, live, "PodGroup", name, reference("leaf") | {"parentCompositePodGroupName": "root"})


def reference(template: str) -> dict[str, Any]:
    """Return a spec that has a reference and nothing else."""
    return {"workloadRef": {"workloadName": "w", "templateName": template}}


def put(live: Live, members: int) -> None:
    """Create two racks with room for one leaf each, and so many pods for each leaf."""
    for number in range(4):
        live.put_node(node(f"n{number}", cpu=1, labels={"rack": f"r{number // 2}"}))
    for group in ("one", "two"):
        for number in range(members):
            live.put_pod(pod(f"{group}-{number}", group=group, cpu=1))
    live.flush()


def pods(cluster: "Cluster", live: Live) -> list[dict[str, Any]]:
    """Return the pods."""
    found: list[dict[str, Any]] = msgspec.json.decode(
        cluster.kubectl("-n", live.namespace, "get", "pods", "-o", "json").stdout
    )["items"]
    return found


def said(cluster: "Cluster", live: Live) -> set[str]:
    """Return what pods and groups say of themselves; nothing of those that are silent."""
    text = cluster.kubectl("-n", live.namespace, "get", "pods,podgroups,compositepodgroups", "-o", "json").stdout
    return {
        next((one.get("message", "") for one in item["status"].get("conditions", ()) if "Scheduled" in one["type"]), "")
        for item in msgspec.json.decode(text)["items"]
    }


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.1)


def placed(cluster: "Cluster", live: Live) -> bool:
    """Tell whether each leaf has both its pods in a rack of its own."""
    racks: dict[str, set[str]] = {}
    for item in pods(cluster, live):
        name, where = item["metadata"]["name"], item["spec"].get("nodeName", "none")
        racks.setdefault(name.partition("-")[0], set()).add({"n0": "0", "n1": "0", "n2": "1", "n3": "1"}.get(where, ""))
    return sorted(map(sorted, racks.values())) == [["0"], ["1"]]


def test_a_tree_of_references_is_placed_as_its_templates_say(cluster: "Cluster", live: Live) -> None:
    """Minimum and domain are the templates', and nobody has written them into the groups."""
    create(cluster, live, "Workload", "w", TEMPLATES)
    bare_tree(cluster, live)
    put(live, 2)
    until("each leaf is in a rack", lambda: placed(cluster, live))
    spec = msgspec.json.decode(cluster.kubectl("-n", live.namespace, "get", "podgroup", "one", "-o", "json").stdout)
    assert "schedulingPolicy" not in spec["spec"]


def test_a_tree_waits_for_its_workload_and_says_so(cluster: "Cluster", live: Live) -> None:
    """Every pod and group names it; the tree is placed when it comes."""
    bare_tree(cluster, live)
    put(live, 2)
    sentence = f"waiting for Workload {live.namespace}/w with a template root for a CompositePodGroup"

    def all_say() -> bool:
        return all(one.startswith(sentence) for one in said(cluster, live))

    until("all name the Workload", all_say)
    create(cluster, live, "Workload", "w", TEMPLATES)
    until("each leaf is in a rack", lambda: placed(cluster, live))
