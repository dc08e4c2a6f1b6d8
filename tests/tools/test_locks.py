"""What the image installs, beside what the project needs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
COMMAND_LINE = {"click>=8.3", "kubernetes>=35", "rich>=14.0"}
"""The dependencies that only ``kubectl cpg`` imports; Kopf brings click."""


def pinned(lock: str) -> set[str]:
    """Return the packages of a lock with their versions."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text("utf-8")
    return set(re.findall(r"(?m)^([a-z0-9-]+==\S+)", text))


def test_the_processes_need_all_but_the_packages_of_the_command_line() -> None:
    """The two lists of pyproject.toml cannot differ by accident."""
    assert {*PROJECT["project"]["dependencies"]} - {*PROJECT["dependency-groups"]["processes"]} == COMMAND_LINE
    assert {*PROJECT["dependency-groups"]["processes"]} < {*PROJECT["project"]["dependencies"]}


def test_both_locks_have_the_same_versions() -> None:
    """The archive of the command line runs the code of the image with the packages of the image."""
    assert pinned("processes") < pinned("runtime")
    assert not any(one.startswith(("rich==", "kubernetes==")) for one in pinned("processes"))
