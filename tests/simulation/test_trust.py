"""docs/operations/trust.md lists the promises that are checked, in the words of the checks."""

from pathlib import Path

from cpg_simulation.checks.registry import SENT_RULES, SETTLED_RULES, WRITE_RULES

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations" / "trust.md"


def test_every_promise_is_documented() -> None:
    """Each has a row; after a change, copy the line from the failure."""
    document = DOCUMENT.read_text()
    rows = [f"| {rule.name} | {rule.promise} |" for rule in (*WRITE_RULES, *SENT_RULES, *SETTLED_RULES)]
    assert [row for row in rows if row not in document] == []
