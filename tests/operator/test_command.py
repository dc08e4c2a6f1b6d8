"""The command: its exit code, and what it prints at its end."""

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from cpg_client.errors import ConnectionFailedError
from cpg_operator import __main__, app

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def ended(monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception | None) -> int:
    """Return the exit code of an operator that ends with this error."""

    def run(*_: object) -> Coroutine[Any, Any, None]:
        async def fail() -> None:
            if error is not None:
                raise error

        return fail()

    monkeypatch.setattr(app, "run", run)
    path = folder / "kubeconfig"
    path.write_text(KUBECONFIG, encoding="utf-8")
    return __main__.main(["--kubeconfig", str(path)])


def test_an_error_of_the_api_server_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many task groups it passed through."""
    lost = ConnectionFailedError("server", "request", "broken")
    assert ended(monkeypatch, tmp_path, ExceptionGroup("", [ExceptionGroup("", [lost])])) == 1
    assert capsys.readouterr().err == "cpg-operator: server: request: broken\n"


def test_an_exception_in_our_code_is_logged_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line of the log."""
    assert ended(monkeypatch, tmp_path, ExceptionGroup("", [LookupError("ours")])) == 1
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["error"]) == ("process failed", "critical", "LookupError('ours')")
    assert "Traceback" in line["exception"]


def test_an_operator_that_is_told_to_stop_exits_with_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has done its work."""
    assert ended(monkeypatch, tmp_path, None) == 0
