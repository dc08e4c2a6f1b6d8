"""The targets of fuzzing hold for their seeds, for the inputs that are kept, and for a few changes of each.

`make fuzz` follows coverage from there on.
"""

import random
from pathlib import Path

import pytest
from tests.fuzz.inputs import changed_bytes, kept, mutated
from tests.fuzz.targets import TARGETS

import fuzz

MAX_CHANGED = 100
"""Changed inputs of each target."""


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_hold(name: str) -> None:
    """Among them are all that have ever broken a property."""
    chance, target = random.Random(name), TARGETS[name]  # noqa: S311 - no secret
    inputs = [*target.seeds, *kept(name)]
    for data in inputs:
        target.check(data)
    for number in range(MAX_CHANGED):
        data = chance.choice(inputs)
        target.check(mutated(data, 4096, number) if target.is_json else changed_bytes(data, chance))


def test_broken_inputs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, one in a line, before a few of those that reach further code."""
    monkeypatch.setattr(fuzz, "KEPT", tmp_path)
    fuzz.keep_inputs("cel", [b"\n\xff"], [])
    fuzz.keep_inputs("cel", [b"\n\xff"], [b"%d" % number for number in range(100)])
    lines = (tmp_path / "cel.txt").read_text("ascii").splitlines()
    assert lines[:2] == ["b'\\n\\xff'", "b'0'"]
    assert len(lines) == fuzz.MAX_KEPT
