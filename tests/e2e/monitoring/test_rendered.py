"""The rendered monitoring objects: targets, NetworkPolicies, dashboard and rules."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_lab import charts

if TYPE_CHECKING:
    from tests.e2e.monitoring.conftest import Rules

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
Plain = dict[str, Any]

SCRAPER = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def rendered(**values: object) -> list[Plain]:
    """Return all objects with monitoring enabled."""
    switched_on = {"enabled": True}
    monitoring = {"force": True, "serviceMonitor": switched_on, "dashboard": switched_on}
    return charts.render(CHART, {"monitoring": monitoring, **values}, namespace="kube-cpg")


def of_kind(objects: list[Plain], kind: str) -> list[Plain]:
    """Return the objects of a kind."""
    return [one for one in objects if one["kind"] == kind]


def fits(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Return whether a selector matches labels."""
    return selector.items() <= labels.items()


def scraped(objects: list[Plain]) -> dict[str, Any]:
    """Return the scraped container port of each Deployment, resolved as Prometheus does."""
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    found = {}
    for service in of_kind(objects, "Service"):
        ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
        if not fits(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]):
            continue
        for deployment in of_kind(objects, "Deployment"):
            template = deployment["spec"]["template"]
            if endpoint["port"] in ports and fits(service["spec"]["selector"], template["metadata"]["labels"]):
                (container,) = template["spec"]["containers"]
                named = {port["name"]: port["containerPort"] for port in container["ports"]}
                found[service["metadata"]["name"]] = named[ports[endpoint["port"]]]
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"kube-cpg-scheduler": 10270, "kube-cpg-operator": 10271}),
        ({"webhook": {"enabled": True}}, {"kube-cpg-scheduler": 10270, "kube-cpg-operator": 10271}),
        ({"scheduler": {"port": 7}, "operator": {"enabled": False}}, {"kube-cpg-scheduler": 7}),
    ],
    ids=["default", "with a webhook", "the scheduler alone"],
)
def test_every_process_is_scraped_once(values: Plain, expected: dict[str, int]) -> None:
    """Each has its own port and the job of its Service; the port of the webhook is not scraped."""
    assert scraped(rendered(**values)) == expected


def test_the_policies_admit_the_scraper() -> None:
    """Only the named peers reach the port of the metrics, for both processes."""
    objects = rendered(networkPolicy={"enabled": True, "metricsFrom": SCRAPER})
    rules = [rule for policy in of_kind(objects, "NetworkPolicy") for rule in policy["spec"].get("ingress", ())]
    assert rules == [{"from": SCRAPER, "ports": [{"port": "http", "protocol": "TCP"}]}] * 2
    selected = [policy["spec"]["podSelector"]["matchLabels"] for policy in of_kind(objects, "NetworkPolicy")]
    for deployment in of_kind(objects, "Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert sum(fits(one, labels) for one in selected) == 1


def test_the_dashboard_has_the_label_of_the_sidecar() -> None:
    """The ConfigMap contains the dashboard of the chart."""
    (found,) = [one for one in of_kind(rendered(), "ConfigMap") if "grafana_dashboard" in one["metadata"]["labels"]]
    board = json.loads((CHART / "files" / "dashboard.json").read_text("utf-8"))
    assert json.loads(found["data"]["kube-cpg.json"]) == board


def test_values_configure_the_alerts(alerts: "Rules") -> None:
    """Threshold, duration and severity come from the values, and an alert can be switched off."""
    chosen = {
        "CpgBindErrors": {"threshold": 0.5, "for": "1h", "severity": "page"},
        "CpgTreePartial": {"enabled": False},
    }
    rule = {"enabled": True, "alertLabels": {"team": "ml"}, "runbookUrl": "https://wiki", "alerts": chosen}
    (group,) = alerts(monitoring={"force": True, "prometheusRule": rule})["groups"]
    found = {one["alert"]: one for one in group["rules"]}
    assert "CpgTreePartial" not in found
    one = found["CpgBindErrors"]
    assert one["expr"].endswith("> 0.5")
    assert (one["for"], one["labels"]) == ("1h", {"severity": "page", "team": "ml"})
    assert one["annotations"]["runbook_url"] == "https://wiki#cpgbinderrors"
