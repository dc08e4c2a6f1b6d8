"""Named clusters: their state, and who may be ended."""

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
    """Give a lab that was never started."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(building, "ensure", lambda *_: {})
    return Lab("some", root=tmp_path / "labs")


def noted(lab: Lab, state: LabState, spec: ClusterSpec | None = None) -> None:
    """Write down a state as a supervisor would."""
    lab.folder.path.mkdir(parents=True, exist_ok=True)
    lab.folder.write_spec(spec or ClusterSpec())
    lab.folder.write_state(state)


def running(run: "Runner") -> LabState:
    """Give the state of a lab whose supervisor and component are small programs."""
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
def test_names_are_plain(name: str) -> None:
    """A name becomes a folder, so it has small letters, digits and dashes only."""
    with pytest.raises(StateError, match="cannot be the name of a lab"):
        Lab(name)


def test_what_was_never_up_is_down(lab: Lab) -> None:
    """A lab without a folder is down: there is no way in, nothing to stop, and that is no error."""
    assert lab.report().phase == "down"
    assert not lab.report().well
    assert not lab.down()
    with pytest.raises(StateError, match="some does not run; start it with: cpg-lab up --name some"):
        lab.access()


def test_a_running_lab_is_found(lab: Lab, run: "Runner") -> None:
    """Its state tells the way in, and that all is well; it is in the list of labs."""
    noted(lab, running(run))
    assert lab.report().well
    assert lab.access().url == "https://127.0.0.1:1"
    assert [known.name for known in labs.known(lab.root)] == ["some"]
    assert lab.folder.state.stat().st_mode & 0o777 == 0o600


def test_one_that_runs_as_asked_is_left_alone(lab: Lab, run: "Runner") -> None:
    """Starting what runs does nothing; asking for something else is an error, not a surprise."""
    noted(lab, running(run))
    assert not lab.up(ClusterSpec())
    with pytest.raises(StateError, match="first: cpg-lab down --name some"):
        lab.up(ClusterSpec(gates="native"))
    assert lab.report().well


def test_a_dead_component_is_reported(lab: Lab, run: "Runner") -> None:
    """When a component died the lab is not well, and the report says which one."""
    noted(lab, replace(running(run), components=(("kwok", DEAD),)))
    assert lab.report().components == (("kwok", DEAD.pid, False),)
    assert not lab.report().well


def test_a_dead_supervisor_is_reported(lab: Lab) -> None:
    """When the supervisor died the lab is dead, and has no way in."""
    noted(lab, LabState(supervisor=DEAD, phase="ready"))
    assert lab.report().phase == "dead"
    with pytest.raises(StateError, match="does not run"):
        lab.access()


def test_down_ends_those_and_only_those(lab: Lab, run: "Runner") -> None:
    """Everything noted is ended, by force if need be; one that has only the number in common is left alone."""
    bystander = run(SLEEP, name="bystander").identity
    assert bystander is not None
    state = running(run)
    stranger = replace(bystander, started=bystander.started - 1)
    noted(lab, replace(state, components=(*state.components, ("kwok", stranger))))
    (_, component), *_ = state.components
    component.send(signal.SIGKILL)  # else it would have to be waited for: this supervisor does not care
    assert lab.down()
    assert not state.supervisor.is_running()
    assert bystander.is_running()
    assert not lab.root.exists()


def test_the_stubborn_are_forced(lab: Lab, run: "Runner", monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that its supervisor left behind is ended by force, after some patience."""
    monkeypatch.setattr(labs, "STOP_TIMEOUT", 0.3)
    state = running(run)
    noted(lab, state)
    assert lab.down()
    assert not any(identity.is_running() for _, identity in state.components)


def test_a_state_that_makes_no_sense_counts_as_none(lab: Lab) -> None:
    """Half a file, or one of another version, is like no file: the lab is down, and can be cleared."""
    noted(lab, LabState(supervisor=DEAD))
    lab.folder.state.write_text('{"supervisor": 5')
    assert lab.report().phase == "down"
    assert lab.down()


def test_what_the_supervisor_failed_with_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """When starting fails the error is the supervisor's, with the place of the logs."""
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    failed = LabState(supervisor=me, phase="failed", error="etcd died")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: lab.folder.write_state(failed))
    monkeypatch.setattr(Lab, "_end", lambda *_: None)  # it would end the tests
    with pytest.raises(LabError, match=r"(?s)etcd died\nThe logs are in .*/labs/some/logs"):
        lab.up(ClusterSpec(), Display())


def test_a_failure_leaves_its_logs_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed start there are logs to read, and neither data nor keys."""

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
    """Ctrl-C while it starts ends the supervisor, and removes the folder and the lock."""
    state = replace(running(run), components=())

    def interrupted(*_: object, **__: object) -> None:
        lab.folder.write_state(state)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.up(ClusterSpec(), Display())
    assert not state.supervisor.is_running()
    assert list(lab.root.iterdir()) == []


def test_a_supervisor_that_ends_is_noticed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that is gone before it said anything useful is an error with what it printed."""

    def run(*_: object, **__: object) -> None:
        lab.folder.log.write_text("Traceback: no module")
        lab.folder.write_state(LabState(supervisor=DEAD))

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(StateError, match=r"(?s)the supervisor ended:\nTraceback: no module"):
        lab.up(ClusterSpec(), Display())


def test_slowness_has_an_end(lab: Lab, run: "Runner", monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that never gets ready is ended, with an error."""
    monkeypatch.setattr(labs, "START_TIMEOUT", 0.2)
    state = replace(running(run), phase="starting", components=())
    monkeypatch.setattr("subprocess.run", lambda *_, **__: lab.folder.write_state(state))
    with pytest.raises(StateError, match="was not ready within"):
        lab.up(ClusterSpec(), Display())
    assert not state.supervisor.is_running()
