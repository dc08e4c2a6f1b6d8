"""A cluster as a context manager: it runs within the block and leaves nothing behind, also after an error."""

import datetime as dt
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self

from cpg_lab import building, certificates, folders, node_creation
from cpg_lab.access import Access
from cpg_lab.commands import SERVICE_IP, ClusterFiles
from cpg_lab.controlplane import ControlPlane
from cpg_lab.errors import LabError, StartError
from cpg_lab.nodes import NodePool
from cpg_lab.processes import Process
from cpg_lab.progress import Display
from cpg_lab.specs import ClusterSpec
from cpg_lab.temporary_folders import OwnedFolder

_DEFAULT = ClusterSpec()
_MAX_KEPT_LOGS = 10


class Cluster:
    """A control plane on loopback, with the nodes of its spec.

    Without a folder it creates one and removes it at the end; a given folder is left to the caller.
    """

    def __init__(
        self, spec: ClusterSpec = _DEFAULT, *, folder: Path | None = None, display: Display | None = None
    ) -> None:
        self.spec = spec
        self._display = display
        self._folder = folder
        self._owned_folder: OwnedFolder | None = None
        self._plane: ControlPlane | None = None
        self._access: Access | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self._keep_logs(error)
        self.stop()

    def start(self) -> None:
        """Build missing programs, start all components, create the nodes; clean up if one of these fails."""
        programs = building.ensure(self.spec.programs(), self._display)
        try:
            files = ClusterFiles(self._own_folder())
            now = dt.datetime.fromtimestamp(time.time(), dt.UTC)
            certificates.issue(files.folder, now=now, service_ip=SERVICE_IP)
            self._plane = ControlPlane(self.spec, files, programs)
            self._plane.start()
            self._access = self._plane.access
            self.add_nodes(*self.spec.nodes)
        except BaseException as error:
            if isinstance(error, Exception):
                self._keep_logs(error)
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all components and remove the folder, if it is ours; a second call does nothing."""
        self._access = None
        plane, self._plane = self._plane, None
        owned_folder, self._owned_folder = self._owned_folder, None
        try:
            if plane is not None:
                plane.stop()
        finally:
            if owned_folder is not None:
                owned_folder.release()

    @property
    def access(self) -> Access:
        """Address, authority and token in one object."""
        if self._access is None:
            raise StartError("the cluster does not run")
        return self._access

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.access.kubeconfig

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self.access.url

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self.access.token

    @property
    def ca_file(self) -> Path:
        """The authority that signed the API server's certificate."""
        return self.access.ca_file

    @property
    def audit_log(self) -> Path:
        """The API server's log of writes, which the spec has to ask for."""
        return self._control_plane.files.audit_log

    @property
    def processes(self) -> dict[str, Process]:
        """The components' processes, by name."""
        return dict(self._control_plane.processes)

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002  # as subprocess.run has it
        check: bool = True,
    ) -> CompletedProcess[str]:
        """Run the lab's own kubectl; with ``check``, raise with its error output when it fails."""
        return self.access.kubectl(*arguments, input=input, check=check)

    def token_for(self, service_account: str, namespace: str = "default") -> str:
        """Return a token of a service account, as its pods have."""
        return self.access.token_for(service_account, namespace)

    def add_nodes(self, *pools: NodePool) -> None:
        """Create nodes, which are ready at once."""
        if pools:
            node_creation.create_nodes(self.kubeconfig, pools)

    def start_component(self, name: str) -> None:
        """Start a component again, on the same port, and wait until it is ready."""
        self._control_plane.start_component(name)

    def stop_component(self, name: str) -> None:
        """Ask a component to end, and end it by force if it does not."""
        self._control_plane.stop_component(name)

    def kill_component(self, name: str) -> None:
        """Kill a component, as a crash would."""
        self._control_plane.kill_component(name)

    def dead(self) -> dict[str, int]:
        """Return the components that ended, each with its exit code."""
        return self._control_plane.dead()

    def wait(self, until: Callable[[], bool], timeout: float = 30.0, what: str = "the condition") -> None:
        """Wait until a condition holds; raise an error that names it after the timeout, or when a component died."""
        deadline = time.monotonic() + timeout
        while not until():
            if dead := self.dead():
                raise LabError(f"waiting for {what}, but {', '.join(dead)} died")
            if time.monotonic() > deadline:
                raise LabError(f"{what} did not come within {timeout:g} s")
            time.sleep(0.1)

    @property
    def _control_plane(self) -> ControlPlane:
        if self._plane is None:
            raise StartError("the cluster does not run")
        return self._plane

    def _own_folder(self) -> Path:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self._folder
        self._owned_folder = OwnedFolder.create(folders.temporary_clusters())
        return self._owned_folder.folder

    def _keep_logs(self, error: Exception) -> None:
        """Copy the logs out of the cluster's folder, and note the copy's path in the error."""
        logs = self._plane.files.logs if self._plane else None
        if logs is None or self._owned_folder is None or not logs.is_dir():
            return
        kept = folders.kept_logs() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        shutil.copytree(logs, kept, dirs_exist_ok=True)
        for old in sorted(folders.kept_logs().iterdir())[:-_MAX_KEPT_LOGS]:
            shutil.rmtree(old, ignore_errors=True)
        error.add_note(f"The logs of the lab's cluster are kept in {kept}")
