"""The script that starts a program of the lab."""

import os
import subprocess
import sys

import pytest

from cpg_lab import launcher


def _launch(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-I", "-S", launcher.__file__, str(parent), *command]
    return subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603  # our own script


def test_the_program_does_not_start_after_the_death_of_the_parent() -> None:
    """The script compares its parent with the one that started it."""
    done = _launch(1, "/bin/echo", "hello")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "/bin/echo: the parent died before the program began" in done.stderr


def test_the_program_gets_its_arguments() -> None:
    """Unchanged."""
    assert _launch(os.getpid(), "/bin/echo", "a b", "--c=d").stdout == "a b --c=d\n"


def test_a_refusal_of_the_kernel_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is not started, because it could outlive its parent."""

    class Refusing:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def prctl(self, *_: int) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", Refusing)
    with pytest.raises(SystemExit, match="cannot tie /bin/echo to its parent"):
        launcher.main([str(os.getppid()), "/bin/echo"])
