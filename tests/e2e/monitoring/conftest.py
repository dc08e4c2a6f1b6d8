"""Fixtures: the rules of the chart, and the PromQL engine of Prometheus without a server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpg_lab import building, charts
from cpg_lab.promql import Promcheck

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
Rules = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def promcheck() -> Promcheck:
    """Return the PromQL engine."""
    return Promcheck(building.ensure(["promcheck"])["promcheck"])


@pytest.fixture(scope="session")
def alerts() -> Rules:
    """Return a function that renders the rules of the chart in the namespace kube-cpg."""

    def rendered(**values: object) -> dict[str, Any]:
        monitoring = {"force": True, "prometheusRule": {"enabled": True}}
        objects = charts.render(CHART, {"monitoring": monitoring, **values}, namespace="kube-cpg")
        (rule,) = [one for one in objects if one["kind"] == "PrometheusRule"]
        spec: dict[str, Any] = rule["spec"]
        return spec

    return rendered
