"""Named clusters, their state and their processes."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab import building, labs
from cpg_lab.errors import LabError, StateError
from cpg_lab.labs import Lab, LabState
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

SLEEP = "import time; time.sleep(60)"
DEAD = ProcessIdentity(2**22 + 1, 1)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a lab that was never started."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(building, "ensure", lambda *_: {})
    return Lab("some", root=tmp_path / "labs")


def with_state(lab: Lab, state: LabState, spec: ClusterSpec | None = None) -> None:
    """Write a state as a supervisor would."""
    lab.folder.path.mkdir(parents=True, exist_ok=True)
    lab.folder.write_spec(spec or ClusterSpec())
    lab.folder.write_state(state)


def running(run: "Runner") -> LabState:
    """Return the state of a lab with small programs as supervisor and component."""
    supervisor, component = run(SLEEP, name="supervisor").identity, run(SLEEP, name="component").identity
    assert supervisor is not None
    assert component is not None
    return LabState(
        supervisor=supervisor,
        phase="ready",
        url="https://127.0.0.1:1",
        kubectl_path="/kubectl",
        components=(("etcd", component),),
    )


@pytest.mark.parametrize("name", ["", "A", "../up", "-a", "a" * 41])
def test_names_are_restricted(name: str) -> None:
    """A name becomes a folder, so it has lower-case letters, digits and dashes only."""
    with pytest.raises(StateError, match="cannot be the name of a lab"):
        Lab(name)


def test_a_lab_without_a_folder_is_down(lab: Lab) -> None:
    """It has no access, and stopping it is no error."""
    assert lab.report().phase == "down"
    assert not lab.report().is_healthy
    assert not lab.down()
    with pytest.raises(StateError, match="some does not run; start it with: cpg-lab up --name some"):
        lab.access()


def test_a_running_lab_is_found(lab: Lab, run: "Runner") -> None:
    """Its state has the access and healthy components, and it is listed."""
    with_state(lab, running(run))
    assert lab.report().is_healthy
    assert lab.access().url == "https://127.0.0.1:1"
    assert [known.name for known in labs.known(lab.root)] == ["some"]
    assert lab.folder.state.stat().st_mode & 0o777 == 0o600


def test_starting_a_running_lab_does_nothing(lab: Lab, run: "Runner") -> None:
    """Starting it with another spec is an error."""
    with_state(lab, running(run))
    assert not lab.up(ClusterSpec())
    with pytest.raises(StateError, match="first: cpg-lab down --name some"):
        lab.up(ClusterSpec(gates="native"))
    assert lab.report().is_healthy


def test_a_dead_component_is_reported(lab: Lab, run: "Runner") -> None:
    """The lab is not healthy, and the report names the component."""
    with_state(lab, replace(running(run), components=(("kwok", DEAD),)))
    assert lab.report().components == (("kwok", DEAD.pid, False),)
    assert not lab.report().is_healthy


def test_a_dead_supervisor_is_reported(lab: Lab) -> None:
    """The lab is dead and has no access."""
    with_state(lab, LabState(supervisor=DEAD, phase="ready"))
    assert lab.report().phase == "dead"
    with pytest.raises(StateError, match="does not run"):
        lab.access()


def test_down_ends_exactly_the_processes_of_the_lab(lab: Lab, run: "Runner") -> None:
    """By force if need be; a process that only has the same number is left alone."""
    bystander = run(SLEEP, name="bystander").identity
    assert bystander is not None
    state = running(run)
    stranger = replace(bystander, started=bystander.started - 1)
    with_state(lab, replace(state, components=(*state.components, ("kwok", stranger))))
    (_, component), *_ = state.components
    component.send(signal.SIGKILL)  # else it would have to be waited for: this supervisor does not care
    assert lab.down()
    assert not state.supervisor.is_running()
    assert bystander.is_running()
    assert not lab.root.exists()


def test_components_that_outlive_their_supervisor_are_killed(
    lab: Lab, run: "Runner", monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a timeout."""
    monkeypatch.setattr(labs, "STOP_TIMEOUT", 0.3)
    state = running(run)
    with_state(lab, state)
    assert lab.down()
    assert not any(identity.is_running() for _, identity in state.components)


def test_an_invalid_state_counts_as_none(lab: Lab) -> None:
    """After a partial file, or one of another version, the lab is down and can be removed."""
    with_state(lab, LabState(supervisor=DEAD))
    lab.folder.state.write_text('{"supervisor": 5')
    assert lab.report().phase == "down"
    assert lab.down()


def test_the_error_of_the_supervisor_is_raised(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """When starting fails, with the folder of the logs."""
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    failed = LabState(supervisor=me, phase="failed", error="etcd died")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: lab.folder.write_state(failed))
    monkeypatch.setattr(Lab, "_end_processes", lambda *_: None)  # it would end the tests
    with pytest.raises(LabError, match=r"(?s)etcd died\nThe logs are in .*/labs/some/logs"):
        lab.up(ClusterSpec(), Display())


def test_a_failed_start_leaves_only_logs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither data nor keys are left."""

    def run(*_: object, **__: object) -> None:
        lab.files.logs.mkdir()
        lab.files.etcd_data.mkdir()
        lab.files.kubeconfig.touch()
        lab.folder.write_state(LabState(supervisor=DEAD))

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(StateError):
        lab.up(ClusterSpec(), Display())
    left = {path.name for path in lab.folder.path.iterdir()}
    assert left == {"spec.json", "state.json", "supervisor.log", "logs"}


def test_an_interrupted_start_leaves_nothing(lab: Lab, run: "Runner", monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the start ends the supervisor, and removes folder and lock."""
    state = replace(running(run), components=())

    def interrupted(*_: object, **__: object) -> None:
        lab.folder.write_state(state)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.up(ClusterSpec(), Display())
    assert not state.supervisor.is_running()
    assert list(lab.root.iterdir()) == []


def test_a_supervisor_that_ends_early_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the supervisor's output."""

    def run(*_: object, **__: object) -> None:
        lab.folder.log.write_text("Traceback: no module")
        lab.folder.write_state(LabState(supervisor=DEAD))

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(StateError, match=r"(?s)the supervisor ended:\nTraceback: no module"):
        lab.up(ClusterSpec(), Display())


def test_a_supervisor_that_never_becomes_ready_is_ended(
    lab: Lab, run: "Runner", monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a timeout, with an error."""
    monkeypatch.setattr(labs, "START_TIMEOUT", 0.2)
    state = replace(running(run), phase="starting", components=())
    monkeypatch.setattr("subprocess.run", lambda *_, **__: lab.folder.write_state(state))
    with pytest.raises(StateError, match="was not ready within"):
        lab.up(ClusterSpec(), Display())
    assert not state.supervisor.is_running()
