"""The reference of ``kubectl cpg`` names every field of its answers, every command and every kind of change."""

import re
from pathlib import Path

import msgspec
import pytest

from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer, FitsIf, TreeName
from cpg_cli.analysis.assessment import PlannedEviction, PreemptionAnswer
from cpg_cli.analysis.trees import GroupView, NamespaceView, PodView
from cpg_cli.root import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kubectl-cpg.md"
CANDIDATES = Path(__file__).parents[2] / "cli" / "cpg_cli" / "analysis" / "candidates"
ANSWERS = [
    ExplainAnswer,
    TreeName,
    PreemptionAnswer,
    PlannedEviction,
    FitsIf,
    AnswerSource,
    NamespaceView,
    GroupView,
    PodView,
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_fields_are_documented(answer: type[msgspec.Struct]) -> None:
    """Under the names that JSON has."""
    page = PAGE.read_text("utf-8")
    assert [one.encode_name for one in msgspec.structs.fields(answer) if f"`{one.encode_name}`" not in page] == []


def test_kinds_of_changes_are_documented() -> None:
    """Each kind that the code can answer."""
    code = "".join(path.read_text("utf-8") for path in CANDIDATES.glob("*.py"))
    kinds = set(re.findall(r'(?:Counterfactual\(\s*|_Constraint\(\s*|_if_fits\(case, |_found\(case, )"(\w+)"', code))
    assert len(kinds) >= 16
    page = PAGE.read_text("utf-8")
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()


def test_commands_are_documented() -> None:
    """Each has a section in a page of the reference."""
    pages = "".join(path.read_text("utf-8") for path in PAGE.parent.glob("*.md"))
    assert [name for name in COMMANDS if f"\n## {name}\n" not in pages] == []
