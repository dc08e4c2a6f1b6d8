"""The engine's scenario files on a real API server with our scheduler, in both flavours.

Only what users can see is compared: nodes of pods, conditions and events.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from cpg_engine.testing.scenario_forms import Forms
from cpg_engine.testing.scenarios import Scenario, ScenarioObjects, ScenarioStep, happen

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster

FOLDER = Path(__file__).parents[2] / "scenarios"
NUMBER = re.compile(r"^[a-z][0-9]{2}-")
"""A number in front of the name of some files."""


def name_of(path: Path) -> str:
    """Return the name of a scenario, without the number of its file."""
    return NUMBER.sub("", path.stem)


# Domains need little more than the engine, so some of these scenarios are enough.
TOPOLOGY = {
    "leaves-without-a-key",
    "middle-level-without-a-key",
    "no-rack-holds-both",
    "only-one-child-has-a-key",
    "root-key-only",
    "running-members-contradict",
}
AGE = "the result depends on the age of objects, and creation timestamps have whole seconds"
EXCLUDED = {
    "budget-gives-way-at-last": AGE,
    "one-needed-one-evicted": AGE,
    "singles-spared-for-a-whole-group": AGE,
    "two-gangs-one-fits-the-second": AGE,
}
FILES = {
    area: {name_of(path): path for path in sorted((FOLDER / area).glob("*.yaml"))}
    for area in ("composite", "flat", "preemption", "topology")
}
FILES["topology"] = {name: path for name, path in FILES["topology"].items() if name in TOPOLOGY}
PATHS = {
    f"{area}-{name}": path for area, paths in FILES.items() for name, path in paths.items() if name not in EXCLUDED
}

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_the_scheduler_meets_the_expectations_of_each_step(path: Path, live: "LiveCluster") -> None:
    """The pods are on the expected nodes, and each failed unit has conditions and one event with the cause."""
    scenario = msgspec.convert(yaml.safe_load(path.read_text()), Scenario)
    forms = Forms(scenario.priority)
    created = ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods, scenario.budgets)
    first = ScenarioStep(create=created, expect=scenario.expect)
    for number, step in enumerate((first, *scenario.steps)):
        happen(step, live, forms)
        problems = live.await_expected(step.expect)
        assert not problems, f"step {number}: {problems}"


def test_no_scenario_is_missing() -> None:
    """All scenarios of the areas run, except those with a reason; of topology the listed ones."""
    assert FILES["topology"].keys() == TOPOLOGY
    assert {name for paths in FILES.values() for name in paths} >= EXCLUDED.keys()
    assert len(PATHS) >= 85
    assert len(FILES["preemption"]) >= 55
