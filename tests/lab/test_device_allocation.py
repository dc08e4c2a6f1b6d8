"""Requests to dracheck, with a fake program; the real one runs in tests/e2e/differential."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab.device_allocation import DeviceAnswer, Dracheck
from cpg_lab.errors import LabError

PROGRAM = """
import json, sys
for line in sys.stdin:
    node = json.loads(line)["node"]
    if not node:
        sys.exit("dracheck: no node")
    print(json.dumps({"results": None, "error": "no device for " + node, "late": False}))
"""


@pytest.fixture
def dracheck(program: Callable[[str, str], Path]) -> Dracheck:
    """Return a fake dracheck."""
    return Dracheck(program("dracheck", PROGRAM))


def test_each_case_has_an_answer(dracheck: Dracheck) -> None:
    """In the order of the cases."""
    assert dracheck.solve([{"node": "a"}, {"node": "b"}]) == [
        DeviceAnswer(error="no device for a"),
        DeviceAnswer(error="no device for b"),
    ]


def test_an_error_of_the_program_is_raised(dracheck: Dracheck) -> None:
    """With its message."""
    with pytest.raises(LabError, match="dracheck: no node"):
        dracheck.solve([{"node": ""}])
