"""Decision cases: one decision about one tree, and the check that it leaves no trace."""

from collections.abc import Iterator

import pytest

from cpg_engine.testing.decision_case import DecisionCase


def test_a_case_returns_its_decision_by_names() -> None:
    """Pods and nodes have the names of the forms."""
    found = DecisionCase(["n1 2"], {"root": {"children": {"pg": {"gang": 2}}}}, ["2x1@pg"]).decide()
    assert found.binds == {"pg-1": "n1", "pg-2": "n1"}
    assert found.step is None


def test_a_trace_in_the_ledger_is_an_error() -> None:
    """Every change of the ledger that is not rolled back is detected."""
    trial = DecisionCase(["n1 2"], {"root": None}, ["1@root"])

    def spoiling() -> Iterator[str]:
        trial.snapshot.ledger.used[0] += 1
        yield from ()

    with pytest.raises(AssertionError, match="the ledger is not what it was"):
        trial.decide(ignored=spoiling())
