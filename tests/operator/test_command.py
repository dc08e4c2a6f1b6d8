"""The command: what it says when it ends, and the code with which it does."""

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
    """Return the code of an operator that ends with this error."""

    def run(*_: object) -> Coroutine[Any, Any, None]:
        async def fail() -> None:
            if error is not None:
                raise error

        return fail()

    monkeypatch.setattr(app, "run", run)
    path = folder / "kubeconfig"
    path.write_text(KUBECONFIG, encoding="utf-8")
    return __main__.main(["--kubeconfig", str(path)])


def test_what_is_nobodys_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many groups of tasks it came out of."""
    lost = ConnectionFailedError("server", "request", "broken")
    assert ended(monkeypatch, tmp_path, ExceptionGroup("", [ExceptionGroup("", [lost])])) == 1
    assert capsys.readouterr().err == "cpg-operator: server: request: broken\n"


def test_a_mistake_of_ours_is_told_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line of the log, for machines and people alike."""
    assert ended(monkeypatch, tmp_path, ExceptionGroup("", [LookupError("mine")])) == 1
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["error"]) == ("process failed", "critical", "LookupError('mine')")
    assert "Traceback" in line["exception"]


def test_an_end_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Is code 0."""
    assert ended(monkeypatch, tmp_path, None) == 0
