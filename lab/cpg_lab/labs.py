"""Named clusters that outlive the command that starts them, each in a folder of `.lab/`.

A supervisor process owns the components (see `supervising`), and its state file says who it is. Commands that
follow find it there; they trust the process number only together with the moment the process began. Commands
on the same name wait for each other; different names have nothing to do with each other.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from cpg_api.decoding import decode
from cpg_lab import building, folders, locks, passing
from cpg_lab.access import Access
from cpg_lab.commands import Files
from cpg_lab.errors import LabError, StateError
from cpg_lab.identities import Identity
from cpg_lab.processes import tail_of
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec

DEFAULT_NAME = "lab"
START_PATIENCE = 180.0
STOP_PATIENCE = 30.0
_POLL = 0.05
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

Phase = Literal["starting", "ready", "failed"]


@dataclass(frozen=True, kw_only=True)
class State:
    """What a supervisor tells about itself."""

    supervisor: Identity
    phase: Phase = "starting"
    error: str = ""
    url: str = ""
    token: str = ""
    kubectl_path: str = ""
    components: tuple[tuple[str, Identity], ...] = ()


@dataclass(frozen=True)
class Place:
    """The folder of a named cluster, and the files in it that are not the cluster's own."""

    folder: Path

    @property
    def spec(self) -> Path:
        """What the cluster shall be."""
        return self.folder / "spec.json"

    @property
    def state(self) -> Path:
        """What its supervisor tells."""
        return self.folder / "state.json"

    @property
    def log(self) -> Path:
        """What its supervisor prints."""
        return self.folder / "supervisor.log"

    def read_spec(self) -> ClusterSpec:
        """Read what the cluster shall be."""
        return decode(self.spec.read_bytes(), ClusterSpec)

    def read_state(self) -> State | None:
        """Read what the supervisor told last; None where there is none, or none that can be understood."""
        try:
            return decode(self.state.read_bytes(), State)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write_spec(self, spec: ClusterSpec) -> None:
        """Note what the cluster shall be."""
        self.spec.write_bytes(msgspec.json.encode(spec))

    def write_state(self, state: State) -> None:
        """Tell the state, all at once: a reader never sees half of it. It holds a token, so it is private."""
        beside = self.state.with_suffix(".part")
        beside.touch(mode=0o600)
        beside.write_bytes(msgspec.json.encode(state))
        beside.replace(self.state)


@dataclass(frozen=True)
class Report:
    """How a named cluster is."""

    name: str
    phase: Phase | Literal["down", "dead"]
    spec: ClusterSpec | None = None
    url: str = ""
    error: str = ""
    components: tuple[tuple[str, int, bool], ...] = ()
    """Each with its process number, and whether it lives."""

    @property
    def well(self) -> bool:
        """Whether everything that shall run does."""
        return self.phase == "ready" and all(alive for _, _, alive in self.components)


