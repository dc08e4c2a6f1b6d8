"""Every alert, evaluated on series on which it must fire and on series on which it must not."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cpg_lab.promql import Promcheck, PromcheckResult

if TYPE_CHECKING:
    from tests.e2e.monitoring.conftest import Rules

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
SPACE = "kube-cpg"

FILE = yaml.safe_load(Path(__file__).with_name("histories.yaml").read_text("utf-8"))
HISTORIES: dict[str, dict[str, Any]] = FILE["histories"]
NAMES = list(yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8")))
RUNBOOKS = ROOT / "docs" / "operations" / "monitoring.md"


def seconds(text: str) -> float:
    """Return a duration such as 1h5m30s in seconds."""
    worth = {"h": 3600, "m": 60, "s": 1}
    return float(sum(int(number) * worth[unit] for number, unit in re.findall(r"(\d+)([hms])", text)))


def place_of(series: str) -> str:
    """Return the labels of a series: the namespace and the job of its process."""
    part = "operator" if series.startswith("cpg_operator") else "scheduler"
    return f'namespace="{SPACE}", job="{SPACE}-{part}"'


@pytest.fixture(scope="module")
def result(promcheck: Promcheck, alerts: "Rules") -> PromcheckResult:
    """Evaluate all histories."""
    return promcheck.evaluate(
        {
            name: {
                series.replace("@", place_of(series)): values
                for series, values in {**FILE["healthy"], **history.get("series", {})}.items()
            }
            for name, history in HISTORIES.items()
        },
        rules=alerts(),
    )


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_fires_its_alerts(result: PromcheckResult, name: str) -> None:
    """Exactly these alerts fire, each after its time."""
    expected = {alert: seconds(after) for alert, after in HISTORIES[name].get("fires", {}).items()}
    assert {one.alert: one.after for one in result.fired[name]} == expected


@pytest.mark.parametrize("alert", NAMES)
def test_every_alert_has_both_kinds_of_histories(alert: str) -> None:
    """In one it fires, in one it comes close and does not."""
    assert any(alert in history.get("fires", {}) for history in HISTORIES.values())
    assert any(alert in history.get("spares", ()) for history in HISTORIES.values())


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_carries_its_runbook(result: PromcheckResult, alert: str) -> None:
    """Its texts are filled in, and the runbook needs no link; the page on monitoring has a section on it."""
    (one, *_) = [one for fired in result.fired.values() for one in fired if one.alert == alert]
    assert one.labels["severity"] in {"critical", "warning"}
    assert one.labels["namespace"] == SPACE
    assert one.annotations["summary"].endswith(".")
    assert not re.search(r"\{\{|<no value>|<error|%!", one.annotations["description"])
    assert not re.search(r"NAMESPACE|RELEASE-|\]\(", one.annotations["runbook"])
    assert "runbook_url" not in one.annotations
    assert f"### {alert}" in RUNBOOKS.read_text("utf-8").splitlines()


def test_a_process_that_is_not_installed_has_no_alerts(alerts: "Rules") -> None:
    """Without the operator only the alerts of the scheduler are rendered."""
    (group,) = alerts(operator={"enabled": False})["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {
        name
        for name, alert in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8")).items()
        if alert["part"] == "scheduler"
    }
