"""Every rule of the native API has cases, or a reason why it has none."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.api.conftest import Case

KINDS_OF_CASE = ("accepted", "refused")


class NativeRule(msgspec.Struct, forbid_unknown_fields=True):
    """A rule, and the kinds of cases that it cannot have."""

    rule: str
    never: Literal["accepted", "refused", "both", ""] = ""
    why: str = ""


RULES = msgspec.convert(yaml.safe_load((Path(__file__).parent / "rules.yaml").read_text()), dict[str, NativeRule])
EXPECTED = {(name, kind) for name, rule in RULES.items() for kind in KINDS_OF_CASE if rule.never not in {kind, "both"}}

pytestmark = pytest.mark.e2e


def test_the_rules_are_complete() -> None:
    """The native API has 80, and every exclusion has a reason."""
    assert len(RULES) == 80
    assert [name for name, rule in RULES.items() if bool(rule.never) != bool(rule.why)] == []


def test_every_rule_has_an_accepted_and_a_refused_case(cases: "tuple[Case, ...]") -> None:
    """A case shows what a rule accepts and one what it refuses; cases name existing rules only."""
    assert {(case.rule, case.expect) for case in cases if case.rule} == EXPECTED


def test_case_names_are_unique_in_their_file(cases: "tuple[Case, ...]") -> None:
    """So that a failing case can be found."""
    names = [(case.file, case.name) for case in cases]
    assert len(names) == len(set(names))
