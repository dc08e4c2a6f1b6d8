"""Requests to promcheck, with a fake program; the real one runs in tests/e2e/monitoring."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab.errors import LabError
from cpg_lab.promql import Firing, Promcheck, Selector

PROGRAM = """
import json, sys
request = json.load(sys.stdin)
if not request["histories"]:
    sys.exit("promcheck: nothing to play")
alert = {"alert": request["rules"], "after": 30.0, "labels": {}, "annotations": {}}
print(json.dumps({
    "fired": {name: [alert] for name in request["histories"]},
    "found": {
        name: {one: len(history["series"]) for one in request["expressions"]}
        for name, history in request["histories"].items()
    },
    "selectors": {one: [{"metric": one, "labels": ["pod"]}] for one in request["expressions"]},
}))
"""


@pytest.fixture
def promcheck(program: Callable[[str, str], Path]) -> Promcheck:
    """Return a fake promcheck."""
    return Promcheck(program("promcheck", PROGRAM))


def test_results_are_by_history_and_expression(promcheck: Promcheck) -> None:
    """Rules are sent as the text of a file, expressions and series as they are."""
    rules = {"groups": [{"name": "g", "rules": []}]}
    result = promcheck.evaluate({"idle": {"up": "1x240"}}, rules=rules, expressions=["up"])
    assert result.fired == {"idle": [Firing(alert=json.dumps(rules), after=30.0, labels={}, annotations={})]}
    assert result.found == {"idle": {"up": 1}}
    assert result.selectors == {"up": [Selector(metric="up", labels=("pod",))]}


def test_an_error_of_the_program_is_raised(promcheck: Promcheck) -> None:
    """With its message."""
    with pytest.raises(LabError, match="promcheck: nothing to play"):
        promcheck.evaluate({})
