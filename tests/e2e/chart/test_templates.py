"""The rendered objects: pods without privileges, selectors, policies and classes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpg_lab import charts
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError
from cpg_lab.specs import ClusterSpec

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
SPACE = "kube-cpg"
EVERYTHING = {
    "crds": {"keep": False},
    "operator": {"podDisruptionBudget": True},
    "webhook": {"enabled": True},
}
DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
API_SERVER = [{"port": port, "protocol": "TCP"} for port in (443, 6443, 8443, 16443)]
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def objects() -> list[Plain]:
    """Return all rendered objects."""
    return charts.render(CHART, EVERYTHING, namespace=SPACE)


def of_kind(objects: list[Plain], kind: str) -> list[Plain]:
    """Return the objects of a kind."""
    return [one for one in objects if one["kind"] == kind]


def templates(objects: list[Plain]) -> dict[str, Plain]:
    """Return the pod templates by the name of their owner; `-stopped` marks the Deployment without pods."""
    owners = [*of_kind(objects, "Deployment"), *of_kind(objects, "Job")]
    return {
        f"{one['metadata']['name']}{'-stopped' if one['spec'].get('replicas') == 0 else ''}": one["spec"]["template"]
        for one in owners
    }


def selected(objects: list[Plain], selector: dict[str, str]) -> set[str]:
    """Return the owners of the pods with these labels."""
    found = templates(objects)
    return {name for name, one in found.items() if selector.items() <= one["metadata"]["labels"].items()}


@pytest.fixture(scope="module")
def cluster(objects: list[Plain]) -> Iterator[Cluster]:
    """Run a cluster with a namespace that enforces the level restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}}
    with Cluster(ClusterSpec()) as running:
        for one in (space, *of_kind(objects, "PriorityClass")):
            running.kubectl("create", "-f", "-", input=json.dumps(one))
        yield running


