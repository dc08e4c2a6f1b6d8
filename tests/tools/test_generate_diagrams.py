"""The diagrams that are generated into the documents."""

import pytest

import generate_diagrams as tool
from cpg_scheduler.preemption.states import TRANSITIONS, PreemptionState


def test_the_diagram_has_one_line_for_each_transition() -> None:
    """With its states, its trigger, and its guard if it has one."""
    lines = list(tool.state_diagram())[2:-1]
    assert len(lines) == len(TRANSITIONS)
    assert "    Preparing --> Dropped: prepared [not valid any more]\n" in lines
    assert not any(PreemptionState.NEW in line for line in lines)


def test_only_the_text_between_the_markers_is_replaced() -> None:
    """Generating twice changes nothing more."""
    document = f"before\n{tool.BEGIN}old\n{tool.END}after\n"
    once = tool.with_diagram(document)
    assert once.startswith(f"before\n{tool.BEGIN}")
    assert once.endswith(f"{tool.END}after\n")
    assert "old" not in once
    assert tool.with_diagram(once) == once


@pytest.mark.parametrize("document", ["", tool.BEGIN, tool.END, tool.END + tool.BEGIN])
def test_a_document_without_markers_is_an_error(document: str) -> None:
    """Rather than a document without its diagram."""
    with pytest.raises(tool.MarkersMissingError):
        tool.with_diagram(document)


def test_the_document_is_up_to_date() -> None:
    """`make generate` mends it."""
    document = tool.FILE.read_text("utf-8")
    assert tool.with_diagram(document) == document
