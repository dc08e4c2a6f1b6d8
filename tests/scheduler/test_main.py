"""The command: what it says, and the code with which it ends."""

import json
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from cpg_client.errors import ConnectionFailedError
from cpg_scheduler import __main__, app

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Return a kubeconfig that leads nowhere."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG, encoding="utf-8")
    return str(path)


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Every option, with its meaning, and code 0."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("--kubeconfig", "--config", "--api", "--leader-elect", "--listen", "lease"))


def test_an_option_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The code of a wrong command line."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--no-such-option"])
    assert (ended.value.code, "--no-such-option" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schedulerNmae: mine\n", "schedulerNmae"),
        ("leaderElection: {leaseDuration: 2, renewDeadline: 3}\n", "leaderElection: lease settings must keep"),
        ("backoff: {most: -1}\n", "backoff.most: must be a number of seconds"),
        ("backoff: {first: .nan}\n", "backoff.first"),
        ("listen: localhost:99999\n", "listen"),
    ],
)
def test_a_bad_settings_file(
    kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    """Is named, with the mistake; nothing is started."""
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    assert __main__.main(["--kubeconfig", kubeconfig, "--config", str(path)]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert str(path) in said


@pytest.mark.parametrize("option", [("--listen", "nowhere"), ("--scheduler-name", "")])
def test_a_bad_option(kubeconfig: str, capsys: pytest.CaptureFixture[str], option: tuple[str, str]) -> None:
    """The command line is checked as the file is."""
    assert __main__.main(["--kubeconfig", kubeconfig, *option]) == 1
    assert "must" in (said := capsys.readouterr().err) or "is not" in said


@pytest.mark.parametrize("text", ["", "clusters: 7", "apiVersion: v1\nkind: Config\n"])
def test_a_bad_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Is named, whether it is not there, no kubeconfig, or empty."""
    path = tmp_path / "bad-kubeconfig"
    if text:
        path.write_text(text, encoding="utf-8")
    assert __main__.main(["--kubeconfig", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cpg-scheduler: ")
    assert str(path) in said


def test_a_port_that_is_taken(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends the process, although the API server is still waited for: nobody could probe it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert __main__.main(["--kubeconfig", kubeconfig, "--listen", address, "--no-leader-elect"]) == 1
    assert "address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionFailedError("server", "request", "broken"), "cpg-scheduler: server: request: broken\n"),
        (ExceptionGroup("", [ExceptionGroup("", [OSError("no socket")])]), "cpg-scheduler: no socket\n"),
    ],
)
def test_what_is_nobodys_mistake_is_one_line(
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    says: str,
) -> None:
    """However deep it was."""
    monkeypatch.setattr(app, "run", failing(error))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 1
    assert capsys.readouterr().err == says


def test_a_mistake_of_ours_is_told_in_full(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line of the log, for machines and people alike."""
    monkeypatch.setattr(app, "run", failing(ExceptionGroup("", [LookupError("mine")])))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 1
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["error"]) == ("process failed", "critical", "LookupError('mine')")
    assert "Traceback" in line["exception"]


def test_an_end_in_order(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is code 0."""
    monkeypatch.setattr(app, "run", failing(None))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 0


def failing(error: Exception | None) -> Any:  # noqa: ANN401 - in place of a function
    """Return what ends at once, with an error if there is one."""

    def run(*_: object) -> Coroutine[Any, Any, None]:
        async def fail() -> None:
            if error is not None:
                raise error

        return fail()

    return run