def create(cluster: Cluster, template: Plain) -> str:
    """Create a pod of a template in a dry run."""
    meta = {"name": "one", "namespace": SPACE, "labels": template["metadata"]["labels"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
    return cluster.kubectl("create", "--dry-run=server", "-o", "name", "-f", "-", input=json.dumps(pod)).stdout


def test_every_pod_is_admitted_at_the_level_restricted(cluster: Cluster, objects: list[Plain]) -> None:
    """The same pod with hostNetwork is refused."""
    found = templates(objects)
    assert {*found} == {f"kube-cpg-{name}" for name in ("scheduler", "operator", "operator-stopped", "release")}
    for template in found.values():
        assert create(cluster, template).strip() == "pod/one"
    host = {**found["kube-cpg-scheduler"], "spec": {**found["kube-cpg-scheduler"]["spec"], "hostNetwork": True}}
    with pytest.raises(LabError, match="violates PodSecurity"):
        create(cluster, host)


def test_no_container_has_privileges(objects: list[Plain]) -> None:
    """No container runs as root, writes to its root file system or has capabilities."""
    for template in templates(objects).values():
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        assert template["spec"]["securityContext"]["runAsUser"] > 0
        for container in template["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("part", ["scheduler", "operator"])
def test_the_selectors_of_a_process_select_only_its_pods(objects: list[Plain], part: str) -> None:
    """This holds for Service, PodDisruptionBudget, NetworkPolicy, spread and Deployment."""
    name = f"kube-cpg-{part}"
    paths = {
        "Deployment": ("selector", "matchLabels"),
        "PodDisruptionBudget": ("selector", "matchLabels"),
        "NetworkPolicy": ("podSelector", "matchLabels"),
        "Service": ("selector",),
    }
    ours = {name, f"{name}-stopped"} & {*templates(objects)}
    for kind, path in paths.items():
        for one in [one for one in of_kind(objects, kind) if one["metadata"]["name"] == name]:
            selector = one["spec"]
            for key in path:
                selector = selector[key]
            assert selected(objects, selector) == ours, kind
    for constraint in templates(objects)[name]["spec"]["topologySpreadConstraints"]:
        assert selected(objects, constraint["labelSelector"]["matchLabels"]) == ours


def test_egress_is_limited_to_dns_and_the_api_server(objects: list[Plain]) -> None:
    """Each pod has exactly one policy, the Job of the uninstall included."""
    policies = of_kind(objects, "NetworkPolicy")
    chosen = [selected(objects, one["spec"]["podSelector"]["matchLabels"]) for one in policies]
    assert sorted(name for names in chosen for name in names) == sorted(templates(objects))
    for one in policies:
        assert one["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert one["spec"]["egress"] == [{"ports": API_SERVER}, {"ports": DNS}]
        let_in = [port["port"] for rule in one["spec"].get("ingress", ()) for port in rule["ports"]]
        assert (
            let_in
            == {"scheduler": ["http"], "operator": ["http", "webhook"], "release": []}[
                one["metadata"]["labels"]["app.kubernetes.io/component"]
            ]
        )


def test_egress_can_be_limited_to_addresses_of_the_api_server() -> None:
    """DNS stays open to all addresses."""
    peers = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    limited = {**EVERYTHING, "networkPolicy": {"apiServerTo": peers}}
    for one in of_kind(charts.render(CHART, limited, namespace=SPACE), "NetworkPolicy"):
        assert one["spec"]["egress"] == [{"ports": API_SERVER, "to": peers}, {"ports": DNS}]


def test_a_default_installation_is_limited_and_goes_on_working() -> None:
    """Metrics and probes are open to all, egress to DNS and the usual ports of API servers; false renders no policy."""
    for one in of_kind(charts.render(CHART, {}, namespace=SPACE), "NetworkPolicy"):
        rules = [{"ports": [{"port": "http", "protocol": "TCP"}]}]
        is_job = one["metadata"]["labels"]["app.kubernetes.io/component"] == "release"
        assert (one["spec"].get("ingress", []), one["spec"]["egress"]) == (
            [] if is_job else rules,
            [{"ports": API_SERVER}, {"ports": DNS}],
        )
    off = charts.render(CHART, {"networkPolicy": {"enabled": False}}, namespace=SPACE)
    assert of_kind(off, "NetworkPolicy") == []


def test_the_debug_port_is_only_in_the_settings() -> None:
    """No Service, policy or container port has it, because it is on loopback."""
    rendered = charts.render(CHART, {**EVERYTHING, "scheduler": {"debugPort": 12321}}, namespace=SPACE)
    holders = [one for one in rendered if "12321" in json.dumps(one)]
    assert [(one["kind"], one["metadata"]["name"]) for one in holders] == [("ConfigMap", "kube-cpg-scheduler")]


def test_without_leader_election_the_old_pod_ends_first() -> None:
    """Otherwise both would be active during an upgrade."""
    alone = {"replicas": 1, "settings": {"leaderElect": False}}
    rendered = charts.render(CHART, {"scheduler": alone, "operator": alone}, namespace=SPACE)
    assert [one["spec"]["strategy"] for one in of_kind(rendered, "Deployment")] == [{"type": "Recreate"}] * 2
    elected = charts.render(CHART, {}, namespace=SPACE)
    assert [one["spec"].get("strategy") for one in of_kind(elected, "Deployment")] == [None, None]


def test_the_processes_have_the_class_of_the_release(objects: list[Plain]) -> None:
    """A release in another namespace has another class."""
    (one,) = of_kind(objects, "PriorityClass")
    classes = {name: found["spec"].get("priorityClassName") for name, found in templates(objects).items()}
    assert {classes["kube-cpg-scheduler"], classes["kube-cpg-operator"]} == {one["metadata"]["name"]}
    (other,) = of_kind(charts.render(CHART, EVERYTHING, namespace="other"), "PriorityClass")
    assert other["metadata"]["name"] != one["metadata"]["name"]


def test_a_release_without_an_operator_removes_no_finalizers() -> None:
    """Its uninstall has no Job, because the groups may belong to another release."""
    rendered = charts.render(CHART, {"operator": {"enabled": False}}, namespace=SPACE)
    assert {*templates(rendered)} == {"kube-cpg-scheduler"}
