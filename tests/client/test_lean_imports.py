"""The processes do not import what only the command line needs."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    """Return what a new Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return done.stdout.strip()


@pytest.mark.parametrize("program", ["cpg_scheduler", "cpg_operator"])
def test_a_process_imports_no_part_of_the_command_line(program: str) -> None:
    """Rich alone takes a sixth of the start of the scheduler."""
    unwanted = {"rich", "kubernetes"}
    code = f"import sys, {program}.__main__; print(*sorted({unwanted!r} & set(sys.modules)))"
    assert run(code) == ""


def test_rich_can_be_imported_afterwards() -> None:
    """The command line imports it after the client."""
    assert run("import cpg_client, rich.console, structlog; print(structlog.dev.rich, rich.__name__)") == "None rich"


@pytest.mark.parametrize("first", ["rich", "structlog"])
def test_what_is_imported_already_stays(first: str) -> None:
    """Nothing is taken away from others."""
    assert run(f"import {first}; import cpg_client, rich; print(rich.__name__)") == "rich"
