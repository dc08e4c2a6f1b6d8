"""The planted bugs have to be bugs of the present code."""

import subprocess
from pathlib import Path

import pytest

from cpg_simulation.mutations import PATCHES, ROOT, Mutation, mutations

FOUND = {found.name: found for found in mutations()}


@pytest.mark.parametrize("name", FOUND)
def test_every_patch_applies(name: str) -> None:
    """A patch that does not would be noticed in the night at the earliest."""
    checked = subprocess.run(  # noqa: S603
        ["git", "apply", "--check", str(FOUND[name].patch)],  # noqa: S607  # the git on PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stderr == ""


def test_every_patch_says_what_its_bug_is() -> None:
    """The sentence is all that tells what the nights have to find."""
    assert len(FOUND) > 12
    assert [name for name, found in FOUND.items() if not found.sentence.endswith(".")] == []


def test_a_bug_is_planted_in_a_copy(tmp_path: Path) -> None:
    """The copy has the bug, and the code of this repository does not."""
    Mutation("fence", "").plant(tmp_path)
    place = "api/cpg_client/leader_election.py"
    assert (tmp_path / place).read_text("utf-8") != (ROOT / place).read_text("utf-8")
    assert "leads_until" in (PATCHES / "fence.patch").read_text("utf-8")
