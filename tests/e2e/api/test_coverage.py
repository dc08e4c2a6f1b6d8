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
    """A rule in words, and which cases of it there cannot be."""

    rule: str
    never: Literal["accepted", "refused", "both", ""] = ""
    why: str = ""


RULES = msgspec.convert(yaml.safe_load((Path(__file__).parent / "rules.yaml").read_text()), dict[str, NativeRule])
WANTED = {
    (number, kind) for number, rule in RULES.items() for kind in KINDS_OF_CASE if rule.never not in {kind, "both"}
}

pytestmark = pytest.mark.e2e


def test_the_rules_are_complete() -> None:
    """The list has no gap, and no exception without a reason."""
    assert list(RULES) == [f"L{number:02}" for number in range(1, 80)]
    assert [number for number, rule in RULES.items() if bool(rule.never) != bool(rule.why)] == []


def test_every_rule_has_an_accepted_and_a_refused_case(cases: "tuple[Case, ...]") -> None:
    """What a rule lets through is shown as well as what it stops, and no case is about anything else."""
    assert {(case.rule, case.expect) for case in cases if case.rule} == WANTED


def test_case_names_are_unique_in_their_file(cases: "tuple[Case, ...]") -> None:
    """A failing case can be found by its name."""
    names = [(case.file, case.name) for case in cases]
    assert len(names) == len(set(names))
