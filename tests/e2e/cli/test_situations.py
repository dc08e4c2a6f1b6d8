"""The situations on a real API server with our scheduler: what an administrator sees, and a user with `view`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.cli.golden_files import FOLDER, assert_golden
from tests.cli.situations_reader import SITUATIONS, target_of

VIEWER = "viewer"

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Space

pytestmark = pytest.mark.e2e


def facts(text: str) -> str:
    """Return a text without its headline, which has a time, without its source, and without line breaks."""
    lines = [line for line in text.splitlines()[1:] if line]
    source = next(place for place, line in enumerate(lines) if line.startswith("SOURCE"))
    return " ".join(" ".join(lines[:source]).split())


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_is_explained(space_of: "Callable[[str], Space]", situation: str) -> None:
    """The answer is that of the golden file, and the status alone gives the same cause to a user with `view`."""
    space, target = space_of(situation), target_of(situation)
    golden = facts((FOLDER / "explain" / f"{situation}.txt").read_text("utf-8"))
    assert space.settled(lambda: facts(space.run("explain", target)), golden) == golden
    status = FOLDER / "status" / f"{situation}.txt"
    known = status.read_text("utf-8").strip() if status.exists() else ""
    seen = space.settled(lambda: facts(space.run("explain", target, "--as", VIEWER)), known)
    assert_golden(f"status/{situation}.txt", f"{seen}\n")


def test_missing_rights_are_named(space_of: "Callable[[str], Space]") -> None:
    """A user with `view` in a namespace learns why the answer comes from the status."""
    space = space_of("quorum")
    text = " ".join(space.run("explain", "train", "--as", VIEWER).split())
    assert "SOURCE status, as the scheduler has written it you may not list all nodes you may not list all pods" in text
