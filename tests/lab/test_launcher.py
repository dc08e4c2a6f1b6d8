"""The script between us and a program."""

import os
import subprocess
import sys

import pytest

from cpg_lab import launcher


def _launch(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-I", "-S", launcher.__file__, str(parent), *command]
    return subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603  # our own script


def test_a_dead_parent_is_noticed() -> None:
    """A script whose parent is not the one that started it does not become the program."""
    done = _launch(1, "/bin/echo", "hello")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "/bin/echo: the parent died before the program began" in done.stderr


def test_it_becomes_the_program_with_its_arguments() -> None:
    """The program gets its arguments as they are."""
    assert _launch(os.getpid(), "/bin/echo", "a b", "--c=d").stdout == "a b --c=d\n"


def test_a_kernel_that_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tie cannot be made the program is not started: it could be left behind."""

    class Refusing:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def prctl(self, *_: int) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", Refusing)
    with pytest.raises(SystemExit, match="cannot tie /bin/echo to its parent"):
        launcher.main([str(os.getppid()), "/bin/echo"])
