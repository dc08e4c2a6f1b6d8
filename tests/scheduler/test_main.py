"""The command: what it writes, and its exit code."""

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
    """Return a kubeconfig of a server that does not answer."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG, encoding="utf-8")
    return str(path)


def test_help_lists_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--help"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert all(word in output for word in ("--kubeconfig", "--config", "--api", "--leader-elect", "--listen", "lease"))


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--no-such-option"])
    assert (ended.value.code, "--no-such-option" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedulerNmae: mine\n", "schedulerNmae"),
        ("leaderElection: {leaseDuration: 2, renewDeadline: 3}\n", "leaderElection: lease settings must keep"),
        ("backoff: {most: -1}\n", "backoff.most: must be a number of seconds"),
        ("backoff: {first: .nan}\n", "backoff.first"),
        ("listen: localhost:99999\n", "listen"),
    ],
)
def test_an_invalid_settings_file_is_reported_with_its_problem(
    kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """Nothing is started."""
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    assert __main__.main(["--kubeconfig", kubeconfig, "--config", str(path)]) == 1
    output = capsys.readouterr().err
    assert message in output
    assert str(path) in output


@pytest.mark.parametrize("option", [("--listen", "nowhere"), ("--scheduler-name", "")])
def test_an_invalid_option_value_is_reported(
    kubeconfig: str, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    """Options are checked like the settings of a file."""
    assert __main__.main(["--kubeconfig", kubeconfig, *option]) == 1
    assert "must" in (output := capsys.readouterr().err) or "is not" in output


@pytest.mark.parametrize("text", ["", "clusters: 7", "apiVersion: v1\nkind: Config\n"])
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """It is missing, no kubeconfig, or empty."""
    path = tmp_path / "bad-kubeconfig"
    if text:
        path.write_text(text, encoding="utf-8")
    assert __main__.main(["--kubeconfig", str(path)]) == 1
    output = capsys.readouterr().err
    assert output.startswith("cpg-scheduler: ")
    assert str(path) in output


def test_a_port_in_use_ends_the_process(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Though the API server is not reached yet: without its port, the process could not be probed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert __main__.main(["--kubeconfig", kubeconfig, "--listen", address, "--no-leader-elect"]) == 1
    assert "address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionFailedError("server", "request", "broken"), "cpg-scheduler: server: request: broken\n"),
        (ExceptionGroup("", [ExceptionGroup("", [OSError("no socket")])]), "cpg-scheduler: no socket\n"),
    ],
)
def test_an_error_of_the_environment_is_one_line(
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    message: str,
) -> None:
    """Also from deep inside a group of exceptions."""
    monkeypatch.setattr(app, "run", run_returning(error))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 1
    assert capsys.readouterr().err == message


def test_a_defect_is_logged_with_its_traceback(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line of JSON."""
    monkeypatch.setattr(app, "run", run_returning(ExceptionGroup("", [LookupError("mine")])))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 1
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["error"]) == ("process failed", "critical", "LookupError('mine')")
    assert "Traceback" in line["exception"]


def test_a_process_that_was_told_to_end_exits_with_0(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended in order."""
    monkeypatch.setattr(app, "run", run_returning(None))
    assert __main__.main(["--kubeconfig", kubeconfig]) == 0


def run_returning(error: Exception | None) -> Any:  # noqa: ANN401 - in place of a function
    """Return a coroutine function that ends at once, with an error if there is one."""

    def run(*_: object) -> Coroutine[Any, Any, None]:
        async def fail() -> None:
            if error is not None:
                raise error

        return fail()

    return run
