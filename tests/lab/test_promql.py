"""How our program for PromQL is asked, with one that only pretends; the real one is asked in tests/e2e/monitoring."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab.errors import LabError
from cpg_lab.promql import Firing, Promcheck, Selector

PROGRAM = """
import json, sys
asked = json.load(sys.stdin)
if not asked["histories"]:
    sys.exit("promcheck: nothing to play")
alert = {"alert": asked["rules"], "after": 30.0, "labels": {}, "annotations": {}}
print(json.dumps({
    "fired": {name: [alert] for name in asked["histories"]},
    "found": {
        name: {one: len(told["series"]) for one in asked["expressions"]} for name, told in asked["histories"].items()
    },
    "selectors": {one: [{"metric": one, "labels": ["pod"]}] for one in asked["expressions"]},
}))
"""


@pytest.fixture
def promcheck(program: Callable[[str, str], Path]) -> Promcheck:
    """Return one that pretends."""
    return Promcheck(program("promcheck", PROGRAM))


def test_the_answer_is_by_history_and_expression(promcheck: Promcheck) -> None:
    """Rules go as the text of a file, expressions and series as they are."""
    rules = {"groups": [{"name": "g", "rules": []}]}
    told = promcheck.ask({"idle": {"up": "1x240"}}, rules=rules, expressions=["up"])
    assert told.fired == {"idle": [Firing(alert=json.dumps(rules), after=30.0, labels={}, annotations={})]}
    assert told.found == {"idle": {"up": 1}}
    assert told.selectors == {"up": [Selector(metric="up", labels=("pod",))]}


def test_what_cannot_be_played_is_said(promcheck: Promcheck) -> None:
    """In the words of the program."""
    with pytest.raises(LabError, match="promcheck: nothing to play"):
        promcheck.ask({})
