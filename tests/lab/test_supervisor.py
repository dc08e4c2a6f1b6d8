"""The supervisor's life, with a cluster that only pretends."""

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


class Pretended:
    """A cluster without processes; it notes what is done to it."""

    fails = ""
    done: list[str]
    url = "https://127.0.0.1:1"
    token = "secret"  # noqa: S105  # of nothing
    processes: dict[str, object]

    def __init__(self, spec: ClusterSpec, *, folder: Path) -> None:
        assert spec == ClusterSpec()
        assert folder.is_dir()
        self.processes = {}
        Pretended.done = []

    def start(self) -> None:
        """Start, or fail to."""
        self.done.append("start")
        if self.fails:
            raise StartError(self.fails)

    def stop(self) -> None:
        """Stop."""
        self.done.append("stop")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabFolder]:
    """Give the folder of a lab whose supervisor is this very process."""
    monkeypatch.setattr(supervisor, "Cluster", Pretended)
    monkeypatch.setattr(supervisor, "_LOOK_EVERY", 0.02)
    monkeypatch.setattr(building, "ensure", lambda _: {"kubectl": Path("/kubectl")})
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    place = LabFolder(tmp_path)
    place.write_spec(ClusterSpec())
    place.write_state(LabState(supervisor=me))
    yield place
    for number, handler in before:
        signal.signal(number, handler)


def later(action: object) -> threading.Thread:
    """Do something when the supervisor has got ready."""
    assert callable(action)

    def wait_and_act() -> None:
        time.sleep(0.3)
        action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_signal_ends_it_in_order(place: LabFolder) -> None:
    """It tells that all is ready, and when told to end stops the cluster first."""
    states: list[LabState | None] = []

    def end() -> None:
        states.append(place.read_state())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = later(end)
    with pytest.raises(SystemExit, match="told to end by SIGTERM"):
        supervisor.supervise(place)
    thread.join()
    (state,) = states
    assert state is not None
    assert (state.phase, state.url, state.kubectl_path) == ("ready", "https://127.0.0.1:1", "/kubectl")
    assert Pretended.done == ["start", "stop"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_it_ends_with_its_folder(place: LabFolder) -> None:
    """When somebody removes the folder nobody could find it again, so it ends by itself."""
    thread = later(place.state.unlink)
    supervisor.supervise(place)
    thread.join()
    assert Pretended.done == ["start", "stop"]


def test_a_failure_is_told(place: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cluster does not start, the state says why, and what did start is stopped."""
    monkeypatch.setattr(Pretended, "fails", "etcd died")
    supervisor.supervise(place)
    state = place.read_state()
    assert state is not None
    assert (state.phase, state.error) == ("failed", "etcd died")
    assert Pretended.done == ["start", "stop"]


def test_without_a_state_it_does_not_begin(place: LabFolder) -> None:
    """A supervisor that nobody could find does not start anything."""
    place.state.unlink()
    with pytest.raises(SystemExit, match="does not say who I am"):
        supervisor.supervise(place)
