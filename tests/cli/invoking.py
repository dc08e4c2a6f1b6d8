"""Run a command as users do, without a process."""

from typing import NamedTuple

import pytest

from cpg_cli.__main__ import run


class CommandResult(NamedTuple):
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class CommandRunner:
    """Runs ``kubectl cpg``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Run nothing yet."""
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        """Run a command; lines are stripped, because tables fill them with spaces."""
        self._monkeypatch.setattr("sys.argv", ["kubectl-cpg", *arguments])
        code = run()
        out, err = self._capsys.readouterr()
        return CommandResult(code, "".join(f"{line.rstrip()}\n" for line in out.splitlines()), err)
