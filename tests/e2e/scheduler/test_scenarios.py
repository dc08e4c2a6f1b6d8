"""The scenario files of the engine, played on a real API server by our scheduler, in both flavours.

Only what can be seen from outside is compared there: who is bound, where, what everybody says, and that nobody who
waits is silent.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from cpg_engine.testing.scenario_forms import Forms
from cpg_engine.testing.scenarios import Scenario, ScenarioObjects, ScenarioStep, happen

if TYPE_CHECKING:
    from cpg_engine.testing.simulator import ClusterSimulator

FOLDER = Path(__file__).parents[2] / "scenarios"
AREAS = ("flat", "composite", "topology")
EXAMPLES = [path for area in AREAS for path in (FOLDER / area).glob("[ace][0-9][0-9]-*.yaml")]
PREEMPTION = list((FOLDER / "preemption").glob("*.yaml"))
FILES = sorted([*EXAMPLES, *PREEMPTION])
SECONDS = "it depends on who is older, and the API server counts whole seconds"
ELSEWHERE = {
    "a06-two-gangs-one-fits-the-second": SECONDS,
    "budget-gives-way-at-last": SECONDS,
    "one-needed-one-evicted": SECONDS,
    "singles-spared-for-a-whole-group": SECONDS,
}

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in ELSEWHERE], ids=lambda path: path.stem)
def test_scenario_ends_as_it_says(path: Path, live: "ClusterSimulator") -> None:
    """After each step, the pods are where the scenario expects them, and all who fail say why, in one event as well."""
    scenario = msgspec.convert(yaml.safe_load(path.read_text()), Scenario)
    forms = Forms(scenario.priority)
    created = ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods, scenario.budgets)
    at_first = ScenarioStep(create=created, expect=scenario.expect)
    for number, step in enumerate((at_first, *scenario.steps)):
        happen(step, live, forms)
        complaints = live.await_expected(step.expect)  # type: ignore[attr-defined]
        assert not complaints, f"step {number}: {complaints}"


def test_no_scenario_is_forgotten() -> None:
    """Every file of the areas A, C and E and all of preemption are played, but for those with a reason."""
    assert {path.stem for path in FILES} >= ELSEWHERE.keys()
    assert len(FILES) - len(ELSEWHERE) >= 85
    assert len(PREEMPTION) >= 55
