"""Deployments that run as processes for as long as a named cluster."""

import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from cpg_lab import deployment_host
from cpg_lab.errors import LabError
from cpg_lab.labs import Lab, LabState

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

SLEEP = "import time; time.sleep(60)"


class FakePodProcess:
    """A pod with a URL."""

    def url(self) -> str:
        """Return where the pod listens."""
        return "http://127.0.0.1:1"


class FakeDeployments:
    """Deployments that record whether they run."""

    log: list[str]

    def __init__(self, _: object, found: list[dict[str, Any]], *, folder: Path) -> None:
        """Take the Deployments."""
        self.folder = folder
        self.pods = {one["name"]: [FakePodProcess()] for one in found}

    def __enter__(self) -> Self:
        self.log.append("started")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("ended")


class FakeAccess:
    """An API server with one Deployment."""

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return the Deployment."""
        return subprocess.CompletedProcess(arguments, 0, stdout=json.dumps({"items": [{"name": "a"}]}))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a lab with the fake API server."""
    monkeypatch.setenv("KUBE_CPG_LAB", str(tmp_path))
    monkeypatch.setattr(Lab, "access", lambda _: FakeAccess())
    monkeypatch.setattr(deployment_host, "Deployments", FakeDeployments)
    monkeypatch.setattr(FakeDeployments, "log", [], raising=False)
    found = Lab("some")
    found.folder.path.mkdir(parents=True)
    return found


def test_deployments_end_with_the_cluster(lab: Lab, run: "Runner") -> None:
    """They become ready while the supervisor runs, and end with it."""
    supervisor = run(SLEEP, name="supervisor")
    assert supervisor.identity is not None
    lab.folder.write_state(LabState(supervisor=supervisor.identity, phase="ready"))
    ready = lab.folder.path / "hosted" / "ours" / deployment_host.READY
    ready.parent.mkdir(parents=True)
    hosted = threading.Thread(target=deployment_host.run_host, args=(lab, "ours"))
    hosted.start()
    while not ready.exists():
        assert hosted.is_alive()
    assert json.loads(ready.read_text())["urls"] == {"a": ["http://127.0.0.1:1"]}
    supervisor.kill()
    hosted.join(10)
    assert FakeDeployments.log == ["started", "ended"]


def test_a_lab_that_does_not_run_hosts_nothing(lab: Lab) -> None:
    """The error is a sentence for the command line."""
    with pytest.raises(LabError, match="some does not run"):
        deployment_host.run_host(lab, "ours")


def test_the_log_of_a_failed_host_is_in_the_error(lab: Lab) -> None:
    """The host process finds no cluster, and its error output reaches the caller."""
    with pytest.raises(LabError, match="some does not run"):
        deployment_host.start_host(lab, "ours")


def test_a_running_host_is_used_again(lab: Lab, run: "Runner") -> None:
    """A second call returns the same URLs; a host that died is replaced."""
    host = run(SLEEP, name="host")
    assert host.identity is not None
    folder = lab.folder.path / "hosted" / "ours"
    folder.mkdir(parents=True)
    ready = deployment_host.HostedDeployments(host.identity, {"a": ["http://127.0.0.1:1"]})
    (folder / deployment_host.READY).write_bytes(msgspec.json.encode(ready))
    assert deployment_host.start_host(lab, "ours") == ready.urls
    host.kill()
    with pytest.raises(LabError, match="some does not run"):
        deployment_host.start_host(lab, "ours")
