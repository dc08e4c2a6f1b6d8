"""Twenty-two situations in which a tree waits: each explanation names the cause first, and a next step that helps."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.golden_files import assert_golden
from tests.cli.situations_reader import SITUATIONS, objects_of, target_of

from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer
from cpg_cli.analysis.assessment import assess
from cpg_cli.analysis.changes import apply
from cpg_cli.analysis.counterfactuals import Counterfactuals, counterfactuals
from cpg_cli.analysis.explanation import explain
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.targets import unit_of
from cpg_cli.rendering.explanation import print_explanation

SOURCE = AnswerSource("view", "your view of the cluster, now")
UNHURRIED = 1e9
"""Seconds for checks: the answer must not depend on the speed of the machine."""


def explained(situation: str) -> ExplainAnswer:
    """Return the answer for a situation."""
    scheduler = OfflineScheduler(objects_of(situation).to_dump())
    return explain(scheduler, unit_of(scheduler.cache, "default", target_of(situation)), SOURCE, seconds=UNHURRIED)


def text_of(answer: ExplainAnswer) -> str:
    """Return an answer as a terminal of 160 characters without colors shows it."""
    console = Console(file=io.StringIO(), width=160, soft_wrap=True, highlight=False)
    print_explanation(console, answer, now=0.0)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_there_are_twenty_two() -> None:
    """No situation is missing."""
    assert len(SITUATIONS) == 22


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_is_explained(situation: str) -> None:
    """The text is that of its golden file, and fits a terminal of 100 columns."""
    text = text_of(explained(situation))
    assert max(map(len, text.splitlines())) <= 100
    assert_golden(f"explain/{situation}.txt", text)


def checked(situation: str) -> tuple[OfflineScheduler, Counterfactuals]:
    """Return a scheduler and the changes that it says would help."""
    scheduler = OfflineScheduler(objects_of(situation).to_dump())
    found = assess(scheduler, unit_of(scheduler.cache, "default", target_of(situation)))
    return scheduler, counterfactuals(scheduler, found, seconds=UNHURRIED)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_change_that_is_shown_places_the_tree(situation: str) -> None:
    """Made for good in a fresh cache, alone, each of them lets the unit be placed, or preempt and then be placed."""
    _, answer = checked(situation)
    for one in answer.found:
        scheduler = OfflineScheduler(objects_of(situation).to_dump())
        unit = unit_of(scheduler.cache, "default", target_of(situation))
        apply(scheduler.cache, one.changes)
        scheduler.cache.take_events()
        after = assess(scheduler, scheduler.cache.current_unit(unit))
        if one.evictions:
            assert after.preemption is not None, one.text
            assert after.preemption.evictions == one.evictions, one.text
        else:
            assert after.is_placed, one.text


@pytest.mark.parametrize("situation", SITUATIONS)
def test_checks_change_nothing(situation: str) -> None:
    """After all checks the scheduler gives the answer that it gave before."""
    scheduler, _ = checked(situation)
    unit = unit_of(scheduler.cache, "default", target_of(situation))
    assert explain(scheduler, unit, SOURCE, seconds=UNHURRIED) == explained(situation)


def test_no_golden_file_is_left_over() -> None:
    """Every golden file has its situation."""
    folder = Path(__file__).parent / "golden" / "explain"
    assert sorted(path.stem for path in folder.iterdir()) == SITUATIONS
