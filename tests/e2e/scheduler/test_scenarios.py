"""The engine's scenario files on a real API server with our scheduler, in both flavours.

Only what users can see is compared: nodes of pods, conditions and events.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from cpg_client.errors import ApiError
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.scenario_forms import Forms
from cpg_engine.testing.scenarios import Scenario, ScenarioObjects, ScenarioStep, happen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Installer
    from tests.e2e.scheduler.conftest import LiveCluster

    from cpg_lab.clusters import Cluster

FOLDER = Path(__file__).parents[2] / "scenarios"
AGE = "the result depends on the age of objects, and creation timestamps have whole seconds"
REFUSED = "the API server refuses quantities that are malformed or negative"
DROPPED = "without its feature gate the API server drops spec.schedulingGroup, so the pod names one group"
NOT_NATIVE = "native groups have no preferred topology"
EXCLUDED = {
    "pods-malformed-pod": REFUSED,
    "pods-malformed-running-pod": REFUSED,
    "preemption-budget-gives-way-at-last": AGE,
    "preemption-one-needed-one-evicted": AGE,
    "preemption-singles-spared-for-a-whole-group": AGE,
    "flat-two-gangs-one-fits-the-second": AGE,
}
EXCLUDED_IN: dict[str, dict[str, str]] = {
    "crd": {"pods-two-groups-at-once": DROPPED},
    "native": {"topology-preferred-gives-way-to-a-sibling": NOT_NATIVE},
}
FILES = {
    f"{area.name}-{path.stem}": path
    for area in sorted(FOLDER.iterdir())
    if area.is_dir()
    for path in sorted(area.glob("*.yaml"))
}
PATHS = {name: path for name, path in FILES.items() if name not in EXCLUDED}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def scheduler_without_budget(
    cluster: "Cluster",
    flavour: str,
    scheduler: Path,  # noqa: ARG001  # has installed what both need
    install: "Installer",
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[str]":
    """Run a second scheduler that never searches again; return its name."""
    name, folder = "without-budget", tmp_path_factory.mktemp("without-budget")
    chosen = {"replicas": 1, "schedulerName": name, "settings": {"search": {"budget": 0}}}
    with install.scheduler(cluster, folder, namespace=name, api=flavour, scheduler=chosen):
        yield name


@pytest.mark.parametrize("name", PATHS)
def test_the_scheduler_meets_the_expectations_of_each_step(
    name: str, live: "LiveCluster", flavour: str, request: pytest.FixtureRequest
) -> None:
    """The pods are on the expected nodes, and each failed unit has conditions and one event with the cause."""
    if name in EXCLUDED_IN[flavour]:
        pytest.skip(EXCLUDED_IN[flavour][name])
    scenario = msgspec.convert(yaml.safe_load(PATHS[name].read_text()), Scenario)
    if scenario.budget != SearchOptions().budget:
        live.scheduler_name = request.getfixturevalue("scheduler_without_budget")
    forms = Forms(scenario.priority)
    created = ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods, scenario.budgets)
    first = ScenarioStep(create=created, expect=scenario.expect)
    for number, step in enumerate((first, *scenario.steps)):
        happen(step, live, forms)
        # Later changes of a condition are written after some seconds, so decisions are compared once.
        problems = live.await_expected(step.expect, decisions=number == 0)
        assert not problems, f"step {number}: {problems}"


@pytest.mark.parametrize("name", [name for name, reason in EXCLUDED.items() if reason == REFUSED])
def test_the_api_server_refuses_malformed_quantities(name: str, live: "LiveCluster") -> None:
    """That is why these scenarios are not played."""
    scenario = msgspec.convert(yaml.safe_load(FILES[name].read_text()), Scenario)
    created = ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods)
    happen(ScenarioStep(create=created), live, Forms(scenario.priority))
    with pytest.raises(ApiError, match=r"quantit|must be greater than or equal to 0"):
        live.flush()


def test_no_scenario_is_missing() -> None:
    """Every file runs in both flavours, except those for which a fact about the API server is named."""
    everywhere = {*EXCLUDED, *(name for excluded in EXCLUDED_IN.values() for name in excluded)}
    assert everywhere <= FILES.keys()
    assert len(FILES) == len(list(FOLDER.rglob("*.yaml")))
    assert len(PATHS) >= 140
    budgets = {yaml.safe_load(path.read_text()).get("budget", 0) for path in PATHS.values()}
    assert budgets == {0}, "the second scheduler has a budget of 0"