class Lab:
    """One named cluster."""

    def __init__(self, name: str = DEFAULT_NAME, *, root: Path | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise StateError(f'"{name}" cannot be the name of a lab: small letters, digits and dashes')
        self.name = name
        self.root = root or folders.lasting_clusters()
        self.place = Place(self.root / name)

    @property
    def files(self) -> Files:
        """The cluster's own files."""
        return Files(self.place.folder)

    @property
    def _gate(self) -> Path:
        """The lock of all commands on this name; beside its folder, which comes and goes."""
        return self.root / f".{self.name}.lock"

    def up(self, spec: ClusterSpec, display: Display | None = None) -> bool:
        """Start it; tell whether it had to be started. One that runs as asked is left alone."""
        display = display or Display()
        with self._alone(display):
            if self._runs_as(spec):
                return False
            building.ensure(spec.programs(), display)
            passing.clear(folders.passing_clusters())
            shutil.rmtree(self.place.folder, ignore_errors=True)
            self.place.folder.mkdir(parents=True, mode=0o700)
            self.place.write_spec(spec)
            try:
                self._supervise()
            except BaseException as problem:
                self._end(self.place.read_state())
                self._clear_after(problem)
                raise
        return True

    def down(self, display: Display | None = None) -> bool:
        """Stop it and remove its folder; tell whether there was anything to do."""
        passing.clear(folders.passing_clusters())
        if not self.place.folder.exists():
            return False
        with self._alone(display or Display(), last=True):
            self._end(self.place.read_state())
            shutil.rmtree(self.place.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()
        return True

    def report(self) -> Report:
        """Tell how it is."""
        state = self.place.read_state()
        if state is None:
            return Report(self.name, "down")
        phase = state.phase
        return Report(
            self.name,
            phase if phase == "failed" or state.supervisor.lives() else "dead",
            self.place.read_spec(),
            state.url,
            state.error,
            tuple((name, identity.pid, identity.lives()) for name, identity in state.components),
        )

    def access(self) -> Access:
        """Give the way in; raise when it does not run."""
        state = self.place.read_state()
        if state is None or state.phase != "ready" or not state.supervisor.lives():
            raise StateError(f"{self.name} does not run; start it with: cpg-lab up --name {self.name}")
        return Access(
            url=state.url,
            ca_file=self.files.certificates.ca,
            token=state.token,
            kubeconfig=self.files.kubeconfig,
            kubectl_path=Path(state.kubectl_path),
        )

    @contextlib.contextmanager
    def _alone(self, display: Display, *, last: bool = False) -> Iterator[None]:
        """Keep other commands on this name waiting; the last one takes the lock's file away with it."""
        with locks.held(self._gate, on_wait=lambda: display.say(f"Another command works on {self.name}; waiting.")):
            yield
            if last:
                self._gate.unlink(missing_ok=True)

    def _runs_as(self, spec: ClusterSpec) -> bool:
        """Tell whether it runs already; raise when it does, but is something else than asked for."""
        state = self.place.read_state()
        if state is None or state.phase != "ready" or not state.supervisor.lives():
            self._end(state)
            return False
        if self.place.read_spec() != spec:
            raise StateError(
                f"{self.name} runs already, and is not what was asked for; first: cpg-lab down --name {self.name}"
            )
        return True

    def _supervise(self) -> None:
        """Start the supervisor, and wait until it tells that all is ready."""
        with self.place.log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", "cpg_lab.supervising", str(self.place.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=False,
            )
        deadline = time.monotonic() + START_PATIENCE
        while (state := self.place.read_state()) is None or state.phase == "starting":
            if state is None or not state.supervisor.lives():
                raise StateError(f"{self.name}: the supervisor ended:\n{tail_of(self.place.log)}")
            if time.monotonic() > deadline:
                raise StateError(f"{self.name} was not ready within {START_PATIENCE:.0f} s")
            time.sleep(_POLL)
        if state.phase == "failed":
            raise LabError(f"{state.error}\nThe logs are in {self.files.logs}")

    def _clear_after(self, problem: BaseException) -> None:
        """Leave what tells about a failure, and nothing at all when somebody merely changed his mind."""
        if not isinstance(problem, Exception):
            shutil.rmtree(self.place.folder, ignore_errors=True)
            self._gate.unlink(missing_ok=True)
            return
        kept = {self.place.spec, self.place.state, self.place.log, self.files.logs}
        for path in set(self.place.folder.iterdir()) - kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _end(self, state: State | None) -> None:
        """End the supervisor and with it the components: asked first, then by force."""
        if state is None:
            return
        everyone = [state.supervisor, *(identity for _, identity in state.components)]
        state.supervisor.send(signal.SIGTERM)
        if not _all_gone(everyone, STOP_PATIENCE):
            for identity in everyone:
                identity.send(signal.SIGKILL)
            _all_gone(everyone, STOP_PATIENCE)


def known(root: Path | None = None) -> list[Lab]:
    """Give the labs that have a folder, whether or not they run."""
    root = root or folders.lasting_clusters()
    return [Lab(folder.name, root=root) for folder in sorted(root.glob("*/")) if Place(folder).spec.exists()]


def _all_gone(identities: list[Identity], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while any(identity.lives() for identity in identities):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True
