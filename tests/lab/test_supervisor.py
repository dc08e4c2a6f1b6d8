"""The life of the supervisor, with a fake cluster."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpg_lab import building, supervisor
from cpg_lab.errors import StartError
from cpg_lab.labs import LabFolder, LabState
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.specs import ClusterSpec


class FakeCluster:
    """A cluster without processes, which records its calls."""

    fails = ""
    done: list[str]
    url = "https://127.0.0.1:1"
    token = "secret"  # noqa: S105  # of nothing
    processes: dict[str, object]

    def __init__(self, spec: ClusterSpec, *, folder: Path) -> None:
        assert spec == ClusterSpec()
        assert folder.is_dir()
        self.processes = {}
        FakeCluster.done = []

    def start(self) -> None:
        """Start, or fail."""
        self.done.append("start")
        if self.fails:
            raise StartError(self.fails)

    def stop(self) -> None:
        """Stop."""
        self.done.append("stop")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabFolder]:
    """Return the folder of a lab with this process as supervisor."""
    monkeypatch.setattr(supervisor, "Cluster", FakeCluster)
    monkeypatch.setattr(supervisor, "_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(building, "ensure", lambda _: {"kubectl": Path("/kubectl")})
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    folder = LabFolder(tmp_path)
    folder.write_spec(ClusterSpec())
    folder.write_state(LabState(supervisor=me))
    yield folder
    for number, handler in before:
        signal.signal(number, handler)


def later(action: object) -> threading.Thread:
    """Call a function once the supervisor is ready."""
    assert callable(action)

    def wait_and_act() -> None:
        time.sleep(0.3)
        action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_signal_stops_the_cluster(folder: LabFolder) -> None:
    """Its state is ready before, and the cluster stops first."""
    states: list[LabState | None] = []

    def end() -> None:
        states.append(folder.read_state())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = later(end)
    with pytest.raises(SystemExit, match="ended by SIGTERM"):
        supervisor.supervise(folder)
    thread.join()
    (state,) = states
    assert state is not None
    assert (state.phase, state.url, state.kubectl_path) == ("ready", "https://127.0.0.1:1", "/kubectl")
    assert FakeCluster.done == ["start", "stop"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_it_ends_with_its_folder(folder: LabFolder) -> None:
    """Without the folder no command could find it again."""
    thread = later(folder.state.unlink)
    supervisor.supervise(folder)
    thread.join()
    assert FakeCluster.done == ["start", "stop"]


def test_a_failed_start_is_in_the_state(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the error, and components that did start are stopped."""
    monkeypatch.setattr(FakeCluster, "fails", "etcd died")
    supervisor.supervise(folder)
    state = folder.read_state()
    assert state is not None
    assert (state.phase, state.error) == ("failed", "etcd died")
    assert FakeCluster.done == ["start", "stop"]


def test_without_a_state_it_does_not_start(folder: LabFolder) -> None:
    """No command could find such a supervisor."""
    folder.state.unlink()
    with pytest.raises(SystemExit, match="does not name a supervisor"):
        supervisor.supervise(folder)
