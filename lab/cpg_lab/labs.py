"""Named clusters that outlive the command that starts them, each in a folder of `.lab/`.

A supervisor process owns the components (see `supervisor`) and writes its identity to a state file. Later commands read
it there, and trust the process number only together with the start time of the process. Commands on the same name wait
for each other; different names are independent.
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
from cpg_lab import building, folders, locks, temporary_folders
from cpg_lab.access import Access
from cpg_lab.commands import ClusterFiles
from cpg_lab.errors import LabError, StateError
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.processes import tail_of
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec

DEFAULT_NAME = "lab"
START_TIMEOUT = 180.0
STOP_TIMEOUT = 30.0
_POLL_SECONDS = 0.05
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

Phase = Literal["starting", "ready", "failed"]


@dataclass(frozen=True, kw_only=True)
class LabState:
    """The state that a supervisor writes."""

    supervisor: ProcessIdentity
    phase: Phase = "starting"
    error: str = ""
    url: str = ""
    token: str = ""
    kubectl_path: str = ""
    components: tuple[tuple[str, ProcessIdentity], ...] = ()


@dataclass(frozen=True)
class LabFolder:
    """The folder of a named cluster, with the files of its supervisor."""

    path: Path

    @property
    def spec(self) -> Path:
        """The spec of the cluster."""
        return self.path / "spec.json"

    @property
    def state(self) -> Path:
        """The state of the supervisor."""
        return self.path / "state.json"

    @property
    def log(self) -> Path:
        """The output of the supervisor."""
        return self.path / "supervisor.log"

    def read_spec(self) -> ClusterSpec:
        """Return the spec of the cluster."""
        return decode(self.spec.read_bytes(), ClusterSpec)

    def read_state(self) -> LabState | None:
        """Return the last state of the supervisor, or None if there is none that can be decoded."""
        try:
            return decode(self.state.read_bytes(), LabState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write_spec(self, spec: ClusterSpec) -> None:
        """Write the spec of the cluster."""
        self.spec.write_bytes(msgspec.json.encode(spec))

    def write_state(self, state: LabState) -> None:
        """Write the state atomically, so that a reader never sees a part of it. It holds a token, so it is private."""
        beside = self.state.with_suffix(".part")
        beside.touch(mode=0o600)
        beside.write_bytes(msgspec.json.encode(state))
        beside.replace(self.state)


@dataclass(frozen=True)
class LabReport:
    """The state of a named cluster, as commands show it."""

    name: str
    phase: Phase | Literal["down", "dead"]
    spec: ClusterSpec | None = None
    url: str = ""
    error: str = ""
    components: tuple[tuple[str, int, bool], ...] = ()
    """Each with its process number, and whether it runs."""

    @property
    def is_healthy(self) -> bool:
        """Whether all components run."""
        return self.phase == "ready" and all(alive for _, _, alive in self.components)


class Lab:
    """One named cluster."""

    def __init__(self, name: str = DEFAULT_NAME, *, root: Path | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise StateError(f'"{name}" cannot be the name of a lab: small letters, digits and dashes')
        self.name = name
        self.root = root or folders.persistent_clusters()
        self.folder = LabFolder(self.root / name)

    @property
    def files(self) -> ClusterFiles:
        """The cluster's own files."""
        return ClusterFiles(self.folder.path)

    @property
    def _gate(self) -> Path:
        """The lock of all commands on this name; beside the folder, because that is removed and created again."""
        return self.root / f".{self.name}.lock"

    def up(self, spec: ClusterSpec, display: Display | None = None) -> bool:
        """Start it unless it runs with this spec; return whether it was started."""
        display = display or Display()
        with self._locked(display):
            if self._runs_as(spec):
                return False
            building.ensure(spec.programs(), display)
            temporary_folders.remove_orphans(folders.temporary_clusters())
            shutil.rmtree(self.folder.path, ignore_errors=True)
            self.folder.path.mkdir(parents=True, mode=0o700)
            self.folder.write_spec(spec)
            try:
                self._supervise()
            except BaseException as problem:
                self._end_processes(self.folder.read_state())
                self._clear_after(problem)
                raise
        return True

    def down(self, display: Display | None = None) -> bool:
        """Stop it and remove its folder; return whether it existed."""
        temporary_folders.remove_orphans(folders.temporary_clusters())
        if not self.folder.path.exists():
            return False
        with self._locked(display or Display(), last=True):
            self._end_processes(self.folder.read_state())
            shutil.rmtree(self.folder.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()
        return True

    def report(self) -> LabReport:
        """Return its state."""
        state = self.folder.read_state()
        if state is None:
            return LabReport(self.name, "down")
        phase = state.phase
        return LabReport(
            self.name,
            phase if phase == "failed" or state.supervisor.is_running() else "dead",
            self.folder.read_spec(),
            state.url,
            state.error,
            tuple((name, identity.pid, identity.is_running()) for name, identity in state.components),
        )

    def access(self) -> Access:
        """Return the access to the cluster; raise when it does not run."""
        state = self.folder.read_state()
        if state is None or state.phase != "ready" or not state.supervisor.is_running():
            raise StateError(f"{self.name} does not run; start it with: cpg-lab up --name {self.name}")
        return Access(
            url=state.url,
            ca_file=self.files.certificates.ca,
            token=state.token,
            kubeconfig=self.files.kubeconfig,
            kubectl_path=Path(state.kubectl_path),
        )

    @contextlib.contextmanager
    def _locked(self, display: Display, *, last: bool = False) -> Iterator[None]:
        """Hold the lock of this name; with ``last``, remove its file at the end."""
        with locks.hold(self._gate, on_wait=lambda: display.say(f"Another command works on {self.name}; waiting.")):
            yield
            if last:
                self._gate.unlink(missing_ok=True)

    def _runs_as(self, spec: ClusterSpec) -> bool:
        """Return whether it runs with this spec; raise when it runs with another."""
        state = self.folder.read_state()
        if state is None or state.phase != "ready" or not state.supervisor.is_running():
            self._end_processes(state)
            return False
        if self.folder.read_spec() != spec:
            raise StateError(f"{self.name} runs already, with another spec; first: cpg-lab down --name {self.name}")
        return True

    def _supervise(self) -> None:
        """Start the supervisor, and wait until its state is ready or failed."""
        with self.folder.log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", "cpg_lab.supervisor", str(self.folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=False,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while (state := self.folder.read_state()) is None or state.phase == "starting":
            if state is None or not state.supervisor.is_running():
                raise StateError(f"{self.name}: the supervisor ended:\n{tail_of(self.folder.log)}")
            if time.monotonic() > deadline:
                raise StateError(f"{self.name} was not ready within {START_TIMEOUT:.0f} s")
            time.sleep(_POLL_SECONDS)
        if state.phase == "failed":
            raise LabError(f"{state.error}\nThe logs are in {self.files.logs}")

    def _clear_after(self, problem: BaseException) -> None:
        """Keep state and logs after a failure; remove everything after an interrupt."""
        if not isinstance(problem, Exception):
            shutil.rmtree(self.folder.path, ignore_errors=True)
            self._gate.unlink(missing_ok=True)
            return
        kept = {self.folder.spec, self.folder.state, self.folder.log, self.files.logs}
        for path in set(self.folder.path.iterdir()) - kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _end_processes(self, state: LabState | None) -> None:
        """Terminate the supervisor and with it the components; kill them after a timeout."""
        if state is None:
            return
        processes = [state.supervisor, *(identity for _, identity in state.components)]
        state.supervisor.send(signal.SIGTERM)
        if not _await_end(processes, STOP_TIMEOUT):
            for identity in processes:
                identity.send(signal.SIGKILL)
            _await_end(processes, STOP_TIMEOUT)


def known(root: Path | None = None) -> list[Lab]:
    """Return the labs that have a folder, whether or not they run."""
    root = root or folders.persistent_clusters()
    return [Lab(folder.name, root=root) for folder in sorted(root.glob("*/")) if LabFolder(folder).spec.exists()]


def _await_end(identities: list[ProcessIdentity], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while any(identity.is_running() for identity in identities):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
