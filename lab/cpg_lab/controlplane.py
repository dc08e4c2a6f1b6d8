"""The components of one cluster as processes: started in order, checked while they start, stopped together.

A component that dies while it starts is reported at once, by name and with the end of its log, before any timeout.
One that lost its port to another process is started again on another port.
"""

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from cpg_lab import components, folders, ports, probing, workloads
from cpg_lab.access import Access, write_kubeconfig
from cpg_lab.commands import ClusterFiles, CommandContext
from cpg_lab.components import ComponentKind
from cpg_lab.errors import StartError
from cpg_lab.processes import Process, stop_all
from cpg_lab.specs import ClusterSpec

START_TIMEOUT = 60.0
STOP_GRACE = 8.0
_POLL_SECONDS = 0.05
_MAX_PORT_ATTEMPTS = 4
_ADMINISTRATOR = "cpg-lab:admin"


class ControlPlane:
    """The processes of one cluster. The caller owns the folder and removes it."""

    def __init__(self, spec: ClusterSpec, files: ClusterFiles, programs: Mapping[str, Path]) -> None:
        self.files = files
        self.token = secrets.token_urlsafe(24)
        self._spec = spec
        self._programs = programs
        self._kinds = components.of_spec(spec)
        self._tokens = {kind.name: secrets.token_urlsafe(24) for kind in self._kinds if kind.user}
        self._ports: dict[str, int] = {}
        self._processes: dict[str, Process] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The components, in order of starting."""
        return tuple(kind.name for kind in self._kinds)

    @property
    def processes(self) -> Mapping[str, Process]:
        """The components that were started, by name."""
        return self._processes

    def url(self, component: str) -> str:
        """Return the URL of a component."""
        return self._context.url(component, self._kind(component).scheme)

    @property
    def access(self) -> Access:
        """Address, authority and token of an administrator."""
        return Access(
            url=self.url("apiserver"),
            ca_file=self.files.certificates.ca,
            token=self.token,
            kubeconfig=self.files.kubeconfig,
            kubectl_path=self._programs["kubectl"],
        )

    def start(self) -> None:
        """Start etcd, then the API server, then all other components at once, with the CRDs of workloads before."""
        self.files.logs.mkdir(parents=True, exist_ok=True)
        self._write_tokens()
        for name in ("etcd", "apiserver"):
            self.start_component(name)
        self._write_client_files()
        controllers = workloads.of_names(self.names)
        if controllers:
            workloads.write_certificate(self.files.webhook_certificate, self.files.certificates)
            workloads.install_crds(controllers, self.access, kubernetes=self._spec.kubernetes)
        rest = [kind for kind in self._kinds if kind.name not in self._processes]
        for kind in rest:
            self._launch(kind)
        for kind in rest:
            self._await_ready(kind, START_TIMEOUT)
        for controller in controllers:
            if controller.webhooks:
                workloads.install_webhooks(controller, self.access, self._context.url(controller.webhook_port))

    def stop(self) -> None:
        """Stop all components: clients first, then the API server, then etcd."""
        others = [process for name, process in self._processes.items() if name not in {"etcd", "apiserver"}]
        try:
            stop_all(others, STOP_GRACE)
            for name in ("apiserver", "etcd"):
                if name in self._processes:
                    self._processes[name].stop(STOP_GRACE)
        finally:  # also when the user interrupts the grace period
            for process in self._processes.values():
                process.kill()

    def start_component(self, name: str, timeout: float = START_TIMEOUT) -> None:
        """Start one component, for the first time or again, and wait until it is ready."""
        kind = self._kind(name)
        if name in self._processes and self._processes[name].is_running:
            return
        self._launch(kind)
        self._await_ready(kind, timeout)

    def stop_component(self, name: str, grace: float = STOP_GRACE) -> None:
        """Terminate one component, and kill it after the grace period."""
        self._process(name).stop(grace)

    def kill_component(self, name: str) -> None:
        """Kill one component, as a crash would."""
        self._process(name).kill()

    def dead(self) -> dict[str, int]:
        """Return the components that ended, each with its exit code."""
        codes = {name: process.exit_code for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    @property
    def _context(self) -> CommandContext:
        return CommandContext(spec=self._spec, files=self.files, ports=self._ports, stages=folders.stages_file())

    def _kind(self, name: str) -> ComponentKind:
        for kind in self._kinds:
            if kind.name == name:
                return kind
        raise StartError(f"the cluster has no {name}; it has {', '.join(self.names)}")

    def _process(self, name: str) -> Process:
        kind = self._kind(name)
        if kind.name not in self._processes:
            raise StartError(f"{name} was not started yet")
        return self._processes[kind.name]

    def _launch(self, kind: ComponentKind, *, fresh_ports: bool = False) -> None:
        if fresh_ports or kind.name not in self._processes:
            self._ports.update({port: ports.free_port() for port in kind.ports})
        if kind.config:
            text = yaml.safe_dump(kind.config(self._context), sort_keys=False)
            self.files.config_of(kind.name).write_text(text)
        self._processes[kind.name] = Process(
            kind.name,
            [self._programs[self._spec.program(kind.name)], *kind.command(self._context)],
            log=self.files.log(kind.name),
            env={**os.environ, "TMPDIR": str(self.files.folder)},
        )

    def _await_ready(self, kind: ComponentKind, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        attempts = 1
        while (reason := self._unready_reason(kind)) is not None:
            process = self._processes[kind.name]
            if not process.is_running:
                if ports.LOST_PORT not in process.output() or attempts >= _MAX_PORT_ATTEMPTS:
                    raise StartError(_with_log(process, f"died while starting (exit code {process.exit_code})"))
                attempts += 1
                self._launch(kind, fresh_ports=True)
            elif time.monotonic() > deadline:
                raise StartError(_with_log(process, f"was not ready within {timeout:.0f} s ({reason})"))
            else:
                time.sleep(_POLL_SECONDS)

    def _unready_reason(self, kind: ComponentKind) -> str | None:
        """Return why a component is not ready. Another process may answer on a port that the component lost."""
        checks = [(self.url(kind.name), path) for path in kind.health]
        if kind.webhook:
            checks.append((self._context.url(kind.ports[-1]), kind.webhook))
        for url, path in checks:
            reason = probing.unready_reason(url, path, ca_file=self.files.certificates.ca, token=self.token)
            if reason is not None:
                return reason
        return None if self._processes[kind.name].is_running else "it ended"

    def _write_tokens(self) -> None:
        users = [(self.token, _ADMINISTRATOR, "system:masters")]
        users += [(self._tokens[kind.name], kind.user, ",".join(kind.groups)) for kind in self._kinds if kind.user]
        rows = [f'{token},{user},{user},"{groups}"' for token, user, groups in users]
        self.files.tokens.touch(mode=0o600)
        self.files.tokens.write_text("\n".join(rows) + "\n")

    def _write_client_files(self) -> None:
        """Write the kubeconfigs of the API server's clients, now that its port is known."""
        authority = self.files.certificates.ca
        url = self.url("apiserver")
        write_kubeconfig(self.files.kubeconfig, url=url, ca_file=authority, token=self.token)
        for name, token in self._tokens.items():
            write_kubeconfig(self.files.kubeconfig_of(name), url=url, ca_file=authority, token=token)


def _with_log(process: Process, what: str) -> str:
    return f"{process.name} {what}; the end of its log:\n{process.tail() or '(nothing)'}"
