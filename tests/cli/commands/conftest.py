"""The fixture that runs commands."""

import pytest
from tests.cli.invoking import CommandRunner


@pytest.fixture
def kubectl_cpg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    """Return what runs a command."""
    return CommandRunner(monkeypatch, capsys)
